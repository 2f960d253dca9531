"""Rows of any names: mappings, or pairs of a name and a value, as lists of (name, number)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from numbers import Number
from typing import Any

from flour.errors import NotNumeric, WrongDtype
from flour.frames import is_sparse
from flour.types import Pairs

Row = list[tuple[str, float]]


def pair_rows(data: Any, kind: Pairs, path: str) -> list[Row]:
    """Every row's names with their numbers; a mapping alone is one row."""
    rows = [data] if isinstance(data, Mapping) else data
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable) or is_sparse(rows):
        found = type(rows).__name__
        raise WrongDtype("expected rows of named values", where=path, found=found, hint=_ROWS)
    return [_row(row, kind, f"{path}[{place}]") for place, row in enumerate(rows)]


_ROWS = 'one dict for each row, as in [{"city": "Rome", "age": 3}]'


def is_one_row(data: Any) -> bool:
    """Whether this is a row, and not a block of them."""
    if isinstance(data, Mapping):
        return True
    return isinstance(data, list | tuple) and bool(data) and all(map(_is_pair, data))


def is_block(data: Any) -> bool:
    """Whether a value under an input's name is a row or a block, and not itself a row's value."""
    if isinstance(data, str | bytes | Number) or not isinstance(data, Iterable):
        return False
    return isinstance(data, Mapping) or not all(isinstance(item, str) for item in data) or not data


def _is_pair(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)


def _row(row: Any, kind: Pairs, path: str) -> Row:
    if isinstance(row, Mapping):
        return [pair for name, value in row.items() for pair in _pairs(name, value, kind, path)]
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
        found = type(row).__name__
        raise WrongDtype("expected named values", where=path, found=found, hint=_ROWS)
    made: Row = []
    for place, item in enumerate(row):
        if not isinstance(item, list | tuple) or len(item) != 2:
            found = f"{type(item).__name__} {item!r}"[:60]
            where = f"{path}[{place}]"
            raise WrongDtype("expected a name and a value", where=where, found=found, hint=_ROWS)
        made += _pairs(item[0], item[1], kind, path)
    return made


def _pairs(name: Any, value: Any, kind: Pairs, path: str) -> Iterator[tuple[str, float]]:
    """A name's number, or a one for each string that it has."""
    if not isinstance(name, str):
        found = f"{type(name).__name__} {name!r}"[:60]
        raise WrongDtype("names are strings", where=path, found=found, hint=_ROWS)
    if isinstance(value, str):
        yield f"{name}{kind.separator}{value}", 1.0
    elif isinstance(value, Number):
        yield name, _number(value, f"{path}.{name}")
    elif kind.lenient and value is None:
        yield name, float("nan")
    elif kind.lenient and isinstance(value, Iterable) and not isinstance(value, Mapping):
        for item in value:
            if not isinstance(item, str):
                raise _odd(item, f"{path}.{name}", "several values of a name are strings")
            yield f"{name}{kind.separator}{item}", 1.0
    else:
        raise _odd(value, f"{path}.{name}", "expected a number or a string")


def _number(value: Any, path: str) -> float:
    try:
        return float(value)
    except (TypeError, OverflowError):
        raise _odd(value, path, "expected a number that a float64 holds") from None


def _odd(value: object, path: str, what: str) -> NotNumeric:
    found = f"{type(value).__name__} {str(value)[:40]!r}"
    return NotNumeric(what, where=path, found=found, hint="convert it, as before training")
