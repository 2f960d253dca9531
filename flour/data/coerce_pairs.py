"""Rows of any names: mappings, or pairs of a name and a value, as lists of (name, number)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral, Number
from typing import Any

import numpy as np

from flour.core.errors import NotNumeric, WrongDtype
from flour.core.types import Pairs
from flour.data.frames import is_sparse

Row = list[tuple[str, float]]


def pair_rows(data: object, kind: Pairs, path: str) -> list[Row]:
    """Every row's names with their numbers; a single mapping is one row."""
    rows = [data] if isinstance(data, Mapping) else data
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable) or is_sparse(rows):
        found = type(rows).__name__
        raise WrongDtype("expected rows of named values", where=path, found=found, hint=_ROWS)
    return [_row(row, kind, f"{path}[{i}]") for i, row in enumerate(rows)]


_ROWS = 'one dict for each row, as in [{"city": "Rome", "age": 3}]'


def is_one_row(data: object) -> bool:
    """True if this is one row rather than a block of rows."""
    if isinstance(data, Mapping):
        return True
    return isinstance(data, list | tuple) and bool(data) and all(map(_is_pair, data))


def is_block(data: object) -> bool:
    """True if a value under an input's name is a row or a block, and not itself a row's value."""
    if isinstance(data, str | bytes | Number) or not isinstance(data, Iterable):
        return False
    return isinstance(data, Mapping) or not all(isinstance(item, str) for item in data) or not data


def _is_pair(item: object) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str)


def _row(row: object, kind: Pairs, path: str) -> Row:
    if kind.keys:
        if type(row) is dict and (plain := _plain(row, kind.keys)) is not None:
            return plain
        items = row.items() if isinstance(row, Mapping) else row
        if not isinstance(items, Iterable) or not all(map(_is_couple, items)):
            raise WrongDtype("expected a map", where=path, found=type(row).__name__, hint=_MAPS)
        return [(_key(key, kind.keys, path), _value(v, f"{path}.{key}")) for key, v in items]
    if isinstance(row, Mapping):
        return [pair for name, value in row.items() for pair in _pairs(name, value, kind, path)]
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
        found = type(row).__name__
        raise WrongDtype("expected named values", where=path, found=found, hint=_ROWS)
    pairs: Row = []
    for i, item in enumerate(row):
        if not isinstance(item, list | tuple) or len(item) != 2:
            found = f"{type(item).__name__} {item!r}"[:60]
            where = f"{path}[{i}]"
            raise WrongDtype("expected a name and a value", where=where, found=found, hint=_ROWS)
        pairs += _pairs(item[0], item[1], kind, path)
    return pairs


def _plain(row: dict[Any, Any], keys: str) -> Row | None:
    """The map of a dict whose keys and values have Python's own types, checked by type alone."""
    names: Iterable[str] = row
    if not _NUMBERS.issuperset(map(type, row.values())):
        return None
    if keys == "string":
        if not _TEXTS.issuperset(map(type, row)):
            return None
    elif not _WHOLES.issuperset(map(type, row)) or (row and max(map(abs, row)) >= _MOST):
        return None
    else:
        names = map(str, row)
    try:
        return list(zip(names, map(float, row.values()), strict=True))
    except OverflowError:
        return None


_NUMBERS, _TEXTS, _WHOLES = frozenset((float, int, bool)), frozenset((str,)), frozenset((int,))
_MAPS = "a dict from the model's keys to numbers"


def _is_couple(item: object) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2


def _key(key: object, keys: str, path: str) -> str:
    """A key as a name: whole numbers by their digits, as which JSON has them, too."""
    whole = isinstance(key, str) and _WHOLE.fullmatch(key) and -_MOST <= int(key) < _MOST
    if isinstance(key, str) and (keys == "string" or whole):
        return key
    if keys == "int64" and isinstance(key, Integral) and -_MOST <= int(key) < _MOST:
        return str(int(key))
    found = f"{type(key).__name__} {key!r}"[:60]
    raise WrongDtype(f"the map's keys are {keys}", where=path, found=found, hint=_MAPS)


_MOST = 1 << 63


_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


def _value(value: object, path: str) -> float:
    if not isinstance(value, Number | np.bool_):
        raise _odd(value, path, "expected a number")
    return _number(value, path)


def _pairs(name: object, value: object, kind: Pairs, path: str) -> Iterator[tuple[str, float]]:
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
