"""Embeddings: pieces of words, means of rows and heads, as the packages that made them answer.

tests/integrations/test_embeddings.py wrote the files and the answers, and compares more.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from onnxruntime import InferenceSession
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import flour
import oven
from flour.core.errors import (
    DamagedProgram,
    FlourError,
    ImportRefused,
    ParameterError,
    UnsupportedSetting,
)
from flour.embeddings import packed
from flour.embeddings.folder import read_safetensors
from flour.embeddings.tokenizer_json import read_tokenizer
from flour.ops import opaque, subwords
from flour.ops.pieces import BytePairs, Unigrams, WordPieces
from tests.charsmaps import charsmap, precompiled
from tests.house import ROOT
from tests.onnx_parts import text_encoder

STORED = ROOT / "tests" / "flour" / "embeddings"
FOLDERS = sorted(each.name for each in STORED.iterdir() if each.is_dir())
PLAIN = json.loads((STORED / "uncased.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("way", ["uncased", "cased", "bare", "stripped"])
def test_pieces_are_those_of_the_package(way: str) -> None:
    answers = json.loads((STORED / f"{way}.answers.json").read_text(encoding="utf-8"))
    cut = read_tokenizer((STORED / f"{way}.json").read_bytes())
    assert dict(zip(answers, cut.cut.reference([*answers]), strict=True)) == answers
    counted = cut.pieces(flour.text()).word_ngrams(cut.vocabulary, 1, 1)
    counts = (
        oven.bake(flour.outputs(counts=counted), background=False)
        .run([*answers])["counts"]
        .toarray()
    )
    for row, pieces in zip(counts, answers.values(), strict=True):
        found = np.repeat(np.array(cut.vocabulary, object), row.astype(int)).tolist()
        assert sorted(found) == sorted(pieces)


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_answer_as_their_package(name: str) -> None:
    stored = json.loads((STORED / name / "answers.json").read_text(encoding="utf-8"))
    program = flour.from_embedding(STORED / name)
    native = oven.bake(program).run(stored["asked"])
    reference = program.reference(stored["asked"])
    assert native.keys() == stored["answers"].keys()
    for output, wanted in stored["answers"].items():
        for found in (native[output], reference[output]):
            if found.dtype.kind == "f":
                np.testing.assert_allclose(found, wanted, rtol=0, atol=4e-7)
            else:
                assert found.tolist() == wanted
    if name in ("plain", "bytes"):  # nothing but sums, in the order of the pieces
        np.testing.assert_array_equal(
            native["embedding"], np.asarray(stored["answers"]["embedding"], "f4")
        )


def test_a_folder_of_sentence_transformers(tmp_path: Path) -> None:
    rows = np.arange(len(PLAIN["model"]["vocab"]) * 2, dtype=np.float32).reshape(-1, 2) + 1
    names = {0: "sentence_transformers.models.StaticEmbedding", 1: "Normalize"}
    modules = [{"idx": place, "type": name} for place, name in names.items()]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "model.safetensors").write_bytes(tensors({"embedding.weight": rows}))
    tokenizer = {**PLAIN, "truncation": {"max_length": 2, "strategy": "LongestFirst"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    found = oven.bake(flour.from_embedding(tmp_path)).run(["[SEP] [CLS] a", ""])["embedding"]
    mean = rows[[2, 1]].mean(axis=0)
    np.testing.assert_allclose(found, [mean / np.linalg.norm(mean), [0, 0]], rtol=1e-6)
    modules[1]["type"] = "Dense"
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UnsupportedSetting, match="Dense"):
        flour.from_embedding(tmp_path)


AROUND = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "[CLS]"}},
        {"Sequence": {"id": "A"}},
        {"SpecialToken": {"id": "[SEP]"}},
    ],
}


def encoder_folder(place: Path, **files: object) -> Path:
    """A folder of sentence-transformers with an ONNX model, files of JSON changed."""
    kinds = [
        {"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling")
    ]
    contents = {
        "tokenizer": PLAIN | {"post_processor": AROUND},
        "modules": [*kinds, {"type": "Normalize"}],
        "1_Pooling/config": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        "sentence_bert_config": {"max_seq_length": 6, "do_lower_case": False},
    } | files
    for name in ("onnx", "1_Pooling"):
        (place / name).mkdir(exist_ok=True)
    for name, content in contents.items():
        (place / f"{name}.json").write_text(json.dumps(content))
    (place / "onnx" / "model.onnx").write_bytes(
        text_encoder(len(PLAIN["model"]["vocab"])).tobytes()
    )
    return place


@pytest.mark.parametrize("way", ["mean", "cls"])
def test_encoders_answer_as_onnxruntime(way: str, tmp_path: Path) -> None:
    folder = encoder_folder(tmp_path, **{"1_Pooling/config": {"pooling_mode": way}})
    documents = ["a [SEP] b", "", "don't stop! " * 9, "a [SEP] b"]
    session = InferenceSession(folder / "onnx" / "model.onnx")
    wanted = []
    for pieces in read_tokenizer((folder / "tokenizer.json").read_bytes()).cut.reference(documents):
        numbers = [MODEL["vocab"][each] for each in ("[CLS]", *pieces[:4], "[SEP]")]
        feed = {"input_ids": [numbers], "attention_mask": [[1] * len(numbers)]}
        found = session.run(None, {name: np.array(each) for name, each in feed.items()})[0][0]
        vector = found.mean(axis=0) if way == "mean" else found[0]
        wanted.append(vector / np.linalg.norm(vector))
    found = oven.bake(flour.from_embedding(folder)).run(documents)["embedding"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    head = LogisticRegression().fit(found, [0, 1, 0, 1])
    joblib.dump(head, folder / "model_head.pkl")
    (folder / "config_setfit.json").write_text('{"normalize_embeddings": true}')
    answers = oven.bake(flour.from_embedding(folder)).run(documents)
    np.testing.assert_allclose(answers["probabilities"], head.predict_proba(found), atol=1e-6)


class SentenceTransformer(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """A model in memory, which can be saved; the package needs gigabytes."""

    __module__ = "sentence_transformers.SentenceTransformer"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save_pretrained(self, path: str, *, create_model_card: bool = True) -> None:
        """Write the files of the model."""
        assert not create_model_card
        shutil.copytree(self.folder, path, dirs_exist_ok=True)

    def fit(self, X: object, y: object = None) -> SentenceTransformer:
        """Learn nothing."""
        return self

    def transform(self, X: list[str]) -> Any:
        """The vectors of documents, for a head to learn from."""
        return oven.bake(flour.from_embedding(self.folder)).run(X)["embedding"]


@pytest.mark.parametrize("kind", ["static", "onnx"])
def test_models_of_sentence_transformers_in_memory(kind: str, tmp_path: Path) -> None:
    if kind == "onnx":
        encoder_folder(tmp_path)
    else:
        shutil.copytree(STORED / "plain", tmp_path, dirs_exist_ok=True)
    documents = ["a [SEP] b", "", "don't stop! " * 9]
    model = SentenceTransformer(tmp_path)
    wanted = model.transform(documents)
    found = oven.bake(flour.from_sklearn(model)).run(documents)
    np.testing.assert_array_equal(next(iter(found.values())), wanted)
    pipeline = make_pipeline(model, LogisticRegression()).fit(documents, [0, 1, 0])
    found = oven.bake(flour.from_sklearn(pipeline)).run(documents)
    np.testing.assert_allclose(found["probabilities"], pipeline.predict_proba(documents), atol=1e-6)
    (tmp_path / ("onnx/model.onnx" if kind == "onnx" else "model.safetensors")).unlink()
    with pytest.raises(ImportRefused, match="no static embedding"):
        flour.from_sklearn(model)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"modules": [{"type": "Transformer"}, {"type": "Dense"}]}, "Dense"),
        ({"1_Pooling/config": {"pooling_mode": "max"}}, "pool"),
        ({"1_Pooling/config": {"pooling_mode_max_tokens": True}}, "pool"),
        ({"config_sentence_transformers": {"default_prompt_name": "query"}}, "query"),
        ({"sentence_bert_config": {}}, "how many pieces"),
    ],
)
def test_encoders_that_are_refused(files: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSetting, match=said):
        flour.from_embedding(encoder_folder(tmp_path, **files))


def test_vectors_are_kept_by_their_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    run = opaque.Encoder._encoded

    def counted(self: opaque.Encoder, session: Any, numbers: Any) -> Any:
        asked.append(len(numbers))
        return run(self, session, numbers)

    monkeypatch.setattr(opaque.Encoder, "_encoded", counted)
    made = opaque.Encoder(
        text_encoder(9), ("input_ids", "attention_mask"), "last_hidden_state", 4, kept=450
    )
    rows = np.array([[1, 2], [3, -1], [1, 2], [3, -1]])
    first = made.reference(rows)
    assert asked == [2, 1]  # two vectors fit
    assert made.reference(rows[::-1]).tolist() == first[::-1].tolist()
    made.reference(np.array([[4, 5], [1, 2]]))
    assert asked == [2, 1, 2]  # what was asked for last is kept
    made.release()
    assert not made.running()
    made.reference(rows[:1])
    assert asked == [2, 1, 2, 2]
    assert made.replace(kept=0).reference(rows).tolist() == first.tolist()
    assert len(asked) == 8


def tensors(named: dict[str, Any], **changes: object) -> bytes:
    """A file of safetensors; `changes` are of the header of every tensor."""
    header, body = dict[str, Any](), b""
    for name, array in named.items():
        ends = [len(body), len(body) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": ends} | changes
        body += array.tobytes()
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + body


ONES = {"x": np.ones((2, 3), np.float32)}


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"\xff" * 16, (9).to_bytes(8, "little") + b"not JSON!", tensors(ONES)[:-1]),
        *(tensors(ONES, dtype="F8"), tensors(ONES, shape=[2, 4]), tensors(ONES, shape=[-2, -3])),
        *(tensors(ONES, data_offsets=[24, 0]), tensors(ONES, data_offsets=[0, 1 << 61])),
        *(tensors(ONES, shape=None), tensors(ONES, data_offsets=["a", "b"])),
    ],
)
def test_damaged_files_of_safetensors(raw: bytes) -> None:
    with pytest.raises(DamagedProgram, match="safetensors"):
        read_safetensors(raw, "x.safetensors")


def test_the_dtypes_of_safetensors() -> None:
    halves = np.array([[1.5, -2.0, 3.25]], np.float32).view(np.uint16)[:, 1::2].copy()
    found = read_safetensors(tensors({"x": halves}, dtype="BF16"), "here")["x"]
    assert found.tolist() == [[1.5, -2.0, 3.25]]
    assert read_safetensors(tensors(ONES, __metadata__={}), "here")["x"].tolist() == [[1.0] * 3] * 2


MODEL = PLAIN["model"]
TOKEN = PLAIN["added_tokens"][0]
BPE = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
UNIGRAM = {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], ["b", -1.0]]}


def split(pattern: str) -> dict[str, object]:
    """A way to cut words by a pattern."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}


