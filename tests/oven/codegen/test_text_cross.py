"""Every setting of scikit-learn's text features with every other.

All combinations are held against the library by the operators' definitions, a sample of them by
machine code, and machine code over the whole of every file of texts beside the checkout. Most of
it takes minutes and is marked `soak`; the sample is drawn anew from the same seed everywhere.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

import flour
import oven
from tests.flour.estimators.test_text import DOCUMENTS, SETTINGS
from tests.oven.codegen.test_text import CORPORA, DATA, WEIGHTS, bits, generated

WORDS: list[dict[str, Any]] = [
    {"ngram_range": several, "token_pattern": pattern, "stop_words": stop}
    for several, pattern, stop in product(
        [(1, 1), (1, 2), (2, 3)],
        [r"(?u)\b\w\w+\b", r"\w+", r"(?i)[a-zà-ÿ]{2,}|\d+"],
        [None, "english", ["the", "dog"]],
    )
]
CHARACTERS: list[dict[str, Any]] = [
    {"analyzer": analyzer, "ngram_range": several}
    for analyzer, several in product(["char", "char_wb"], [(1, 1), (3, 3), (2, 4)])
]
READING = [
    {**how, "strip_accents": accents, "lowercase": lower}
    for how, accents, lower in product(
        [*WORDS, *CHARACTERS], [None, "ascii", "unicode"], [True, False]
    )
]
WEIGHING = [
    {
        "binary": binary,
        "sublinear_tf": damped,
        "norm": norm,
        "use_idf": use,
        "smooth_idf": smooth,
        "dtype": dtype,
    }
    for binary, damped, norm, (use, smooth), dtype in product(
        [False, True],
        [False, True],
        ["l1", "l2", None],
        [(True, True), (True, False), (False, True)],
        [np.float32, np.float64],
    )
]
#: So many combinations by machine code: each is a stage to compile.
SAMPLE = 10


def few() -> list[str]:
    """Documents of every kind, as there are very many combinations."""
    return [*generated()[::20], *DOCUMENTS]


def fitted(how: dict[str, Any], documents: list[str]) -> TfidfVectorizer | None:
    """None where the library finds no word to learn, as among short documents without letters."""
    try:
        return TfidfVectorizer(**how).fit(documents)
    except ValueError:
        return None


@pytest.mark.soak
@pytest.mark.parametrize("place", range(len(READING)))
def test_all_combinations_by_definition(place: int) -> None:
    documents = few()
    for weighing in WEIGHING:
        how = READING[place] | weighing
        made = fitted(how, documents[::2])
        if made is not None:
            got = flour.from_sklearn(made).reference(documents)["features"]
            want = made.transform(documents)
            assert got.dtype == want.dtype, how
            assert (got != want).nnz == 0, how


def test_a_sample_of_combinations_by_machine_code() -> None:
    rng = np.random.default_rng(38)
    documents = few()
    held = 0
    for _ in range(SAMPLE):
        how = READING[rng.integers(len(READING))] | WEIGHING[rng.integers(len(WEIGHING))]
        made = fitted(how, documents[::2])
        if made is None:
            continue
        plan = oven.bake(flour.from_sklearn(made), exact=True)
        bits(plan, documents, made.transform(documents))
        held += 1
    assert held > SAMPLE // 2


@pytest.mark.soak
@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("setting", SETTINGS)
def test_whole_files(name: str, setting: str) -> None:
    """And over the generated texts, where there are no others."""
    documents = generated()
    if name != "generated":
        documents = (DATA / name).read_text(encoding="utf-8").split("\n")
    for weights in ({}, *WEIGHTS):
        made = TfidfVectorizer(**{**SETTINGS[setting], **weights}).fit(documents[::2])
        plan = oven.bake(flour.from_sklearn(made), exact=True)
        bits(plan, documents, made.transform(documents))
