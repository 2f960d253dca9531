"""Embeddings beside the packages that made them: characters, pieces of words, vectors, heads.

`python -m tests.integrations.test_embeddings` writes tests/flour/embeddings: small models of every
kind, and what the packages answer.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

import flour
import oven
from flour.embeddings.tokenizer_json import read_tokenizer
from flour.strings import subword_characters, unicode_tables
from tests.charsmaps import precompiled
from tests.house import ROOT

tokenizers = pytest.importorskip("tokenizers")
model2vec = pytest.importorskip("model2vec")

pytestmark = pytest.mark.integrations
STORED = ROOT / "tests" / "flour" / "embeddings"
SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
#: Options of BertNormalizer.
WAYS = {
    "uncased": {"lowercase": True},
    "cased": {"lowercase": False},
    "bare": dict.fromkeys(("clean_text", "handle_chinese_chars", "lowercase"), False),
    "stripped": {"lowercase": False, "strip_accents": True},
}
ODD = [
    *("", " ", "\t\n", "\x00", "a\x00b", "\x85", "\xa0\u3000", "\u200b\u00ad", "\ufffd", "\u2028"),
    *(
        "É é e\u0301",
        "Straße ẞ",
        "ΣΑΣ ς",
        "İıſK",
        "日本語 한국어 각",
        "豈﨑",
        "ﬁ①",
        "😀👍🏽",
        "ไทย ภาษา",
    ),
    *("don't -- stop!", "$5+<a>^`|~", "[SEP]", "x[CLS]y [SEP", "[[UNK]]", "¿qué?", "x" * 99),
    *("\u302e\u1b44", "\U0001d16d\u0b3f\U0001d165", "\U0001d165\u0323\U00016ff0\u0e31\u1baa"),
    *("y" * 101, "i\u0307\u0323", "\u0345a", "\u0130stanbul", "a\u20ddb", "\U0001d15e\U0001d165"),
]
ANY = st.characters(exclude_categories=["Cs"])
#: Parts of clusters of characters.
PARTS = [
    *(
        "e",
        "a",
        "\u0301",
        "\u0323",
        "\u200d",
        "©",
        "👍",
        "🏽",
        "🇷",
        "\r",
        "\n",
        "\u0600",
        "क",
        "\u094d",
    ),
    *("ᄀ", "ᅡ", "ᆨ", "가", "각", "ﾊ", "ﾟ", "\u0e33", "\u0903", "\u00ad", "ａ", "ﷺ", "\u212b"),
]
SOME = st.one_of(ANY, st.sampled_from(ODD), st.sampled_from(PARTS))
DOCUMENTS = st.lists(st.lists(SOME, max_size=12).map("".join))


def tokenizer(way: str, *, size: int = 2000) -> Any:
    """A tokeniser of BERT's kind, trained on the source of this project and on odd characters."""
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer(**WAYS[way])
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=SPECIAL, show_progress=False
    )
    made.train_from_iterator([*ODD, *texts()] * 3, trainer)
    return made


def texts() -> list[str]:
    """Sentences of this project's pages."""
    pages = sorted((ROOT / "docs" / "explanation").glob("*.md"))
    return [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]


def static_models(folder: Path) -> Iterator[tuple[Path, Any]]:
    """A folder of each kind of static embedding, and what its package answers a list of texts."""
    rng = np.random.default_rng(20181010)
    cut = tokenizer("uncased", size=400)
    count = cut.get_vocab_size()
    rows = rng.normal(size=(count, 8)).astype(np.float32)
    kinds: dict[str, dict[str, Any]] = {
        "plain": {"vectors": rows},
        "unit": {"vectors": rows.astype(np.float64), "normalize": True, "max_length": 5},
        "bytes": {"vectors": (rows * 30).astype(np.int8), "max_length": None},
        "places": {
            "vectors": rows[:20],
            "token_mapping": rng.integers(0, 20, count),
            "weights": rng.uniform(0.5, 2, count),
            "normalize": True,
        },
    }
    for name, how in kinds.items():
        model = model2vec.StaticModel(tokenizer=cut, **how)
        model.save_pretrained(folder / name)
        yield folder / name, lambda asked, model=model: {"embedding": model.encode(asked)}
    for name in ("roberta", "t5", "llama2"):
        other = of_kind(name)
        rows = rng.normal(size=(other.get_vocab_size(), 4)).astype(np.float32)
        model = model2vec.StaticModel(rows, other, normalize=name == "t5")
        model.save_pretrained(folder / name)
        yield folder / name, lambda asked, model=model: {"embedding": model.encode(asked)}
    rows = rng.normal(size=(count, 8)).astype(np.float32)
    yield from pipelines(folder, model2vec.StaticModel(rows, cut, normalize=True))