PAIRS = {**BPE, "unk_token": "u", "merges": [["a", "b"], ["a", "b"], [">", "½"]]}
PAIRS["vocab"] = {
    piece: place for place, piece in enumerate(["u", "a", "b", "ab", " ", ">½", ">", "½"])
}
CLEAN = {"type": "BertNormalizer", "lowercase": False, "handle_chinese_chars": False}
NEW = {"content": "c", "id": 8, "single_word": True}


@pytest.mark.parametrize(
    ("changes", "text", "pieces"),
    [
        ({"normalizer": CLEAN}, "a\tb\x00b", ["a", " ", "b", "b"]),
        ({"pre_tokenizer": split(r"\w")}, ">½", [">", "½"]),
        ({"pre_tokenizer": split(r"[\w]|[^\w\s]+")}, ">½ab", [">½", "a", "b"]),
        ({"added_tokens": [NEW]}, "abc c", ["ab", "u", " ", "c"]),
        (
            {"added_tokens": [NEW | {"content": "  ", "lstrip": True, "rstrip": True}]},
            "a     b",
            ["a", "  ", "b"],
        ),
    ],
)
def test_odd_ways_of_the_package(changes: dict[str, Any], text: str, pieces: list[str]) -> None:
    file = {**PLAIN, "normalizer": None, "pre_tokenizer": None, "added_tokens": [], "model": PAIRS}
    cut = read_tokenizer(json.dumps(file | changes).encode()).cut
    assert cut.reference([text]) == [pieces]


