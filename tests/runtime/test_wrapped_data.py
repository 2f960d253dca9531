"""Rows and documents in the wrappings of callers are the same batches, and get the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import flour
import oven
from flour.core.types import Record, Scalar, Text, Vector
from flour.data.batch import BatchReader, Form
from runtime import Runtime

DOCUMENT = "one two"


#: What holds no document, or has to be coerced.
OTHERS: tuple[Any, ...] = (
    *([], [[]], [None], [[1]], [[DOCUMENT]], {}, {"Y": DOCUMENT}, None, 1),
    *(np.array(DOCUMENT), np.array([[[DOCUMENT]]])),
)


@pytest.mark.parametrize(
    ("data", "unwrapped"),
    [
        (DOCUMENT, DOCUMENT),
        ({"X": DOCUMENT}, DOCUMENT),
        ([DOCUMENT], [DOCUMENT]),
        ([DOCUMENT] * 2, [DOCUMENT] * 2),
        (np.array([[DOCUMENT]]), [DOCUMENT]),
        (np.array([DOCUMENT], object), [DOCUMENT]),
        *((other, None) for other in OTHERS),
    ],
    ids=repr,
)
def test_documents(data: object, unwrapped: object) -> None:
    batch = BatchReader({"X": Text()}).read(data)
    if unwrapped is None:
        assert batch.kind is Form.GENERAL
        return
    assert batch.data == unwrapped
    assert batch.kind is (Form.DOCUMENT if unwrapped == DOCUMENT else Form.DOCUMENTS)
    assert (batch.single, batch.rows) == (unwrapped == DOCUMENT, len(batch.block))


def test_rows_lose_their_name_and_records_do_not() -> None:
    row = np.ones(3)
    batch = BatchReader({"X": Vector(3)}).read({"X": row})
    assert batch.data is row
    assert (batch.kind, batch.single) == (Form.ROW, True)
    assert BatchReader({"X": Vector(3)}).read({"Y": row}).kind is Form.GENERAL
    record = Record((("X", Scalar("float64")),))
    assert BatchReader({"X": record}).read({"X": 1.0}) == (Form.ROW, {"X": 1.0}, 1, True)


@pytest.mark.parametrize("data", [[DOCUMENT], np.array([[DOCUMENT]])], ids=repr)
def test_one_document_is_a_block_of_one(data: Any) -> None:
    fit = make_pipeline(TfidfVectorizer(), LogisticRegression())
    fit.fit([DOCUMENT, "two three"], ["a", "b"])
    with Runtime() as runtime:
        runtime.register("texts", oven.bake(flour.from_sklearn(fit)))
        (name,) = runtime.endpoints.find("texts").inputs
        for given in (data, {name: data}):
            answer = runtime.predict("texts", given)
            assert answer["label"].tolist() == ["a"]
            np.testing.assert_allclose(answer["probabilities"], fit.predict_proba([DOCUMENT]))
        assert runtime.predict("texts", {name: DOCUMENT})["label"] == "a"
