"""Private columns: what must not be seen of their values, and errors without values.

    runtime.register("fraud", plan, notes={"private": ("ssn",)})

Errors quote what they found, often shortened, so a value cannot be searched for in their texts. An
error of an endpoint with private columns says what its class means and which columns its text
names, and nothing else of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from flour.core.errors import FlourError, InputError
from flour.core.types import Record, Type
from objectstore import Explained
from runtime.errors import BadRegistration
from scheduler import SchedulerError

Hide = Callable[[object], object]

_HINT = "values are not shown, as this endpoint has private columns"


def drop(_value: object) -> None:
    """Put nothing in a value's place."""


def column_names(inputs: Mapping[str, Type]) -> set[str]:
    """The columns and the inputs of a program."""
    records = (kind.names for kind in inputs.values() if isinstance(kind, Record))
    return {*inputs, *(str(name) for names in records for name in names)}


def private_columns(
    notes: Mapping[str, object], inputs: Mapping[str, Type], owner: str
) -> frozenset[str]:
    """The private columns that the notes of a registration name."""
    given = notes.get("private", ())
    valid = isinstance(given, Iterable) and not isinstance(given, str)
    names = frozenset(map(str, given)) if valid and isinstance(given, Iterable) else frozenset()
    if not valid or not names <= column_names(inputs):
        unknown = sorted(names - column_names(inputs))
        raise BadRegistration(
            "private columns are columns of the program",
            where=owner,
            found=", ".join(unknown)[:200] if valid else repr(given)[:80],
            hint='notes={"private": ("ssn",)}',
        )
    return names


def redacted(error: BaseException, inputs: Mapping[str, Type]) -> BaseException:
    """The error without values, and without the errors it came from; another for foreign ones."""
    if isinstance(error, SchedulerError | MemoryError) or not isinstance(error, Exception):
        return error  # these say nothing of the data
    text = str(error)
    named = sorted(name for name in column_names(inputs) if repr(name) in text)
    where = "columns " + ", ".join(map(repr, named)) if named else None
    if not isinstance(error, Explained):
        kind = InputError if isinstance(error, ValueError) else FlourError
        return kind("a call failed", where=where, found=type(error).__name__, hint=_HINT)
    meaning = (type(error).__doc__ or "a call failed").partition("\n")[0].rstrip(".")
    error.what, error.where, error.found, error.hint = meaning, where, None, _HINT
    error.args = (meaning,)
    error.__cause__ = error.__context__ = None
    return error


def without(data: Any, private: Collection[str], hide: Hide = drop) -> Any:
    """Rows with `hide(value)` for the values of private columns; None where nothing has names."""
    if isinstance(data, Mapping):
        return {name: _part(name, part, private, hide) for name, part in data.items()}
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        return [without(row, private, hide) for row in data]
    return None


def _part(name: object, part: Any, private: Collection[str], hide: Hide) -> Any:
    if name in private:
        return _hidden(part, hide)
    rows = part if isinstance(part, list | tuple) else (part,)
    if any(isinstance(row, Mapping | list | tuple) for row in rows) or getattr(part, "ndim", 1) > 1:
        return without(part, private, hide)
    return part


def _hidden(part: Any, hide: Hide) -> Any:
    if isinstance(part, list | tuple):
        return [_hidden(each, hide) for each in part]
    return _hidden(part.tolist(), hide) if getattr(part, "ndim", 0) else hide(part)