#: Texts, and what the package tokenizers makes of them with this map.
CHARSMAP = {"\r": " ", "\n": " ", "\x01": "", "ﬁ": "fi", "ﷺ": "صلى", "ａ": "a"} | {
    **dict(zip(("カ\u3099", "e\u0301", "a\u0301\u0323", "©\u200d"), "ガéA©", strict=True)),
    **dict(zip(("क\u0301", "ᄀ\u0301", "\u0600x", "n\u0303"), "KGPñ", strict=True)),
    "x": "a longer text than the others have",
}
MAPPED = {
    "": "",
    "a\r\nb\r\r": "a b  ",
    "ﬁ ﷺ\x01": "fi صلى",
    "ａ\u0301b ﬁ\u0301 ﬁ\u200d": "ab fi fi\u200d",
    "カ\u3099": "カ\u3099",
    "e\u0301 a\u0301\u0323 a\u0301": "é A a\u0301",
    "©\u200d a ©\u200d© ©\u200d©\u0301": "© a ©\u200d© ©\u200d©\u0301",
    "क\u0301 क\u094dक\u0301": "K क\u094dक\u0301",
    "ᄀ\u0301 ᄀᄀ\u0301 가ᄀ\u0301": "G ᄀᄀ\u0301 가G",
    "\u0600xan\u0303 n\u0303\u0301\u0301": "Pañ n\u0303\u0301\u0301",
    "\x00e\u0301\x00🇷🇸🇮🇴": "\x00é\x00🇷🇸🇮🇴",
    "x" * 20: "a longer text than the others have" * 20,
    "\u0301e\u0301 " * 500: "\u0301é " * 500,
}
SPELT = {
    "byte_fallback": True,
    "type": "BPE",
    "merges": [],
    "unk_token": "[UNK]",
    "vocab": {**{f"<0x{byte:02X}>": byte for byte in range(256)}, "[UNK]": 256},
}


