"""Rows and documents in the wrappings of callers: the same answers by the shortest way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import flour
from flour.core.types import Record, Scalar, Text, Vector
from runtime import Runtime
from runtime.service.unwrap import unwrapped

DOCUMENT = "one two"


#: What holds no document, or more than one, or is for others to read.
OTHERS: tuple[Any, ...] = (
    *([], [[]], [None], [[1]], {}, {"Y": DOCUMENT}, None, 1, [DOCUMENT] * 2),
    *(np.array(DOCUMENT), np.array([[[DOCUMENT]]])),
)


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (DOCUMENT, DOCUMENT),
        ({"X": DOCUMENT}, DOCUMENT),
        ([DOCUMENT], [DOCUMENT]),
        ([[DOCUMENT]], [DOCUMENT]),
        ({"X": [[DOCUMENT]]}, [DOCUMENT]),
        (np.array([[DOCUMENT]]), [DOCUMENT]),
        (np.array([DOCUMENT], object), [DOCUMENT]),
        *((other, None) for other in OTHERS),
    ],
    ids=repr,
)
def test_documents(data: object, kept: object) -> None:
    assert unwrapped({"X": Text()}, data) == kept


def test_rows_lose_their_name_and_records_do_not() -> None:
    row = np.ones((1, 3))
    assert unwrapped({"X": Vector(3)}, {"X": row}) is row
    assert unwrapped({"X": Vector(3)}, {"Y": row}) is None
    record = Record((("X", Scalar("float64")),))
    assert unwrapped({"X": record}, {"X": 1.0}) is None


@pytest.mark.parametrize("data", [[DOCUMENT], [[DOCUMENT]], np.array([[DOCUMENT]])], ids=repr)
def test_one_document_is_a_block_of_one(data: Any) -> None:
    fit = make_pipeline(TfidfVectorizer(), LogisticRegression())
    fit.fit([DOCUMENT, "two three"], ["a", "b"])
    with Runtime() as runtime:
        runtime.register("texts", flour.from_sklearn(fit).plan())
        (name,) = runtime.find("texts").inputs
        for given in (data, {name: data}):
            answer = runtime.predict("texts", given)
            assert answer["label"].tolist() == ["a"]
            np.testing.assert_allclose(answer["probabilities"], fit.predict_proba([DOCUMENT]))
        assert runtime.predict("texts", {name: DOCUMENT})["label"] == "a"
