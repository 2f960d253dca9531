"""Inputs of a graph's plan as one record of a row: the form that a plan's entry takes at once.

Columns are those of the graph's own records, numbers and strings by their name, and vectors column
by column. A plan that reads one vector or one document takes it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flour.core.node import Node, node, rebuild, topological
from flour.core.op import REGISTRY, Columns
from flour.core.source import Source
from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from flour.language.flow import Flow

ROW = "row"
#: Wider vectors are passed as they are.
WIDEST = 64


def name_of(item: Node) -> str:
    """Name of a value among the inputs and outputs of plans."""
    return item.op.label if isinstance(item.op, Source) else f"~{item.digest}"


@dataclass(frozen=True)
class CallForm:
    """The form in which a plan gets its inputs."""

    reads: tuple[Node, ...]
    #: Each column of the record: its name, the value that it is of, its column or number there.
    columns: tuple[tuple[str, Node, str | int | None], ...] = ()
    #: The one vector or document that it reads.
    only: Node | None = None

    @property
    def is_row(self) -> bool:
        """True if a row of it is a dict or a single value."""
        return bool(self.columns) or self.only is not None

    def block(self, given: Mapping[str, Columns]) -> Columns:
        """The `given` values as a plan of this form takes them by its entry."""
        (inside,) = given.values()
        documents = self.only is not None and isinstance(self.only.type, Text)
        return list(inside) if documents else inside

    def given(self, values: Mapping[Node, Columns]) -> dict[str, Columns]:
        """The inputs of the plan, from the values that it reads."""
        if not self.columns:
            return {name_of(item): values[item] for item in self.reads}
        return {ROW: {name: _part(values[item], at) for name, item, at in self.columns}}


def _part(value: Columns, at: str | int | None) -> Columns:
    if at is None:
        return value
    return value[at] if isinstance(at, str) else value[:, at]


def program_of(
    reads: Sequence[Node], gives: Sequence[Node], origins: Mapping[Node, Any]
) -> tuple[dict[str, Node], dict[Node, Any], CallForm]:
    """The program that gives these values of those, where its nodes come from, and its form."""
    form = _form(reads, gives)
    row = _row(form)
    borders = set(reads)
    by_value: dict[Node, list[str]] = {}
    for name, item, _ in form.columns:
        by_value.setdefault(item, []).append(name)
    notes: dict[Node, Any] = {}

    def change(old: Node, inputs: tuple[Node, ...]) -> Node:
        if old in borders:
            # What stands for a value that a plan reads.
            if row is None:
                return node(Source(name_of(old), old.type), ())
            if isinstance(old.type, Record):
                return row
            if isinstance(old.type, Vector):
                return node(REGISTRY["Pick"](tuple(by_value[old])), [row])
            return node(REGISTRY["Field"](by_value[old][0]), [row])
        moved = node(old.op, inputs)
        notes[moved] = origins.get(old, ())
        return moved

    made = _rebuilt(gives, borders, change)
    return dict(zip(map(name_of, gives), made, strict=True)), notes, form


def _rebuilt(gives: Sequence[Node], borders: set[Node], change: Any) -> list[Node]:
    """Rebuild nodes without looking at anything before a border."""
    cut = Flow({str(n): item for n, item in enumerate(gives)})
    if not borders:
        return rebuild(cut.outputs.values(), change)
    done: dict[Node, Node] = {}

    def visit(root: Node) -> Node:
        stack = [root]
        while stack:
            item = stack[-1]
            waits = [] if item in borders else [i for i in item.inputs if i not in done]
            if waits:
                stack.extend(waits)
                continue
            stack.pop()
            if item not in done:
                read = () if item in borders else tuple(done[source] for source in item.inputs)
                done[item] = change(item, read)
        return done[root]

    return [visit(item) for item in gives]


def _row(form: CallForm) -> Node | None:
    if not form.columns:
        return None
    fields = tuple((name, _type(item, at)) for name, item, at in form.columns)
    return node(Source(ROW, Record(fields)), ())


def _type(item: Node, at: str | int | None) -> Type:
    if isinstance(item.type, Record) and isinstance(at, str):
        return item.type[at]
    return Scalar(item.type.dtype) if isinstance(item.type, Vector) else item.type


def _form(reads: Sequence[Node], gives: Sequence[Node]) -> CallForm:
    whole = CallForm(tuple(reads))
    kinds = [item.type for item in reads]
    sparse = [isinstance(kind, Vector) and kind.sparse for kind in kinds]
    if len(reads) == 1 and isinstance(kinds[0], Vector | Text) and not sparse[0]:
        return CallForm(tuple(reads), only=reads[0])
    columns: list[tuple[str, Node, str | int | None]] = []
    for item in reads:
        found = _columns(item, gives)
        if found is None:
            return whole
        columns += found
    names = [name for name, _, _ in columns]
    fine = names and len(set(names)) == len(names)
    return CallForm(tuple(reads), tuple(columns)) if fine else whole


def _columns(item: Node, gives: Sequence[Node]) -> list[tuple[str, Node, str | int | None]] | None:
    """The columns that a value becomes; None for one that stays whole."""
    kind = item.type
    if isinstance(kind, Record):
        return _picked(item, gives)
    if isinstance(kind, Vector):
        if kind.sparse or kind.width > WIDEST or kind.dtype == "string":
            return None
        return [(f"{name_of(item)}.{j}", item, j) for j in range(kind.width)]
    return [(name_of(item), item, None)] if isinstance(kind, Scalar | Category | Text) else None


def _picked(record: Node, gives: Sequence[Node]) -> list[tuple[str, Node, str | int | None]] | None:
    """The columns of a record that are read one by one; None where it is read as a whole."""
    found: dict[str, None] = {}
    for item in topological(gives):
        if record in item.inputs:
            op: Any = item.op
            if op.name not in ("Field", "Pick"):
                return None
            found.update(dict.fromkeys([op.label] if op.name == "Field" else op.labels))
    simple = Scalar | Category | Text
    assert isinstance(record.type, Record), "it is a record"
    if not all(isinstance(record.type[name], simple) for name in found):
        return None
    return [(name, record, name) for name in found]
