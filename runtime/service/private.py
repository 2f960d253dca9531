"""Private columns: what must not be seen of their values, and errors without values.

    runtime.register("fraud", plan, notes={"private": ("ssn",)})

Errors quote what they found, often shortened, so a value cannot be searched for in their texts. An
error of an endpoint with private columns says what its class means and which columns its text
names, and nothing else of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from flour.core.errors import FlourError, InputError
from flour.core.node import Node
from flour.core.source import Source
from flour.core.types import Record, Type
from flour.language.flow import Flow
from objectstore import Explained
from runtime.errors import BadRegistration
from scheduler import SchedulerError

Hide = Callable[[object], object]

_NOTE = "private"
_HINT = "values are not shown, as this endpoint has private columns"


class Guarded(Protocol):
    """A version, as far as privacy goes."""

    inputs: dict[str, Type]
    private: frozenset[str]


def drop(_value: object) -> None:
    """Put nothing in a value's place."""


def column_names(inputs: Mapping[str, Type]) -> set[str]:
    """The columns and the inputs of a program."""
    records = ((*kind.names, *kind.unread) for kind in inputs.values() if isinstance(kind, Record))
    return {*inputs, *(str(name) for names in records for name in names)}


def private_columns(
    notes: Mapping[str, object], inputs: Mapping[str, Type], owner: str
) -> frozenset[str]:
    """The private columns that the notes of a registration name."""
    for name in notes:
        if name != _NOTE and str(name).lower().startswith(_NOTE[:4]):
            raise BadRegistration(
                "a note that is spelt so hides nothing",
                where=owner,
                found=repr(name)[:80],
                hint='notes={"private": ("ssn",)}',
            )
    given = notes.get(_NOTE, ())
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


def passed_on(graph: Flow, private_of: Callable[[str], frozenset[str]]) -> frozenset[str]:
    """The columns of a graph that are private columns of the models in it.

    Where a model's columns are not found by their names, all that it is given is private.
    """
    found: set[str] = set()
    for item in graph.nodes():
        op: Any = item.op
        if op.name != "ModelCall" or not op.address or not (hidden := private_of(op.address)):
            continue
        given = [*zip(op.given, item.inputs, strict=False)]
        named = {name for name, _ in given if name}
        names = named.union(*(_kept_names(flow) for name, flow in given if not name))
        for name, flow in given:
            if not name and hidden <= names:
                found |= hidden & _kept_names(flow)
            elif name in hidden or not hidden <= names:
                found |= read_columns(flow)
    return frozenset(found & _columns_alone(graph.inputs()))


def _kept_names(item: Node) -> frozenset[str]:
    """The columns of a record that is passed on as it came, or of which some are picked."""
    source, kind = item.inputs[0] if item.op.name == "Narrow" else item, item.type
    if isinstance(source.op, Source) and isinstance(kind, Record):
        return frozenset(map(str, kind.names))
    return frozenset()


def _columns_alone(inputs: Mapping[str, Type]) -> set[str]:
    """The columns of a program, and the inputs that have none."""
    whole = {name for name, kind in inputs.items() if isinstance(kind, Record)}
    return column_names(inputs) - whole


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


def without(data: object, version: Guarded, hide: Hide = drop) -> Any:
    """Rows with `hide(value)` for private values, and without columns that are not the program's.

    None where nothing has names: values by their places are not told apart.
    """
    if isinstance(data, Mapping):
        known = column_names(version.inputs)
        named = ((name, part) for name, part in data.items() if name in known)
        return {name: _part(name, part, version, hide) for name, part in named}
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        return [without(row, version, hide) for row in data]
    return None


def _part(name: object, part: object, version: Guarded, hide: Hide) -> Any:
    if name in version.private:
        return _hidden(part, hide)
    rows = part if isinstance(part, list | tuple) else (part,)
    if any(isinstance(row, Mapping | list | tuple) for row in rows) or getattr(part, "ndim", 1) > 1:
        return without(part, version, hide)
    return part


def _hidden(part: object, hide: Hide) -> Any:
    if isinstance(part, list | tuple):
        return [_hidden(each, hide) for each in part]
    listed = getattr(part, "tolist", None)
    return _hidden(listed(), hide) if listed and getattr(part, "ndim", 0) else hide(part)


def read_columns(node: Node) -> frozenset[str]:
    """The columns and inputs that a node depends on; all of a record that is read as a whole."""
    found: set[str] = set()
    seen, left = {node}, [node]
    while left:
        item = left.pop()
        kind = item.type
        if isinstance(item.op, Source):
            found.add(item.op.label)
        if isinstance(kind, Record) and item is node:
            found.update(map(str, kind.names))
        for before in item.inputs:
            if isinstance(before.type, Record):
                found.update(_labels(item, before.type))
            if before not in seen:
                seen.add(before)
                left.append(before)
    return frozenset(found)


def _labels(item: Node, record: Record) -> Iterable[str]:
    """The columns that a node takes out of a record."""
    label = getattr(item.op, "label", None)
    labels = getattr(item.op, "labels", None) if label is None else (label,)
    return map(str, record.names if labels is None else labels)
