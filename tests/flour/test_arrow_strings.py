"""Strings read from Arrow's memory are the strings of the column, whoever holds it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oven
from flour.core.types import Category, Record, Text
from flour.data import pandas_blocks
from flour.data.arrow_reader import ArrowReader
from flour.data.arrow_strings import CELLS, LEAST_ROWS, as_texts, fill_views, text_cells
from flour.data.frame_reader import FrameReader
from flour.language.flow import Flow, source
from oven.plans.string_views import VIEWS

WORDS = ["Graz", "", "just 12 long", "a much longer name than that", "Łódź", "🥨", "\x00z", None]
Values = list[str | None]


def _views(values: Values) -> Any:
    return pa.array(values, pa.string()).cast(pa.string_view())


COLUMNS: dict[str, Callable[[Values], Any]] = {
    "string": lambda values: pa.array(values, pa.string()),
    "large_string": lambda values: pa.array(values, pa.large_string()),
    "string_view": _views,
    "chunks": lambda values: pa.chunked_array([values[:3], [], values[3:]], pa.string()),
    "part of an array": lambda v: pa.array(["x", None, *v, "y"], pa.string())[2 : len(v) + 2],
    "part of views": lambda v: _views(["x", None, *v, "y"])[2 : len(v) + 2],
    "polars": lambda values: pl.Series("s", values, pl.String),
    "polars in chunks": lambda values: pl.Series("s", values[:2], pl.String).append(
        pl.Series("s", values[2:], pl.String)
    ),
    "part of polars": lambda v: pl.Series("s", ["x", *v, "y"], pl.String)[1 : len(v) + 1],
}


@contextmanager
def read(*, by_native: bool) -> Iterator[None]:
    """Views are read by native code, or as before it is there."""
    VIEWS.make()
    with pytest.MonkeyPatch.context() as changed:
        if not by_native:
            changed.setattr(VIEWS, "_made", None)
            changed.setattr(VIEWS, "prepare", lambda: None)
        yield


@pytest.mark.parametrize("by_native", [True, False])
@pytest.mark.parametrize("held", COLUMNS)
@given(values=st.lists(st.sampled_from(WORDS) | st.text(max_size=20), max_size=12))
def test_cells_are_the_strings(held: str, values: Values, *, by_native: bool) -> None:
    with read(by_native=by_native):
        cells = text_cells(COLUMNS[held](values))
    assert cells is not None
    assert cells.dtype is CELLS
    assert as_texts(cells).tolist() == values
    assert as_texts(cells[1::2]).tolist() == values[1::2]


@pytest.mark.parametrize("held", COLUMNS)
def test_the_memory_lives_as_long_as_a_part_of_the_cells(held: str) -> None:
    values: Values = [f"a string that is in no view {place}" for place in range(5000)]
    cells = text_cells(COLUMNS[held](values))
    assert cells is not None
    part = cells[100:-100:7]
    del cells
    gc.collect()
    others = [COLUMNS[held](["o" * 40] * 5000) for _ in range(8)]
    assert as_texts(part).tolist() == values[100:-100:7]
    assert len(others) == 8


@pytest.mark.parametrize("by_native", [True, False])
def test_what_is_in_the_view_of_a_missing_string_does_not_matter(*, by_native: bool) -> None:
    long = "a string that is in no view"
    views = np.frombuffer(_views([long, None, long, "x"]).buffers()[1], np.int32).copy()
    views.reshape(4, 4)[1] = 1 << 30, -1, 1 << 30, -5  # a length, a buffer and a place of nothing
    texts = [pa.py_buffer(bytes([0b1101])), pa.py_buffer(views), pa.py_buffer(long.encode() * 2)]
    column = pa.Array.from_buffers(pa.string_view(), 4, texts, 1)
    with read(by_native=by_native):
        cells = text_cells(column)
    assert cells is not None
    assert as_texts(cells).tolist() == [long, None, long, "x"]


@pytest.mark.parametrize("by_native", [True, False])
@given(rows=st.lists(st.tuples(*[st.text(max_size=20)] * 3), min_size=1, max_size=9))
def test_columns_of_views_are_filled_one_after_another(
    rows: list[tuple[str, ...]], *, by_native: bool
) -> None:
    columns: list[Values] = [[row[place] for row in rows] for place in range(3)]
    made = [_views(column).buffers() for column in columns]
    # As DuckDB has them: an address in place of a buffer's number and a place in it.
    views = [np.frombuffer(each[1], np.int64)[: 2 * len(rows)].copy() for each in made]
    for words, (_, _, *texts) in zip(views, made, strict=True):
        for row in np.flatnonzero(words.view(np.int32)[::4] > 12):
            number, place = divmod(int(words[2 * row + 1]), 1 << 32)[::-1]
            words[2 * row + 1] = texts[number].address + place
    cells = np.empty((3, len(rows)), CELLS)
    with read(by_native=by_native):
        fill_views(cells.view(np.int64).reshape(-1, 2), [v.ctypes.data for v in views], None)
    assert [as_texts(column).tolist() for column in cells] == columns


@pytest.mark.parametrize(
    "column", [pa.array([1, 2]), pa.array([b"a"]), pl.Series([1.5]), ["a"], np.array(["a"])]
)
def test_what_is_no_column_of_strings(column: Any) -> None:
    assert text_cells(column) is None


def _program() -> Flow:
    x = source("x", Record((("city", Category("string")), ("review", Text()))))
    codes = x.field("city").one_hot(["Graz", "Łódź", "just 12 long"])
    counts = x.field("review").lower().tokenize(r"\w+").word_ngrams(["name", "longer", "é"], 1, 1)
    return codes.concat(counts).to_dense().linear([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]], [0.5])


FRAMES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "polars": pl.from_pandas,
    "Arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "Arrow's views": lambda frame: pa.table({name: _views([*frame[name]]) for name in frame}),
    "pandas, pyarrow": lambda frame: frame.astype(pd.StringDtype("pyarrow")),
    "pandas 3": lambda frame: frame.astype(pd.StringDtype("pyarrow", na_value=np.nan)),
}


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("missing", ["", "city", "review"])
def test_frames_answer_as_arrays_of_strings(library: str, missing: str) -> None:
    plan, rng = oven.bake(_program(), background=False), np.random.default_rng(5)
    table = {name: rng.choice(np.array(WORDS[:-1], object), 1100) for name in ("city", "review")}
    made = FRAMES[library](pd.DataFrame(table, dtype=object))
    (kind,) = plan.inputs.values()
    found = FrameReader(kind).read(made)  # type: ignore[arg-type]  # a record
    assert isinstance(found, dict)
    assert all(column.dtype is CELLS for column in found.values())
    want = plan.flow.reference(table)["output"]
    np.testing.assert_allclose(plan.run(made)["output"], want)
    native = plan.code.column_entry({}, lambda _: pytest.fail("handed on"))
    assert native is not None
    np.testing.assert_allclose(native(found)[0], want)
    assert plan.code.pack_rows(found) is not None
    if missing:
        table[missing][7] = None
        made = FRAMES[library](pd.DataFrame(table, dtype=object))
        assert _answer(plan.run, made) == _answer(plan.flow.reference, made)


def _answer(call: Callable[[Any], Any], data: Any) -> Any:
    try:
        return np.round(call(data)["output"], 9).tolist()
    except ValueError as problem:
        return str(problem)


@pytest.mark.parametrize("held", [name for name in COLUMNS if "polars" not in name])
@pytest.mark.parametrize("rows", [1, 2, LEAST_ROWS - 1, LEAST_ROWS])
def test_batches_of_few_rows_have_their_missing_values(held: str, rows: int) -> None:
    values = [*WORDS[::-1], *WORDS * LEAST_ROWS][:rows]
    column = COLUMNS[held](values)
    (batch,) = pa.table({"city": column}).combine_chunks().to_batches()
    found = ArrowReader({"city": Category()}).read(batch)
    assert [*(as_texts(found) if found.dtype is CELLS else found)] == values


@pytest.mark.parametrize(
    ("library", "least"),
    [("polars", LEAST_ROWS), ("Arrow", LEAST_ROWS), ("pandas, pyarrow", pandas_blocks.LEAST_ROWS)],
)
def test_few_rows_are_read_as_objects(library: str, least: int) -> None:
    plan = oven.bake(_program(), background=False)
    (kind,) = plan.inputs.values()
    frame = FRAMES[library](pd.DataFrame({"city": ["Graz"] * least, "review": ["é"] * least}))
    for rows, dtype in ((least, CELLS), (least - 1, np.dtype(object))):
        found = FrameReader(kind).read(frame[:rows])  # type: ignore[arg-type]  # a record
        assert isinstance(found, dict)
        assert {column.dtype for column in found.values()} == {dtype}
