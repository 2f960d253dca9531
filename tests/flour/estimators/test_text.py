"""Text vectorisers: every analyzer and weighting, on text that is not only ASCII."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import murmurhash3_32

import flour
import oven
from flour.core.errors import InputError, UnsupportedSetting
from flour.strings.hashing import murmur3
from tests.estimators import check

DOCUMENTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A café, un cafe\u0301: CAFÉ!",
    "the the the dog  dog\t\nfox",
    "",
    "日本語 テキスト 日本",
    "İstanbul ǅ ß STRASSE straße",
    "a b c",
    "under_score x2 2x 42 4.2",
    "   lots   of    space   ",
    "🥨 pretzel 🥨🥨",
]
LABELS = np.arange(len(DOCUMENTS)) % 2
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "cased": {"lowercase": False},
    "pairs": {"ngram_range": (1, 2)},
    "only pairs": {"ngram_range": (2, 3)},
    "chars": {"analyzer": "char", "ngram_range": (1, 3)},
    "only char pairs": {"analyzer": "char", "ngram_range": (2, 2)},
    "chars in words": {"analyzer": "char_wb", "ngram_range": (2, 5)},
    "chars in short words": {"analyzer": "char_wb", "ngram_range": (5, 6)},
    "plain": {"strip_accents": "unicode"},
    "ascii": {"strip_accents": "ascii"},
    "pattern": {"token_pattern": r"(\w)\w*"},
    "stop": {"stop_words": ["the", "dog"], "ngram_range": (1, 2)},
    "english": {"stop_words": "english"},
    "binary": {"binary": True},
    "narrow": {"dtype": np.float32},
}


KINDS = (CountVectorizer, TfidfVectorizer, HashingVectorizer)


# In turns: tests/oven/codegen/test_text.py has every setting with weights, and with hashes.
@pytest.mark.parametrize(("place", "settings"), [*enumerate(SETTINGS)])
def test_vectorisers(place: int, settings: str) -> None:
    kind: Any = KINDS[place % 3]
    how = {"n_features": 32} if kind is HashingVectorizer else {}
    made = kind(**SETTINGS[settings], **how).fit(DOCUMENTS)
    check(made, [*DOCUMENTS, "unseen words entirely"], sample=DOCUMENTS)


@pytest.mark.parametrize("norm", ["l1", "l2", None])
@pytest.mark.parametrize("damped", [False, True])
@pytest.mark.parametrize("smooth", [False, True])
def test_weightings(norm: Any, damped: bool, smooth: bool) -> None:  # noqa: FBT001 (parameters)
    how: Any = {"norm": norm, "sublinear_tf": damped, "smooth_idf": smooth}
    check(TfidfVectorizer(**how).fit(DOCUMENTS), DOCUMENTS)
    counts = CountVectorizer(dtype=np.float64).fit_transform(DOCUMENTS)
    for use in (False, True):
        made = TfidfTransformer(**how, use_idf=use).fit(counts)
        check(made, counts, sample=counts)
        check(made, counts.toarray())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_count_is_damped_to_the_last_bit(dtype: Any) -> None:
    """numpy's logarithms of float32 are neither the C library's nor the nearest there are."""
    documents = ["aa " * count + "bb" for count in range(1, 600)] + ["aa " * 5000]
    made = TfidfVectorizer(sublinear_tf=True, dtype=dtype, norm=None).fit(documents)
    found = oven.bake(flour.from_sklearn(made), exact=True).run(documents)["features"]
    want = made.transform(documents)
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found[:-1].toarray(), want[:-1].toarray())
    np.testing.assert_allclose(found[-1].toarray(), want[-1].toarray(), rtol=1e-6)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("norm", ["l1", "l2", None])
def test_hashing(norm: Any, signed: bool, binary: bool) -> None:  # noqa: FBT001 (parameters)
    made = HashingVectorizer(n_features=3, alternate_sign=signed, binary=binary, norm=norm)
    check(made, DOCUMENTS, sample=DOCUMENTS)


def test_a_fixed_vocabulary_in_any_order() -> None:
    made = CountVectorizer(vocabulary={"dog": 2, "fox": 0, "never": 1})
    check(made.fit(DOCUMENTS), DOCUMENTS)


def test_classifiers_of_text() -> None:
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(DOCUMENTS, LABELS)
    check(model, DOCUMENTS)
    both = FeatureUnion([("words", TfidfVectorizer()), ("chars", CountVectorizer(analyzer="char"))])
    check(make_pipeline(both, LogisticRegression()).fit(DOCUMENTS, LABELS), DOCUMENTS)


def test_text_beside_numbers() -> None:
    frame = pd.DataFrame({"size": np.arange(10.0), "text": DOCUMENTS, "flag": LABELS == 1})
    made = ColumnTransformer(
        [("t", TfidfVectorizer(), "text"), ("s", StandardScaler(), ["size"])],
        remainder="passthrough",
    )
    model = make_pipeline(made, LogisticRegression()).fit(frame, LABELS)
    check(model, frame)
    check(model, frame, sample=frame[["flag", "text", "size"]])


def test_hashed_words() -> None:
    words = [document.split() for document in DOCUMENTS]
    made = FeatureHasher(n_features=7, input_type="string")
    program = flour.tokens().hashing(7)
    want = made.transform(words).toarray()
    np.testing.assert_array_equal(program.reference(words)["output"].toarray(), want)


@pytest.mark.parametrize(
    "made",
    [
        CountVectorizer(tokenizer=str.split, token_pattern=None),
        CountVectorizer(preprocessor=str.lower),
        CountVectorizer(analyzer=str.split),
        CountVectorizer(strip_accents=str.strip),
        HashingVectorizer(input="filename"),
    ],
    ids=["tokenizer", "preprocessor", "analyzer", "accents", "files"],
)
def test_functions_of_the_user_are_refused(made: Any) -> None:
    if made.input == "content":
        made.fit(DOCUMENTS)
    with pytest.raises(UnsupportedSetting):
        flour.from_sklearn(made, sample=DOCUMENTS)


def test_a_matrix_has_no_names_to_hash() -> None:
    program = flour.from_sklearn(FeatureHasher())
    with pytest.raises(InputError):
        program.reference(sparse.csr_matrix((1, 3)))


@given(st.text(max_size=40))
@settings(max_examples=150)
def test_the_hash_is_the_librarys(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    assert murmur3(data) == murmurhash3_32(data, 0)
    assert murmur3(data, 7) == murmurhash3_32(data, 7)


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4))
@settings(max_examples=60)
def test_any_text_is_counted_as_the_library_counts_it(documents: list[str]) -> None:
    for how in SETTINGS.values():
        made = CountVectorizer(**how).fit([*DOCUMENTS, "extra words here"])
        program = flour.from_sklearn(made)
        got, want = program.reference(documents)["features"], made.transform(documents)
        np.testing.assert_array_equal(got.toarray(), want.toarray())