def pipelines(folder: Path, model: Any) -> Iterator[tuple[Path, Any]]:
    """Folders of pipelines, with a head in each of the forms that there are."""
    import skops.io
    from model2vec.inference import StaticModelPipeline
    from model2vec.inference.mlp import Activation, Layer, MLPHead

    some = texts()[:200]
    labels = np.array(["no", "perhaps", "yes"])[np.arange(len(some)) % 3]
    network = MLPClassifier((4,), max_iter=5, random_state=0).fit(model.encode(some), labels)
    layers = [
        Layer(weight.T.astype(np.float32), bias.astype(np.float32))
        for weight, bias in zip(network.coefs_, network.intercepts_, strict=True)
    ]
    for kind in Activation:
        classes = None if kind == Activation.IDENTITY else network.classes_
        StaticModelPipeline(model, MLPHead(layers, kind, classes)).save_pretrained(
            str(folder / kind.value)
        )
        made = StaticModelPipeline.from_pretrained(str(folder / kind.value))
        yield folder / kind.value, lambda asked, made=made: answers(made, asked)
    model.save_pretrained(folder / "skops")
    skops.io.dump(make_pipeline(network), folder / "skops" / "pipeline.skops")
    former = StaticModelPipeline.from_pretrained(str(folder / "skops"))
    yield folder / "skops", lambda asked: answers(former, asked)


def answers(pipeline: Any, asked: list[str]) -> dict[str, Any]:
    """The predictions of a pipeline of model2vec."""
    if pipeline.head.activation.value == "identity":
        return {"value": pipeline.predict(asked)}
    found = {"probabilities": pipeline.predict_proba(asked)}
    labels = found["probabilities"] > 0.5
    alone = pipeline.head.activation.value == "softmax"
    return found | {"label": pipeline.predict(asked) if alone else labels.astype(np.int64)}


def write(folder: Path) -> None:
    """Write the stored models with their answers, and tokenisers with theirs."""
    asked = [*ODD, *texts()[20:60]]
    for way in WAYS:
        made = tokenizer(way, size=600)
        made.save(str(folder / f"{way}.json"), pretty=False)
        pieces = [each.tokens for each in made.encode_batch(asked, add_special_tokens=False)]
        stored = json.dumps(dict(zip(asked, pieces, strict=True)))
        (folder / f"{way}.answers.json").write_text(stored)
    for place, answer in static_models(folder):
        found = {name: value.tolist() for name, value in answer(asked).items()}
        (place / "answers.json").write_text(json.dumps({"asked": asked, "answers": found}))
        for each in ("README.md", "modules.json"):
            (place / each).unlink(missing_ok=each == "README.md")


def test_characters_are_those_of_the_package() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    from tokenizer_tables import tables

    for name, arrays in tables().items():
        stored = unicode_tables.stored_for_all(name, subword_characters.FILE)
        for ours, theirs in zip(stored, arrays, strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg="run scripts/tokenizer_tables.py")


def nfkc() -> dict[str, str]:
    """A map of NFKC for every character, and letters with their marks, as in SentencePiece."""
    codes = [c for c in range(1, 0x30000) if not 0xD800 <= c < 0xE000]
    made = {chr(c): unicodedata.normalize("NFKC", chr(c)) for c in codes}
    apart = {unicodedata.normalize("NFD", text): text for text in made.values()}
    spaces = {"\t": " ", "\n": " ", "\r": " ", "\x01": "", "\u200d": " ", "\u00ad": ""}
    return {key: text for key, text in {**made, **apart}.items() if key != text} | spaces


LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
#: Steps of tokenisers that people have: a model, options of it, normalisers, ways to cut words.
KINDS: dict[str, tuple[str, dict[str, Any], list[Any], list[Any]]] = {
    "roberta": ("BPE", {}, [], [BYTES]),
    "llama3": (
        "BPE",
        {"ignore_merges": True},
        [{"type": "NFC"}],
        [
            {
                "type": "Split",
                "pattern": {"Regex": LLAMA_3},
                "behavior": "Isolated",
                "invert": False,
            },
            BYTES | {"add_prefix_space": False, "use_regex": False},
        ],
    ),
    "clip": (
        "BPE",
        {"end_of_word_suffix": "</w>", "unk_token": "[UNK]"},
        [{"type": "NFKC"}, {"type": "Lowercase"}],
        [{"type": "Whitespace"}, {"type": "Digits", "individual_digits": True}],
    ),
    "llama2": (
        "BPE",
        {"byte_fallback": True, "unk_token": "[UNK]", "fuse_unk": True},
        [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
        [],
    ),
    "t5": (
        "Unigram",
        {},
        [
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
        ],
        [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}],
    ),
    "albert": (
        "Unigram",
        {"byte_fallback": True},
        [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}],
        [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
        ],
    ),
    "xlm-r": (
        "Unigram",
        {},
        [precompiled(nfkc()), {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}],
        [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        ],
    ),
    "mistral": (
        "BPE",
        {"byte_fallback": True, "unk_token": "[UNK]", "fuse_unk": True},
        [],
        [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}],
    ),
    "wordpiece": (
        "WordPiece",
        {"unk_token": "[UNK]"},
        [{"type": "NFD"}],
        [{"type": "Punctuation", "behavior": "Isolated"}],
    ),
}