def test_maps_of_characters_are_those_of_the_package() -> None:
    steps = {"type": "Sequence", "normalizers": [precompiled(CHARSMAP), precompiled({})]}
    file = PLAIN | {"normalizer": steps, "pre_tokenizer": None, "added_tokens": [], "model": SPELT}
    cut = read_tokenizer(json.dumps(file).encode())
    wanted = [[f"<0x{byte:02X}>" for byte in text.encode()] for text in MAPPED.values()]
    assert cut.cut.reference([*MAPPED]) == wanted
    numbers = cut.pieces(flour.text()).word_numbers(cut.vocabulary, 4000)
    plan = oven.bake(flour.outputs(numbers=numbers), background=False)
    for row, text in zip(plan.run([*MAPPED])["numbers"], MAPPED.values(), strict=True):
        assert bytes(row[row >= 0].tolist()) == text.encode()


def of_bytes(raw: bytes) -> dict[str, str]:
    """A normaliser with these bytes as its map."""
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()}


#: A map whose trie leads back to its root with every byte.
ENDLESS = np.array([1024, *((byte << 10) | byte for byte in range(256))], "<u4").tobytes()


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"model": {**MODEL, "type": "WordLevel"}}, UnsupportedSetting, "WordLevel"),
        ({"model": {**MODEL, "vocab": {"a": 1}}}, UnsupportedSetting, "numbered"),
        ({"model": {**MODEL, "vocab": {"a": "b"}}}, DamagedProgram, "integer"),
        ({"model": {**MODEL, "unk_token": "none"}}, DamagedProgram, "unk_token"),
        ({"model": None}, DamagedProgram, "model"),
        ({"model": {**BPE, "dropout": 0.1}}, UnsupportedSetting, "dropout"),
        ({"model": {**BPE, "merges": ["a b c"]}}, DamagedProgram, r"merges\[0\]"),
        ({"model": {**BPE, "merges": [["a", "c"]]}}, DamagedProgram, r"merges\[0\]"),
        ({"model": {**BPE, "merges": [["a", 7]]}}, DamagedProgram, r"merges\[0\]"),
        ({"model": {**UNIGRAM, "unk_id": None}}, DamagedProgram, "unk_id"),
        ({"model": {**UNIGRAM, "unk_id": 9}}, DamagedProgram, "unk_id"),
        ({"model": {**UNIGRAM, "vocab": [["a", float("nan")]]}}, DamagedProgram, r"vocab\[0\]"),
        ({"model": {**UNIGRAM, "vocab": [["a", 10**400]]}}, DamagedProgram, r"vocab\[0\]"),
        ({"model": {**UNIGRAM, "vocab": [["a"]]}}, DamagedProgram, r"vocab\[0\]"),
        ({"model": {**UNIGRAM, "vocab": [["a", 0.0]] * 2}}, UnsupportedSetting, "equal"),
        ({"normalizer": {"type": "Nmt"}}, UnsupportedSetting, "Nmt"),
        ({"normalizer": {"type": "Precompiled"}}, DamagedProgram, "precompiled_charsmap"),
        ({"normalizer": of_bytes(b"")}, DamagedProgram, "precompiled_charsmap"),
        ({"normalizer": of_bytes(charsmap({"a": "b"})[:99])}, DamagedProgram, "trie"),
        ({"normalizer": of_bytes(charsmap({"a": "b"})[:-2] + b"\xff")}, DamagedProgram, "trie"),
        ({"normalizer": of_bytes(charsmap({"a": "b" * 9})[:-11])}, DamagedProgram, "trie"),
        ({"normalizer": of_bytes(ENDLESS)}, DamagedProgram, "trie"),
        (
            {"normalizer": precompiled({"a": ""}) | {"precompiled_charsmap": "a?"}},
            DamagedProgram,
            "trie",
        ),
        ({"normalizer": {"type": "Sequence", "normalizers": 3}}, DamagedProgram, "normalizers"),
        ({"pre_tokenizer": {"type": "ByteLevel"}}, UnsupportedSetting, "BPE"),
        ({"pre_tokenizer": {"type": "UnicodeScripts"}}, UnsupportedSetting, "UnicodeScripts"),
        ({"pre_tokenizer": split(r"\p{Han}+")}, UnsupportedSetting, "Han"),
        ({"pre_tokenizer": split("a++")}, UnsupportedSetting, "pattern"),
        ({"pre_tokenizer": split("(?<=a)b")}, UnsupportedSetting, "pattern"),
        ({"pre_tokenizer": split("(?i:ss)")}, UnsupportedSetting, "pattern"),
        ({"pre_tokenizer": split("a*")}, UnsupportedSetting, "automaton"),
        ({"added_tokens": [{**TOKEN, "id": 9999}]}, UnsupportedSetting, "number"),
        ({"added_tokens": 7}, DamagedProgram, "list"),
        ({"truncation": {"max_length": 3, "direction": "Left"}}, UnsupportedSetting, "Left"),
        ({"post_processor": {"type": "Unknown"}}, UnsupportedSetting, "Unknown"),
        (
            {"post_processor": {"type": "BertProcessing", "cls": ["x", 1]}},
            DamagedProgram,
            "list|string",
        ),
    ],
)
def test_tokenisers_that_are_refused(
    changes: dict[str, object], error: type[FlourError], said: str
) -> None:
    file = {**PLAIN, **changes}
    if changes.get("model"):
        file["added_tokens"] = []
    with pytest.raises(error, match=said):
        read_tokenizer(json.dumps(file).encode())


