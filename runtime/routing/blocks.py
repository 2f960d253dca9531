"""Blocks whose rows several versions answer: values by row, the rows of a version, and one answer.

A block comes as a frame, a dict of columns, a list of dicts, or rows by position. Other forms are
None here, and refused where a row has to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from flour.core.rows import stacked, take_rows
from flour.data.arrow_strings import CELLS, as_texts
from runtime.errors import BadCall
from runtime.routing.pairs import Answers

#: The places of rows in a block.
Places = list[int]
#: Data of a caller, in one of many forms.
Block = Any


def rows_of(
    data: Block, wanted: Iterable[str], names: Sequence[str]
) -> list[dict[str, Any]] | None:
    """For each row of a block the wanted values by column; None where this is no such block.

    Rows without names have those of the model's columns, `names`.
    """
    if isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
        return [{name: row[name] for name in wanted if name in row} for row in data]
    columns = {
        name: column for name in wanted if (column := _column(data, name, names)) is not None
    }
    number = length(data)
    if number is None or any(len(column) != number for column in columns.values()):
        return None
    rows = zip(*columns.values(), strict=True) if columns else iter([()] * number)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def length(data: Block) -> int | None:
    """The number of rows a block has; None where that is not known."""
    if isinstance(data, Mapping):
        sizes = {len(column) for column in data.values() if _is_column(column)}
        whole = len(sizes) == 1 and all(map(_is_column, data.values()))
        return sizes.pop() if whole else None
    if hasattr(data, "num_rows"):
        return int(data.num_rows)
    if isinstance(data, str | bytes) or not hasattr(data, "__len__"):
        return None
    return len(data)


def _is_column(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1 or (value.ndim == 2 and value.shape[1] == 1)
    return isinstance(value, list | tuple) or hasattr(value, "iloc") or hasattr(value, "to_list")


def _column(data: Block, name: str, names: Sequence[str]) -> list[Any] | None:
    """The values of a column, if there is one of this name."""
    if hasattr(data, "num_rows"):
        known = data.schema.names
    elif isinstance(data, Mapping):
        known = data
    elif hasattr(data, "columns"):
        known = list(data.columns)
    else:
        known = getattr(data, "dtype", None) and data.dtype.names
    if known:
        return _listed(data[name]) if name in known else None
    return _by_position(data, list(names).index(name)) if name in names else None


def _by_position(data: Block, place: int) -> list[Any]:
    if isinstance(data, np.ndarray) and data.ndim > 1:
        return _listed(data[:, place])
    if len(data) and isinstance(data[0], list | tuple | np.ndarray):
        return [row[place] for row in data]
    return _listed(data)


def _listed(column: Block) -> list[Any]:
    if isinstance(column, np.ndarray):
        column = as_texts(column) if column.dtype is CELLS else column
        return list(column.reshape(-1).tolist())
    for way in ("to_list", "to_pylist"):  # of pandas and Polars, and of Arrow
        if hasattr(column, way):
            return list(getattr(column, way)())
    return list(column)


def taken(data: Block, places: Places) -> Any:
    """These rows of a block, in the same form."""
    if isinstance(data, Mapping):
        return {name: taken(column, places) for name, column in data.items()}
    if hasattr(data, "iloc"):
        return data.iloc[places]
    if hasattr(data, "num_rows") or hasattr(data, "to_pylist"):
        return data.take(places)
    if isinstance(data, list | tuple):
        return [data[place] for place in places]
    return data[places]


def merged(parts: Sequence[tuple[Places, Answers]]) -> Answers:
    """One answer to a block, of those of several versions to their rows."""
    order = np.concatenate([np.asarray(places, np.int64) for places, _ in parts])
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    answers: Answers = _joined("", [answers for _, answers in parts], back)
    return answers


def _joined(where: str, parts: list[Any], back: np.ndarray[Any, np.dtype[np.int64]]) -> Any:
    first = parts[0]
    if all(isinstance(part, Mapping) for part in parts):
        if any(set(part) != set(first) for part in parts):
            found = "; ".join(", ".join(map(str, part)) for part in parts)
            raise _differ(where, found)
        return {
            str(name): _joined(str(name), [part[name] for part in parts], back) for name in first
        }
    forms = {_form(part) for part in parts}
    if len(forms) > 1 or None in forms:
        raise _differ(where, ", ".join(str(getattr(part, "dtype", type(part))) for part in parts))
    return take_rows(stacked(parts), back)


def _form(part: object) -> object:
    """The kind that parts of one answer have in common; None for parts that cannot be joined."""
    if hasattr(part, "indptr"):
        return "sparse", part.shape[1]  # type: ignore[attr-defined]  # a matrix
    if isinstance(part, np.ndarray):
        return part.shape[1:], part.dtype.kind
    return list if isinstance(part, list) else None


def _differ(where: str, found: str) -> BadCall:
    return BadCall(
        "the versions that answer the rows of this block answer in different forms",
        where=where or "the outputs",
        found=found[:200],
        hint="route blocks by a header, or ask for the outputs that they have in common",
    )
