"""One row or a block: what a caller handed in, as the block that a plan runs on.

    input             one row                               a block of rows
    Vector            numpy vector, list of numbers         2-d array, list of lists, frame
    Record            dict of values, list by position      frame, dict of columns, list of dicts
    Text              str (or bytes)                        list of str
    Pairs             dict of values by any names           list of dicts
    Scalar, Category  a number, a str                       1-d array, list
    several inputs    {input: one row of it}                {input: a block of it}

Frames are pandas', polars' and Arrow's, found by what they can do (see flour.data.frames).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from flour.core.sparse import Sparse
from flour.core.types import Category, Pairs, Record, Scalar, Text, Tokens, Type, Vector, Whole
from flour.data.coerce import is_named
from flour.data.coerce_pairs import is_one_row
from flour.data.frames import frame_columns
from runtime.errors import UnexpectedColumn

Inputs = Mapping[str, Type]


def is_value(value: object) -> bool:
    """Whether this is one value and not a column of them."""
    return value is None or isinstance(value, str | bytes | bool | int | float | np.generic)


def as_block(inputs: Inputs, data: Any) -> tuple[Any, bool]:
    """The data as a block of rows, and whether it was one row."""
    if len(inputs) == 1:
        name, kind = next(iter(inputs.items()))
        if is_named(name, kind, data):
            data = data[name]
        return _part(kind, data)
    if not isinstance(data, Mapping) or not inputs.keys() <= data.keys():
        return data, False  # an error, which coerce words
    parts = {name: _part(kind, data[name]) for name, kind in inputs.items()}
    if all(single for _, single in parts.values()):
        return {name: block for name, (block, _) in parts.items()}, True
    return data, False


def _part(kind: Type, data: Any) -> tuple[Any, bool]:  # noqa: PLR0911 (one for each kind)
    match kind:
        case Vector():
            return _row(data)
        case Record():
            if isinstance(data, Mapping):
                single = bool(data) and all(map(is_value, data.values()))
                return (
                    ({name: [value] for name, value in data.items()}, True)
                    if single
                    else (
                        data,
                        False,
                    )
                )
            return _row(data)
        case Whole():
            return data, False
        case Text() | Scalar() | Category():
            return ([data], True) if is_value(data) else (data, False)
        case Pairs():
            return ([data], True) if is_one_row(data) else (data, False)
        case Tokens():
            single = isinstance(data, list | tuple) and bool(data)
            single = single and all(isinstance(word, str) for word in data)
            return ([data], True) if single else (data, False)


def _named(data: Mapping[str, Any]) -> tuple[Any, bool]:
    """A row given as values by name."""
    if data and all(map(is_value, data.values())):
        return {name: [value] for name, value in data.items()}, True
    return data, False


def _row(data: Any) -> tuple[Any, bool]:
    """A row given as a vector, or as a list of values."""
    if isinstance(data, np.ndarray):
        return (data[None], True) if data.ndim == 1 and not data.dtype.names else (data, False)
    if isinstance(data, list | tuple) and data and all(map(is_value, data)):
        return [data], True
    return data, False


def row_count(data: Any) -> int:
    """About how many rows a block has, at no cost; 0 where it cannot be told."""
    if isinstance(data, Mapping):
        data = next(iter(data.values()), None)
    shape = getattr(data, "shape", None)
    if shape:
        return int(shape[0])
    return len(data) if isinstance(data, Sequence) else int(getattr(data, "num_rows", 0))


def block_rows(data: Any, *, documents: bool) -> int:
    """How many rows there are in what is a block for certain, at a glance; 0 for all else."""
    if type(data) is dict:
        data = next(iter(data.values()), None)
        return len(data) if type(data) is np.ndarray and data.ndim else 0
    if type(data) is list:
        return len(data) if documents and data and type(data[0]) is str else 0
    return len(data) if type(data) is np.ndarray and data.ndim == 2 else 0


def refuse_extra(inputs: Inputs, data: Any) -> None:
    """Raise UnexpectedColumn for a column that the program was not fitted with."""
    if len(inputs) > 1:
        if isinstance(data, Mapping):
            _refuse(tuple(inputs), data, "$")
            for name, kind in inputs.items():
                _check(kind, data.get(name), f"$.{name}")
        return
    _check(next(iter(inputs.values())), data, "$")


def _check(kind: Type, data: Any, path: str) -> None:
    if not isinstance(kind, Record):
        return
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        for place, row in enumerate(data):
            if isinstance(row, Mapping):  # coerce says what is wrong with any other
                _refuse(kind.names, row, f"{path}[{place}]")
        return
    columns = frame_columns(data)
    # Data without one of the fitted names goes by position, where that is allowed.
    if columns is not None and not (kind.positional and not set(kind.names) <= set(columns)):
        _refuse(kind.names, columns, path)


def _refuse(known: Sequence[str], found: Mapping[str, object], path: str) -> None:
    extra = [name for name in found if name not in known]
    if extra:
        close = get_close_matches(str(extra[0]), known, 1)
        raise UnexpectedColumn(
            f"the program has no column {extra[0]!r}",
            where=f"{path}.{extra[0]}",
            found=", ".join(map(str, extra[:20])),
            hint=f"did you mean {close[0]!r}?" if close else "drop it, as before training",
        )


def first_row(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers for a block of one row as those for the row."""
    return {name: _only(value) for name, value in answers.items()}


def _only(value: Any) -> Any:
    if isinstance(value, Mapping):
        return first_row(value)
    if isinstance(value, Sparse):  # where there is no scipy
        return value.toarray()[0]
    first = value[0]
    return first.item() if isinstance(first, np.generic) else first
