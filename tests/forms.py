"""Every form in which rows of a frame may be handed in, and every way in which a plan is asked.

A frame's columns have types; Python's numbers, JSON and files have not. Whatever the form, the
answer is the original's for the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

DTYPES = ("float64", "float32", "int64", "int32", "int16", "uint8", "uint64", "bool")
Frame = Any


def frame_of(dtypes: tuple[str, ...], rows: int = 7, seed: int = 0) -> Frame:
    """A frame with a column of each of these types; all values are exact in all of them."""
    rng = np.random.default_rng(seed)
    columns = {}
    for place, dtype in enumerate(dtypes):
        numbers = rng.integers(0, 2 if dtype == "bool" else 9, rows)
        halves = rng.integers(-9, 9, rows) / 2.0 if dtype.startswith("float") else numbers
        cities = np.array(["Graz", "Łódź", "Cork"], object)[numbers % 3]
        name = f"c{place} {dtype}"
        columns[name] = cities if dtype == "string" else halves.astype(dtype)
    return pd.DataFrame(columns)


def _records(frame: Frame) -> list[dict[str, Any]]:
    return [dict(zip(frame.columns, row, strict=True)) for row in _lists(frame)]


def _lists(frame: Frame) -> list[list[Any]]:
    return [list(row) for row in zip(*(frame[c].tolist() for c in frame.columns), strict=True)]


def _scalars(frame: Frame) -> list[dict[str, Any]]:
    """Rows of numpy's own scalars."""
    arrays = {name: frame[name].to_numpy() for name in frame.columns}
    return [{name: values[i] for name, values in arrays.items()} for i in range(len(frame))]


def _arrow(frame: Frame) -> pa.Table | None:
    """As Arrow has it, which has no columns of mixed kinds, or of numbers beyond 64 bits."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, OverflowError):
        return None


def _numeric(frame: Frame) -> bool:
    return all(kind.kind in "biuf" for kind in frame.dtypes)


BLOCKS: dict[str, Callable[[Frame], Any]] = {
    "pandas frame": lambda f: f,
    "pandas frame, columns reversed": lambda f: f[list(reversed(f.columns))],
    "polars frame": lambda f: None if (table := _arrow(f)) is None else pl.from_arrow(table),
    "Arrow table": _arrow,
    "list of dicts": _records,
    "list of dicts, keys reversed": lambda f: [dict(reversed(r.items())) for r in _records(f)],
    "list of dicts of numpy's scalars": _scalars,
    "dict of lists": lambda f: {c: f[c].tolist() for c in f.columns},
    "dict of tuples": lambda f: {c: tuple(f[c].tolist()) for c in f.columns},
    "dict of arrays": lambda f: {c: f[c].to_numpy() for c in f.columns},
    "dict of arrays of one column": lambda f: {c: f[c].to_numpy()[:, None] for c in f.columns},
    "dict of strided arrays": lambda f: {c: np.repeat(f[c].to_numpy(), 2)[::2] for c in f.columns},
    "dict of columns": lambda f: {c: f[c] for c in f.columns},
    "list of lists": _lists,
    "list of tuples": lambda f: [tuple(row) for row in _lists(f)],
    "array of objects": lambda f: np.array(_lists(f), object),
    "array of numbers": lambda f: f.to_numpy(np.float64) if _numeric(f) else None,
    "array, by columns": lambda f: (
        np.asfortranarray(f.to_numpy(np.float64)) if _numeric(f) else None
    ),
}
"""Forms of a block, by name; None where this frame has no such form."""

ROWS: dict[str, Callable[[Frame, int], Any]] = {
    "dict": lambda f, i: _records(f)[i],
    "dict, keys reversed": lambda f, i: dict(reversed(_records(f)[i].items())),
    "dict of numpy's scalars": lambda f, i: _scalars(f)[i],
    "list": lambda f, i: _lists(f)[i],
    "tuple": lambda f, i: tuple(_lists(f)[i]),
    "array": lambda f, i: f.to_numpy(np.float64)[i] if _numeric(f) else None,
}
"""Forms of a single row."""


def blocks(frame: Frame) -> Iterator[tuple[str, Any]]:
    """Every form of the frame as a block."""
    for name, make in BLOCKS.items():
        data = make(frame)
        if data is not None:
            yield name, data


def single_rows(frame: Frame, row: int) -> Iterator[tuple[str, Any]]:
    """Every form of one of its rows."""
    for name, make in ROWS.items():
        data = make(frame, row)
        if data is not None:
            yield name, data


ODD: dict[str, float] = {"NaN": float("nan"), "infinity": float("inf"), "beyond float32": -1e39}
"""Values that training libraries refuse in some columns and take in others, by name."""


def with_value(frame: Frame, row: int, column: str, value: float) -> Frame:
    """The frame with another value in one place."""
    made = frame.copy()
    made.loc[made.index[row], column] = value
    return made
