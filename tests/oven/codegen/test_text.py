"""Text pipelines as native code: bit for bit the library's features, on any Unicode."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import ComplementNB
from sklearn.pipeline import FeatureUnion, make_pipeline

import flour
import oven
from oven.plans.plan import Plan
from tests import checked
from tests.flour.estimators.test_text import DOCUMENTS, SETTINGS
from tests.oven.plans.test_bounds import emitted

#: Texts in several languages, where somebody put them beside the checkout.
DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "text"
SCRIPTS = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x530), (0x5D0, 0x6FF), (0x900, 0x980)]
SCRIPTS += [(0x1E00, 0x2100), (0x3040, 0x3100), (0xAC00, 0xB000), (0x1F600, 0x1F650)]


@cache
def generated() -> list[str]:
    """Random mixes of scripts, with runs of white space and marks between them."""
    rng = np.random.default_rng(11)
    made = []
    for _ in range(300):
        low, high = SCRIPTS[rng.integers(len(SCRIPTS))]
        letters = [chr(code) for code in rng.integers(low, high, rng.integers(0, 60))]
        marks = rng.choice(list("\u0301Σİ \t\n\u2003_'-1a"), len(letters))
        made.append("".join(np.where(rng.random(len(letters)) < 0.3, marks, letters)))
    return [*made, *DOCUMENTS]


@cache
def corpus(name: str) -> list[str]:
    """Documents by name: generated ones, or a file's."""
    if name == "generated":
        return generated()
    return (DATA / name).read_text(encoding="utf-8").split("\n")[:100]


CORPORA = ["generated", *sorted(path.name for path in DATA.glob("*.tsv"))]
WEIGHTS: list[dict[str, Any]] = [
    {"sublinear_tf": True},
    {"norm": "l1", "smooth_idf": False},
    {"use_idf": False, "norm": None, "binary": True},
]
# Every setting with one weighting, and the first with all.
CROSS = [
    {**SETTINGS[name], **WEIGHTS[place % len(WEIGHTS)]} for place, name in enumerate(SETTINGS)
] + WEIGHTS


def bits(plan: Plan, documents: list[str], want: Any) -> None:
    got = plan.run(documents)["features"]
    assert got.dtype == want.dtype
    assert (got != want).nnz == 0


@pytest.mark.parametrize("name", CORPORA)
def test_features_are_the_librarys_to_the_last_bit(name: str) -> None:
    documents = corpus(name)
    for how in CROSS:
        made = TfidfVectorizer(**how).fit(documents[::2] + DOCUMENTS)
        plan = oven.bake(flour.from_sklearn(made), exact=True)
        assert all(stage.native for stage in plan.program.stages), how
        bits(plan, documents, made.transform(documents))


@pytest.mark.parametrize("name", CORPORA)
def test_hashed_features_are_the_librarys(name: str) -> None:
    documents = corpus(name)
    for how in ({}, {"ngram_range": (1, 2), "norm": "l1"}, {"analyzer": "char_wb", "norm": None}):
        made = HashingVectorizer(n_features=1000, **how)
        plan = oven.bake(flour.from_sklearn(made), exact=True)
        assert all(stage.native for stage in plan.program.stages)
        bits(plan, documents, made.transform(documents))


def test_half_a_pair_of_surrogates_has_no_hash() -> None:
    made = HashingVectorizer(analyzer="char", n_features=10)
    plan = oven.bake(flour.from_sklearn(made))
    with pytest.raises(UnicodeEncodeError):
        plan.run(["fine", "not \ud800 fine"])
    counts = CountVectorizer(analyzer="char").fit(["a\ud800"])
    bits(oven.bake(flour.from_sklearn(counts)), ["\ud800b"], counts.transform(["\ud800b"]))


def sentiment() -> tuple[Any, list[str]]:
    """The workload of the PRETZEL paper: characters and words, one linear model."""
    documents = generated()
    both = FeatureUnion(
        [
            ("chars", TfidfVectorizer(analyzer="char", ngram_range=(3, 3))),
            ("words", TfidfVectorizer(ngram_range=(1, 2), min_df=1)),
        ]
    )
    model = make_pipeline(both, LogisticRegression())
    return model.fit(documents, np.arange(len(documents)) % 2), documents


def test_a_whole_pipeline_is_one_stage() -> None:
    model, documents = sentiment()
    plan = oven.bake(flour.from_sklearn(model))
    assert [stage.kind for stage in plan.program.stages] == ["fused"]
    # Both extractors share the small letters of a document.
    assert plan.program.stages[0].source.count("text_map(") == 1
    made = plan.run(documents)
    np.testing.assert_allclose(made["probabilities"], model.predict_proba(documents), rtol=1e-12)
    np.testing.assert_array_equal(made["label"], model.predict(documents))


def test_pipelines_of_one_shape_share_their_code() -> None:
    """Whatever their languages, patterns and vocabularies."""
    first = TfidfVectorizer(token_pattern=r"\w+").fit(["one two", "three"])
    second = TfidfVectorizer(token_pattern=r"(?i)[a-z]{2,}|\d+").fit(["日本 ab", "x 12"])
    sources = [
        oven.bake(flour.from_sklearn(made)).program.stages[0].source for made in (first, second)
    ]
    assert sources[0] == sources[1]


@pytest.mark.parametrize("head", [TruncatedSVD(3), ComplementNB()], ids=["svd", "bayes"])
def test_what_else_reads_counts(head: Any) -> None:
    documents = generated()
    model = make_pipeline(CountVectorizer(), head)
    model.fit(documents, np.arange(len(documents)) % 3)
    plan = oven.bake(flour.from_sklearn(model))
    assert all(stage.native for stage in plan.program.stages)
    for name, value in plan.run(documents).items():
        if name == "features":
            np.testing.assert_allclose(value, model.transform(documents), rtol=1e-9, atol=1e-12)
        if name == "label":
            np.testing.assert_array_equal(value, model.predict(documents))


def test_a_saved_plan_counts_as_before(tmp_path: Path) -> None:
    model, documents = sentiment()
    plan = oven.bake(flour.from_sklearn(model))
    plan.save(tmp_path / "plan")
    again = oven.load(tmp_path / "plan")
    np.testing.assert_array_equal(
        again.run(documents)["probabilities"], plan.run(documents)["probabilities"]
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_whole_pipelines_stay_in_their_memory(name: str) -> None:
    made = TfidfVectorizer(**SETTINGS[name]).fit(DOCUMENTS)
    plan = emitted(flour.from_sklearn(made))
    documents = np.array(["", "aΣ  ß", "The dog, the cafe\u0301"], object)
    for rows in (0, 1, 3):
        checked.run(plan, {"X": documents[:rows]}, rows)


def test_a_long_document_takes_bounded_memory() -> None:
    """Every word of ten megabytes is another one, and in the vocabulary."""
    words = [f"w{i:07}" for i in range(200_000)]
    plan = oven.bake(flour.text("x").lower().tokenize(r"\w+").word_ngrams(words, 1, 2))
    found = plan.run([" ".join(words * 5)])["output"]
    assert found.nnz == len(words)
    assert found.data.min() == found.data.max() == 5


def test_patterns_beyond_automata_run_as_python() -> None:
    made = CountVectorizer(token_pattern=r"(?<!a)\w{2,}").fit(DOCUMENTS)
    plan = oven.bake(flour.from_sklearn(made))
    black = [stage.nodes[0].op.name for stage in plan.program.stages if not stage.native]
    assert black == ["Lower", "Tokenize"]
    bits(plan, DOCUMENTS, made.transform(DOCUMENTS))
