"""What a caller passed is classified once: its form, how many rows, and whether it is one row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from flour.core.types import Category, Pairs, Record, Scalar, Text, Tokens, Type, Vector, Whole
from flour.data.batch import DOCUMENT, Batch, BatchReader, Form

VECTOR: dict[str, Type] = {"x": Vector(2)}
RECORD: dict[str, Type] = {"row": Record((("a", Scalar("float64")), ("b", Category("string"))))}
TEXT: dict[str, Type] = {"t": Text()}
VALUES: dict[str, Type] = {"a": Scalar("float64"), "b": Category("string")}
MIXED: dict[str, Type] = {"x": Vector(2), "w": Scalar("float64")}
ROW, BLOCK = np.ones(2), np.ones((3, 2))
COLUMNS = {"a": np.ones(3), "b": np.array(["x"] * 3, object)}

CASES: dict[str, tuple[dict[str, Type], object, Form, int, bool]] = {
    "vector": (VECTOR, ROW, Form.ROW, 1, True),
    "list": (VECTOR, [1.0, 2], Form.ROW, 1, True),
    "tuple with a hole": (VECTOR, (None, 2.0), Form.ROW, 1, True),
    "numpy's numbers": (VECTOR, [np.float16(1), 2], Form.ROW, 1, True),
    "list that is no row": (VECTOR, [1.0, [2.0]], Form.GENERAL, 2, False),
    "named row": (VECTOR, {"x": ROW}, Form.ROW, 1, True),
    "block": (VECTOR, BLOCK, Form.ARRAYS, 3, False),
    "named block": (VECTOR, {"x": BLOCK}, Form.ARRAYS, 3, False),
    "no rows": (VECTOR, BLOCK[:0], Form.ARRAYS, 0, False),
    "lists": (VECTOR, BLOCK.tolist(), Form.ARRAYS, 3, False),
    "lists of other lengths": (VECTOR, [[1.0, 2.0], [1.0]], Form.GENERAL, 2, False),
    "lists that are too long": (VECTOR, [[1.0, 2.0, 3.0]], Form.GENERAL, 1, False),
    "lists of objects": (VECTOR, [[1.0, None]], Form.GENERAL, 1, False),
    "empty list": (VECTOR, [], Form.GENERAL, 0, False),
    "number": (VECTOR, 1.0, Form.GENERAL, 0, False),
    "three dimensions": (VECTOR, np.ones((4, 2, 2)), Form.GENERAL, 4, False),
    "frame": (VECTOR, pd.DataFrame(BLOCK), Form.ARRAYS, 3, False),
    "frame of objects": (VECTOR, pd.DataFrame(BLOCK.astype(object)), Form.GENERAL, 3, False),
    "frame of columns": (RECORD, pd.DataFrame(COLUMNS), Form.ARRAYS, 3, False),
    "frame with more": (RECORD, pd.DataFrame({**COLUMNS, "c": 1}), Form.ARRAYS, 3, False),
    "dict row": (RECORD, {"b": "x", "a": 1}, Form.ROW, 1, True),
    "row by position": (RECORD, [1, "x"], Form.ROW, 1, True),
    "dict row with more": (RECORD, {"b": "x", "a": 1, "c": 2}, Form.ROW, 1, True),
    "columns": (RECORD, COLUMNS, Form.ARRAYS, 3, False),
    "columns as lists": (RECORD, {"a": [1, 2], "b": ["x", "y"]}, Form.ROWS, 2, False),
    "a value and a column": (RECORD, {"a": 1, "b": ["x"]}, Form.GENERAL, 0, False),
    "dicts": (RECORD, [{"a": 1, "b": "x"}], Form.ROWS, 1, False),
    "lists by position": (RECORD, [[1, "x"], [2, "y"]], Form.ROWS, 2, False),
    "structured row": (RECORD, np.ones(3, [("a", float), ("b", float)]), Form.GENERAL, 3, False),
    "document": (TEXT, "word", Form.DOCUMENT, 1, True),
    "bytes": (TEXT, b"word", Form.DOCUMENT, 1, True),
    "named document": (TEXT, {"t": "word"}, Form.DOCUMENT, 1, True),
    "documents": (TEXT, ["word", "word"], Form.DOCUMENTS, 2, False),
    "array of documents": (TEXT, np.array(["a", "b"]), Form.GENERAL, 2, False),
    "objects of documents": (TEXT, np.array(["a", "b"], object), Form.DOCUMENTS, 2, False),
    "several inputs' values": (VALUES, {"a": 1.0, "b": "x"}, Form.ROW, 1, True),
    "several inputs' columns": (VALUES, COLUMNS, Form.ARRAYS, 3, False),
    "several inputs, a row": (MIXED, {"x": ROW, "w": 1.0}, Form.GENERAL, 1, True),
    "several inputs, a block": (MIXED, {"x": BLOCK, "w": np.ones(3)}, Form.ARRAYS, 3, False),
    "several inputs, one missing": (MIXED, {"x": [ROW]}, Form.GENERAL, 1, False),
    "scalar": ({"s": Scalar("float64")}, {"s": 1.0}, Form.GENERAL, 1, True),
    "scalars": ({"s": Scalar("float64")}, ROW, Form.GENERAL, 2, False),
    "pairs": ({"p": Pairs()}, {"city": "Rome"}, Form.GENERAL, 1, True),
    "tokens": ({"w": Tokens()}, ["a", "b"], Form.GENERAL, 1, True),
    "tokens of two rows": ({"w": Tokens()}, [["a"], ["b"]], Form.GENERAL, 2, False),
    "whole": ({"v": Whole("tensor(float)")}, ROW, Form.GENERAL, 2, False),
}


@pytest.mark.parametrize("case", CASES)
def test_the_form_of_a_batch(case: str) -> None:
    inputs, data, kind, rows, single = CASES[case]
    batch = BatchReader(inputs).read(data)
    assert (batch.kind, batch.rows, batch.single) == (kind, rows, single)


@pytest.mark.parametrize(
    ("inputs", "row", "block"),
    [
        (VECTOR, ROW.tolist(), [ROW.tolist()]),
        (VECTOR, {"x": [1.0, 2.0]}, [[1.0, 2.0]]),
        (RECORD, {"a": 1, "b": "x"}, {"a": [1], "b": ["x"]}),
        (TEXT, "word", ["word"]),
        (VALUES, {"a": 1.0, "b": "x"}, {"a": [1.0], "b": ["x"]}),
        (MIXED, {"x": [1.0, 2.0], "w": 1.0}, {"x": [[1.0, 2.0]], "w": [1.0]}),
        ({"p": Pairs()}, {"city": "Rome"}, [{"city": "Rome"}]),
    ],
)
def test_a_row_as_a_block_of_one(inputs: dict[str, Type], row: Any, block: Any) -> None:
    batch = BatchReader(inputs).read(row)
    assert batch.block == block
    assert batch.as_block == Batch(Form.GENERAL, block, 1, single=False)
    np.testing.assert_equal(BatchReader(inputs).read(block).block, block)


def test_a_vector_as_a_block_of_one_is_a_view() -> None:
    block = BatchReader(VECTOR).read(ROW).block
    assert block.shape == (1, 2)
    assert block.base is ROW
    batch = BatchReader(VECTOR).read(BLOCK)
    assert batch.block is BLOCK
    assert batch.as_block is batch


@pytest.mark.parametrize(
    ("inputs", "data", "has_dtype"),
    [
        (VECTOR, ROW, True),
        (VECTOR, {"x": BLOCK}, True),
        (RECORD, COLUMNS, True),
        (VECTOR, [1.0, 2.0], False),
        (RECORD, {"a": 1, "b": "x"}, False),
        (TEXT, "word", False),
    ],
)
def test_arrays_have_dtypes(inputs: dict[str, Type], data: object, *, has_dtype: bool) -> None:
    assert BatchReader(inputs).read(data).has_dtype is has_dtype


def test_the_size_of_documents_counts_each() -> None:
    sizes = [BatchReader(TEXT).read(each).characters for each in ("word", ["word", ""], ["w", 7])]
    assert sizes == [DOCUMENT + 4, 2 * DOCUMENT + 4, 0]
    assert BatchReader(VECTOR).read(ROW).characters == 0