@pytest.mark.parametrize(
    "make",
    [
        lambda: WordPieces(["a"]),
        lambda: WordPieces(["[UNK]"], ["b"]),
        lambda: WordPieces(["[UNK]", ""], [""]),
        lambda: WordPieces(["[UNK]"], prefix="#" * 99),
        lambda: WordPieces(["[UNK]"], ["[UNK]"], [1, 2]),
        lambda: BytePairs(["a", "b"], merges=[[0, 1, 2]]),
        lambda: BytePairs(["a"], splits=[["chop", 1, "a"]]),
        lambda: Unigrams(["a", "b"], scores=[1.0]),
        lambda: Unigrams(["a"], unknown="a", scores=[float("inf")]),
        lambda: subwords.TokenMean(["a", "b"], [[1.0]]),
        lambda: subwords.TokenMean(["a", "b"], [[1.0]], [0, 1]),
        lambda: subwords.TokenMean(["a"], [[1.0]], [0], [1.0, 2.0]),
        lambda: subwords.TokenMean(["a"], [[1.0]], [0.5]),
        lambda: subwords.TokenMean(["a"], np.array([[1.0]], np.float16)),
        lambda: WordPieces(["[UNK]"], changes=[["upper"]]),
        *(
            lambda written=written: WordPieces(["[UNK]"], changes=[["charsmap", written]])
            for written in ("a", "a\0b", "\0b\0", "a\0b\0a\0c\0", "abcdef\0b\0")
        ),
        lambda: subwords.FirstWords(-1),
        lambda: opaque.Encoder(np.zeros(3), ("input_ids",), "x", 4),
        lambda: opaque.Encoder(np.zeros(3, np.uint8), ("pixels",), "x", 4),
        lambda: opaque.Encoder(np.zeros(3, np.uint8), ("input_ids",), "x", 4, "max"),
    ],
)
def test_operators_refuse_what_makes_no_sense(make: Any) -> None:
    with pytest.raises(ParameterError):
        make()


