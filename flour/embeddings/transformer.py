"""Encoders of sentence-transformers and SetFit that were exported to ONNX."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flour.core.errors import ImportRefused
from flour.embeddings.json_part import JsonPart
from flour.embeddings.static import unit_length
from flour.embeddings.tokenizer_json import Subwords
from flour.language.flow import Flow
from flour.onnx.reading import read_model
from flour.ops.opaque import Encoder
from flour.ops.subwords import WordNumbers
from objectstore import Blob

#: Where the model is, and what says how many pieces it reads, and what is done to its vectors.
MODELS = ("onnx/model.onnx", "model.onnx")
_LENGTHS, _PROMPTS, _SETFIT = (
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "config_setfit.json",
)
FILES = (*MODELS, _LENGTHS, _PROMPTS, _SETFIT, "1_Pooling/config.json")
#: The ways to pool, by the former settings that choose them.
_POOLINGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean"}


def of_encoder(
    document: Flow,
    subwords: Subwords,
    model: bytes,
    json: Callable[[str], JsonPart],
    modules: list[str],
) -> Flow:
    """The vectors of an encoder; `modules` are the kinds of its modules, `json` reads a file."""
    if modules[:2] != ["Transformer", "Pooling"] or modules[2:] not in ([], ["Normalize"]):
        known = ["Transformer", "Pooling", "Normalize"]
        raise JsonPart(modules, "modules.json").refused("these modules are not supported", known)
    lengths, prompts, setfit = map(json, (_LENGTHS, _PROMPTS, _SETFIT))
    if prompts.value and prompts["default_prompt_name"].value is not None:
        raise prompts["default_prompt_name"].refused("a prompt ahead of documents is not supported")
    if lengths.value and lengths["do_lower_case"].flag(otherwise=False):
        document = document.lower()
    most = lengths["max_seq_length"].whole(subwords.most) if lengths.value else subwords.most
    if not most:
        raise lengths.refused("the folder does not say how many pieces its model reads")
    number_of = {piece: number for number, piece in enumerate(subwords.vocabulary)}
    around = [
        tuple(number_of[piece] for piece in pieces) for pieces in (subwords.before, subwords.behind)
    ]
    kept = max(most - sum(map(len, around)), 0)
    numbers = WordNumbers(subwords.vocabulary, kept)(subwords.pieces(document, kept))
    reads, leaf, width = _ports(model)
    pooling = _pooling(json("1_Pooling/config.json"))
    code = Blob.of(np.frombuffer(model, np.uint8))
    vectors = Encoder(code, reads, leaf, width, pooling, *around)(numbers)
    wanted = setfit.value and setfit["normalize_embeddings"].flag(otherwise=False)
    return unit_length(vectors) if wanted or "Normalize" in modules else vectors


def _ports(model: bytes) -> tuple[tuple[str, ...], str, int]:
    """The inputs of an encoder, its output of a vector for each piece, and their width."""
    graph = read_model(model).graph
    for port in graph.outputs:
        if port.shape and len(port.shape) == 3 and isinstance(port.shape[2], int):
            return tuple(each.name for each in graph.inputs), port.name, port.shape[2]
    raise ImportRefused(
        "this ONNX model is no encoder of text",
        where="outputs",
        found=", ".join(f"{port.name} {port.shape}" for port in graph.outputs)[:120],
        hint="an encoder answers (documents, pieces, width) with a known width",
    )


def _pooling(part: JsonPart) -> str:
    """How the vectors of pieces become one."""
    mode = part["pooling_mode"]
    if mode.value is not None:
        if mode.value not in _POOLINGS.values():
            raise mode.refused("this way to pool is not supported", [*_POOLINGS.values()])
        return mode.text()
    names = [name for name in part.names() if name.startswith("pooling_mode_")]
    chosen = [name for name in names if part[name].flag()]
    if len(chosen) != 1 or chosen[0] not in _POOLINGS:
        raise part.refused("this way to pool is not supported", [*_POOLINGS])
    return _POOLINGS[chosen[0]]
