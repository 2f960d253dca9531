"""Folders of embeddings: model2vec's, and those of sentence-transformers, with what stands behind.

Vectors are files of safetensors: a JSON header of names, dtypes, shapes and places, then numbers.
A folder is read as one file, a ZIP of those of its files that say what it computes.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import DamagedProgram, ImportRefused
from flour.embeddings.json_part import JsonPart
from flour.embeddings.static import PieceTable, headed, of_model2vec, of_sentence_transformers
from flour.embeddings.tokenizer_json import read_tokenizer
from flour.embeddings.transformer import FILES as ENCODER_FILES
from flour.embeddings.transformer import MODELS, of_encoder
from flour.language.flow import Flow, outputs
from flour.language.sources import text
from flour.sklearn.file import read_as_data
from flour.sklearn.importer import from_sklearn

_TOKENIZER = "tokenizer.json"
#: Where sentence-transformers keeps a static embedding that is not its only module.
_NESTED = "0_StaticEmbedding"
#: Heads trained on embeddings: model2vec's own head, its former one, SetFit's.
_HEADS = ("head.safetensors", "pipeline.skops", "model_head.pkl")
#: The files that are read, if they are there.
_FILES = (
    *(_TOKENIZER, "config.json", "modules.json", "model.safetensors"),
    *_HEADS,
    *ENCODER_FILES,
    *(f"{_NESTED}/{name}" for name in (_TOKENIZER, "model.safetensors")),
)
#: How many pieces model2vec reads where a model does not say.
_MOST = 512
#: How many tensors of a file are told of.
_SHOWN = 8
#: The most bytes that the files of a folder have.
_LARGEST = 8 << 30


def packed(folder: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> bytes:
    """The files of a folder as one, a ZIP without compression; `read` gives the bytes of each."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in _FILES:
            if (folder / name).is_file():
                archive.writestr(zipfile.ZipInfo(name), read(folder / name))
    return made.getvalue()


def from_embedding(model: bytes | str | Path) -> Flow:
    """The program of an embedding, and of the head behind it: a folder's path, or it `packed`.

    Outputs: those of the head (`label`, `probabilities`, `value`, ...), or `embedding`.
    """
    files = _Files(model if isinstance(model, bytes) else packed(Path(model)))
    heads = [head for head in _HEADS if head in files.names]
    return _behind(files, _embedded(files, text(), heads), heads)


class _Files:
    """The files of a folder by their names."""

    def __init__(self, raw: bytes) -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(raw))
        except (zipfile.BadZipFile, ValueError) as problem:
            raise DamagedProgram("this is no folder of an embedding", found=str(problem)) from None
        self.names, self._left = frozenset(self._archive.namelist()), _LARGEST

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        self._left -= self._archive.getinfo(name).file_size
        if self._left < 0:
            raise DamagedProgram("the files of this folder are too large", where=name)
        try:
            return self._archive.read(name)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError) as problem:
            raise DamagedProgram(
                "this file cannot be read", where=name, found=str(problem)[:80]
            ) from None

    def json(self, name: str) -> JsonPart:
        """The value of a file of JSON; of one that is not there, None."""
        return (
            JsonPart.of_json(self.read(name), name) if name in self.names else JsonPart(None, name)
        )


def vectors_of(folder: Path, document: Flow) -> Flow:
    """The vectors of documents that the embedding of a folder makes, without a head."""
    return _embedded(_Files(packed(folder)), document)


def _embedded(files: _Files, document: Flow, heads: Sequence[str] = ()) -> Flow:
    """The vectors of documents."""
    place = "" if _TOKENIZER in files.names else f"{_NESTED}/"
    encoder = next((model for model in MODELS if model in files.names), "")
    name = encoder or f"{place}model.safetensors"
    if name not in files.names:
        raise _no_static(name, files.names)
    subwords = read_tokenizer(files.read(f"{place}{_TOKENIZER}"), f"{place}{_TOKENIZER}")
    if encoder:
        kinds, model = _modules(files), files.read(encoder)
        return of_encoder(document, subwords, model, files.json, kinds)
    tensors = read_safetensors(files.read(name), name)
    if "embeddings" in tensors:
        config = files.json("config.json")
        table = PieceTable(tensors["embeddings"], tensors.get("mapping"), tensors.get("weights"))
        return of_model2vec(
            document,
            subwords,
            table.numbers_only() if heads else table,
            config["max_length"].whole(_MOST) if _says(config, "max_length") else None,
            unit=config["normalize"].flag(otherwise=False),
        )
    if "embedding.weight" in tensors:
        table = PieceTable(tensors["embedding.weight"])
        return of_sentence_transformers(document, subwords, table, unit=_normalises(files))
    raise _no_static(name, tensors)