def test_what_a_mean_can_be() -> None:
    def largest(rows: Any, *how: Any) -> float:
        return subwords.TokenMean(["a", "b"], rows, *how).extent([], []).largest

    assert 3.0 <= largest([[1.0], [-3.0]]) < np.inf
    assert 3e9 <= largest([[1.0], [-3.0]], [0, 1], [2.0, -1e9]) < np.inf
    assert largest([[np.inf], [1.0]]) == largest([[1e38], [1.0]]) == np.inf


def test_what_is_no_folder_of_an_embedding(tmp_path: Path) -> None:
    with pytest.raises(DamagedProgram, match="no folder"):
        flour.from_embedding(b"PK\x03\x04 and so on")
    (tmp_path / "tokenizer.json").write_bytes((STORED / "plain" / "tokenizer.json").read_bytes())
    for content in (None, tensors({"encoder.layer.0.weight": np.ones((2, 2), np.float32)})):
        if content is not None:
            (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(ImportRefused, match="no static embedding"):
            flour.from_embedding(tmp_path)
    whole = packed(STORED / "plain")
    assert flour.from_embedding(whole).node == flour.from_embedding(STORED / "plain").node
    with pytest.raises(DamagedProgram, match="cannot be read"):
        flour.from_embedding(whole.replace(b"embeddings", b"embeddingz"))


@pytest.mark.parametrize("model", [MODEL, BPE, UNIGRAM])
def test_long_words_take_no_long_time(model: dict[str, Any]) -> None:
    """Neither words without any piece, nor one piece after the other, nor marks take the square."""
    file = {**PLAIN, "model": model, "added_tokens": []}
    file |= {} if model is MODEL else {"normalizer": {"type": "NFC"}, "pre_tokenizer": None}
    cut = read_tokenizer(json.dumps(file).encode())
    number = cut.pieces(flour.text()).length()
    plan = oven.bake(flour.outputs(number=number), background=False)
    words = ["ab" * 500_000, "a\u0323\u0301" * 200_000, "x" * 99 + " " + "\u0379" * 500_000]
    found = plan.run([*words, "a " * 200_000])["number"]
    assert found[3] >= 200_000 or model is not MODEL
    if model is BPE:
        assert found.tolist() == [500_000, 0, 0, 200_000]
    if model is UNIGRAM:
        assert found[0] == 1_000_000