def of_kind(name: str) -> Any:
    """A trained tokeniser of a kind, with added tokens of all options."""
    model, how, changes, cuts = KINDS[name]
    made = tokenizers.Tokenizer(getattr(tokenizers.models, model)())
    more = [f"<0x{byte:02X}>" for byte in range(256)] if how.get("byte_fallback") else []
    options: dict[str, Any] = {"special_tokens": [*SPECIAL, *more], "show_progress": False}
    options |= {"unk_token": "[UNK]"} if model == "Unigram" else {}
    options |= {k: v for k, v in how.items() if k == "end_of_word_suffix"}
    if BYTES["type"] in [each["type"] for each in cuts]:
        options["initial_alphabet"] = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    kind = model.replace("BPE", "Bpe")
    trainer = getattr(tokenizers.trainers, f"{kind}Trainer")(vocab_size=800, **options)

    def given(file: dict[str, Any]) -> Any:
        file["normalizer"] = {"type": "Sequence", "normalizers": changes} if changes else None
        file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": cuts} if cuts else None
        file["model"] |= how
        return tokenizers.Tokenizer.from_str(json.dumps(file))

    made = given(json.loads(made.to_str()))
    made.train_from_iterator([*ODD, *texts()[:300]] * 2, trainer)
    file = json.loads(made.to_str())
    file["added_tokens"] = file["added_tokens"][: len(SPECIAL)]
    made = given(file)
    later = {"normalized": bool(changes)}
    for text, flags in {"stop": ("single_word",), "<mask>": ("lstrip", "rstrip")}.items():
        made.add_tokens([tokenizers.AddedToken(text, **dict.fromkeys(flags, True), **later)])
    return made


@pytest.mark.parametrize("way", [*WAYS, *KINDS])
def test_pieces_are_those_of_the_package(way: str) -> None:
    theirs = tokenizer(way) if way in WAYS else of_kind(way)
    ours = read_tokenizer(theirs.to_str().encode())
    most = 400
    plan = oven.bake(
        flour.outputs(numbers=ours.pieces(flour.text()).word_numbers(ours.vocabulary, most)),
        background=False,
    )

    @given(DOCUMENTS)
    @settings(max_examples=200, deadline=None)
    def alike(documents: list[str]) -> None:
        found = [each.ids for each in theirs.encode_batch(documents, add_special_tokens=False)]
        named = [[ours.vocabulary[number] for number in ids] for ids in found]
        assert ours.cut.reference(documents) == named
        numbers = plan.run(documents)["numbers"]
        assert [row[row >= 0].tolist() for row in numbers] == [ids[:most] for ids in found]

    alike()


def test_static_models_answer_as_their_package(tmp_path: Path) -> None:
    asked = [*ODD, *texts()]
    for folder, answer in static_models(tmp_path):
        found, wanted = oven.bake(flour.from_embedding(folder)).run(asked), answer(asked)
        for name, value in wanted.items():
            if value.dtype.kind == "f":
                np.testing.assert_allclose(
                    found[name], value, rtol=0, atol=4e-7, err_msg=folder.name
                )
            else:
                assert found[name].tolist() == value.tolist(), folder.name


class TextEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """The step of embetter, whose package brings a folder `tests` that hides ours."""

    __module__ = "embetter.text._model2vec"

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: object, y: object = None) -> TextEncoder:
        """Learn nothing."""
        return self

    def transform(self, X: Any) -> Any:
        """The vectors of documents."""
        return self.model.encode(X)


def test_embeddings_in_memory_and_in_pipelines() -> None:
    cut = tokenizer("uncased", size=400)
    rows = np.random.default_rng(1).normal(size=(cut.get_vocab_size(), 8)).astype(np.float32)
    some = texts()[:100]
    model = model2vec.StaticModel(rows, cut)
    pipeline = make_pipeline(TextEncoder(model), LogisticRegression()).fit(some, np.arange(100) % 2)
    plan = oven.bake(flour.from_sklearn(pipeline))
    found = plan.run(texts())
    assert all(stage.native for stage in plan.program.stages)
    np.testing.assert_allclose(found["probabilities"], pipeline.predict_proba(texts()), atol=4e-7)
    assert found["label"].tolist() == pipeline.predict(texts()).tolist()


if __name__ == "__main__":
    write(STORED)