def _no_static(where: str, found: Iterable[str]) -> ImportRefused:
    """The error that a folder's model is another one, a transformer mostly."""
    return ImportRefused(
        "this folder has no static embedding",
        where=where,
        found=", ".join(sorted(found))[:120],
        hint="supported are model2vec's folders, StaticEmbedding of sentence-transformers, and "
        "transformers that were exported to onnx/model.onnx",
    )


def _says(config: JsonPart, name: str) -> bool:
    """True if a setting is not None; one that is left out is the library's own."""
    return name not in config.names() or config[name].value is not None


def _modules(files: _Files) -> list[str]:
    """The kinds of the modules of a model of sentence-transformers."""
    modules = [each["type"].text() for each in files.json("modules.json").each()]
    return [each.rpartition(".")[2] for each in modules]


def _normalises(files: _Files) -> bool:
    """True if vectors of a static model of sentence-transformers get the length one."""
    kinds = _modules(files)[1:]
    if {*kinds} - {"Normalize"}:
        where = "modules.json"
        raise JsonPart(kinds, where).refused("these modules are not supported", ["Normalize"])
    return bool(kinds)


def _behind(files: _Files, embedded: Flow, heads: list[str]) -> Flow:
    """The program of a head behind an embedding; without one, of the embedding itself."""
    if not heads:
        return outputs(embedding=embedded)
    raw = files.read(heads[0])
    if heads[0] == "head.safetensors":
        about = files.json("config.json")["head_config"]
        return outputs(**headed(embedded, about, read_safetensors(raw, heads[0])))
    return from_sklearn(read_as_data(raw, heads[0]), on=embedded)


def facts_of(model: bytes) -> dict[str, dict[str, object]]:
    """The facts that the files of a packed folder tell."""
    files, about = _Files(model), dict[str, object]()
    for name in sorted(files.names):
        if name.endswith(_TOKENIZER):
            pieces = files.json(name)["model"]
            about |= {"tokenizer": pieces["type"].text("?"), "pieces": len(pieces["vocab"].names())}
        if name.endswith(".safetensors"):
            tensors = read_safetensors(files.read(name), name)
            for key, array in [*tensors.items()][:_SHOWN]:
                about[key] = f"{' x '.join(map(str, array.shape))} {array.dtype}"
    about["modules"] = _modules(files)
    about["encoder"] = next((model for model in MODELS if model in files.names), "none")
    about["head"] = next((head for head in _HEADS if head in files.names), "none")
    return {"Embedding": about}


#: The longest header that is read.
_LONGEST = 16 << 20
_DTYPES = {
    "BOOL": "?",
    "BF16": "<u2",
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    **{f"{sign}{8 * size}": f"<{sign.lower()}{size}" for sign in "IU" for size in (1, 2, 4, 8)},
}


def read_safetensors(raw: bytes, where: str) -> dict[str, NDArray[Any]]:
    """The tensors of a file by their names; they are views of its bytes."""
    size = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or size > min(len(raw) - 8, _LONGEST):
        raise DamagedProgram(
            "this is no file of safetensors", where=where, found=f"{len(raw):,} bytes"
        )
    header = JsonPart.of_json(raw[8 : 8 + size], where)
    return {
        name: _tensor(header[name], memoryview(raw)[8 + size :])
        for name in header.names()
        if name != "__metadata__"
    }


def _tensor(about: JsonPart, numbers: memoryview) -> NDArray[Any]:
    dtype = _DTYPES.get(about["dtype"].text(), "")
    shape, places = (about[each].whole_numbers() for each in ("shape", "data_offsets"))
    if not dtype or len(places) != 2:
        raise about.wrong("a tensor of this kind is not read")
    start, end = places
    width = np.dtype(dtype).itemsize
    if not 0 <= start <= end <= len(numbers) or end - start != math.prod(shape) * width:
        raise about.wrong("this tensor does not fit the file")
    found = np.frombuffer(numbers[start:end], dtype).reshape(shape)
    if about["dtype"].text() == "BF16":  # the upper half of a float32
        return (found.astype(np.uint32) << 16).view(np.float32)
    return found
