"""Sources of programs: their named, typed inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flour.core.errors import FlourError, ParameterError
from flour.core.provenance import here
from flour.core.types import Category, Pairs, Record, Scalar, Text, Tokens, Type, Vector
from flour.language.flow import Flow, source

R = TypeVar("R")


def made_here(make: Callable[..., R], *facts: object) -> R:
    """A type, or an operator, with these facts; a mistake in them is the caller's."""
    try:
        return make(*facts)
    except FlourError as problem:
        problem.where = problem.where or str(here())
        raise


def vector(name: str, width: int, dtype: str = "float64", *, sparse: bool = False) -> Flow:
    """An input of `width` columns of one dtype."""
    return source(name, made_here(Vector, width, dtype, sparse))


def scalar(name: str, dtype: str = "float64") -> Flow:
    """An input of one number (or string) per row."""
    return source(name, made_here(Scalar, dtype))


def category(name: str, dtype: str = "string") -> Flow:
    """An input of one value out of an open set per row."""
    return source(name, made_here(Category, dtype))


def text(name: str = "text", encoding: str = "", errors: str = "strict") -> Flow:
    """An input of one document per row: str, and also bytes if an encoding is named."""
    return source(name, made_here(Text, encoding, errors))


def tokens(name: str = "tokens") -> Flow:
    """An input of one list of words per row."""
    return source(name, Tokens())


def pairs(name: str = "pairs", separator: str = "=", *, lenient: bool = False) -> Flow:
    """An input of one dict of any names per row, to numbers or strings."""
    return source(name, made_here(Pairs, separator, lenient))


def record(name: Any = "row", fields: Mapping[str, Any] | None = None, /, **columns: Any) -> Flow:
    """An input of named columns: record["age"] is one of them.

    Columns are given by type, or as `str`, `float`, `int`, `bool` or `flour.text`:
    `flour.record(age=float, city=str, note=flour.text)`.
    """
    more = {label: type_of(kind) for label, kind in columns.items()}
    return source(name, Record(_columns({**(fields or {}), **more} if more else fields)))


def type_of(kind: object) -> Any:
    """The type that is meant by a type, by one of Python's, or by `flour.text`."""
    if kind is text:
        return Text()
    return _PYTHON.get(kind, kind) if isinstance(kind, type) else kind


_PYTHON: Mapping[type, Type] = {
    str: Category(),
    float: Scalar(),
    int: Scalar("int64"),
    bool: Scalar("bool"),
}


def csv(columns: Mapping[str, Type], separator: str = ",", name: str = "csv") -> Flow:
    """An input of one CSV record per row, as a record of named columns."""
    pairs = _columns(columns)
    labels, kinds = tuple(label for label, _ in pairs), tuple(kind for _, kind in pairs)
    return source(name, Text()).parse_csv(labels, kinds, separator)


def _columns(fields: object) -> tuple[tuple[str, Type], ...]:
    """Named columns with their types, at least one."""
    pairs = tuple(fields.items()) if isinstance(fields, Mapping) else ()
    fine = all(isinstance(label, str) and isinstance(kind, Type) for label, kind in pairs)
    if not pairs or not fine:
        raise ParameterError.here(
            "columns are given as a dict from names to types",
            found=repr(fields)[:60],
            hint="{'age': flour.Scalar(), 'city': flour.Category()}",
        )
    return pairs


def concat(*flows: Flow) -> Flow:
    """The flows side by side, as one vector."""
    if not flows:
        hint = "flour.concat(one, another)"
        raise ParameterError.here("concat needs at least one flow", hint=hint)
    return flows[0].concat(*flows[1:])
