"""A program to look at: as lines of text, as a Mermaid diagram, as a page of its own.

    in   x    Vector[3, float64]
    %1   Subtract(x, operand=[1.0, 2.0, 3.0])    Vector[3, float64]    train.py:12
    %2   Sum(%1)                                 float64               train.py:13
    out  output = %2

Every value has a number, in an order in which they can be computed; `in` and `out` say which are
the program's own. What made a value stands last: the step of an imported model, or file and line.

Inside `with hiding(columns)`, parameters of what is computed from these columns have no values:
fitted categories, words and means tell what the rows of the training held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from flour.core.chunked_array import Pieces
from flour.core.node import Node
from flour.core.provenance import Origin
from flour.core.source import Source
from flour.core.types import Record, Type
from flour.language.flow import Flow
from objectstore import Blob, Strings

_FEW = 4
_LONGEST = 60
#: Operators and fields that say which columns are read, and no values of them.
_READERS, _NAMES = frozenset({"Field", "Pick", "Narrow"}), frozenset({"label", "labels"})
_hidden: ContextVar[Collection[str]] = ContextVar("columns that are hidden", default=())


@contextmanager
def hiding(columns: Collection[str]) -> Iterator[None]:
    """Show programs without the values of parameters that come from these columns."""
    token = _hidden.set(columns)
    try:
        yield
    finally:
        _hidden.reset(token)


def computed_from(columns: Collection[str], nodes: Collection[Node]) -> set[Node]:
    """The nodes, of these with inputs first, that are computed from any of these columns."""
    found: set[Node] = set()
    for item in nodes if columns else ():
        narrows = item.op.name == "Narrow"
        read = () if narrows else (each for i in item.inputs for each in columns_read(item, i))
        own = isinstance(item.op, Source) and item.op.label in columns
        if own or not found.isdisjoint(item.inputs) or not set(columns).isdisjoint(read):
            found.add(item)
    return found


def columns_read(item: Node, record: Node) -> tuple[str, ...]:
    """The columns that a node takes out of one of its inputs; none where that is no record."""
    if not isinstance(record.type, Record):
        return ()
    label = getattr(item.op, "label", None)
    labels = getattr(item.op, "labels", None) if label is None else (label,)
    return tuple(map(str, record.type.names if labels is None else labels))


@dataclass(frozen=True)
class Line:
    """One value of a program, in words."""

    node: Node
    name: str
    operator: str
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    type: str
    places: tuple[Origin, ...]

    @property
    def call(self) -> str:
        """The operator applied to its inputs and parameters."""
        return f"{self.operator}({', '.join((*self.inputs, *self.parameters))})"

    @property
    def place(self) -> str:
        """Where it was made: the step of an imported model, else file and line."""
        shown = (origin.step or f"{origin.file}:{origin.line}" for origin in self.places)
        return ", ".join(dict.fromkeys(shown))


def lines(flow: Flow) -> list[Line]:
    """Every value of the program, inputs first, each before its readers."""
    order = sorted(flow.nodes(), key=lambda item: not isinstance(item.op, Source))
    names: dict[Node, str] = {}
    for item in order:
        number = len(names) - len(flow.inputs()) + 1
        names[item] = item.op.label if isinstance(item.op, Source) else f"%{number}"
    places, secret = flow.origins(), computed_from(_hidden.get(), flow.nodes())
    return [_line(item, names, places.get(item, ()), secret) for item in order]


def _line(
    item: Node, names: Mapping[Node, str], places: tuple[Origin, ...], secret: set[Node]
) -> Line:
    source = isinstance(item.op, Source)
    return Line(
        item,
        names[item],
        "in" if source else item.op.name,
        tuple(names[each] for each in item.inputs),
        () if source else _parameters(item, secret),
        type_of(item) if item in secret else str(item.type),
        places,
    )


def type_of(item: Node) -> str:
    """The type of a node; names of a record that was made may be of values, so it is its width."""
    made = _hidden.get() and isinstance(item.type, Record) and not isinstance(item.op, Source)
    return f"{len(item.type.names)} columns" if made else str(item.type)  # type: ignore[union-attr]  # a record


def _parameters(item: Node, secret: set[Node]) -> tuple[str, ...]:
    """The operator's parameters that differ from their defaults, as `name=value`."""
    op, told = item.op, item not in secret
    plain = type(op)._defaults  # noqa: SLF001 (what an operator may be made without)
    names = _NAMES if op.name in _READERS and secret.isdisjoint(item.inputs) else ()
    return tuple(
        f"{key}={described(value, _FEW if told or key in names else 0)}"
        for key, value in op.fields().items()
        if key not in plain or plain[key] != value
    )


def described(value: object, few: int = _FEW) -> str:  # noqa: PLR0911 (a case for each kind)
    """A parameter in a few characters: its values where there are so few, else its shape."""
    match value:
        case Blob() | Pieces():
            if value.array.size <= few:
                return _short(_numbers(value.array.tolist()))
            return f"{value.dtype.name}[{'x'.join(map(str, value.shape))}]"
        case Strings():
            return _short(str(value.to_list())) if len(value) <= few else f"{len(value)} texts"
        case tuple():
            more = [f"{len(value) - few} more"] if len(value) > few else []
            return _short(f"({', '.join([*map(described, value[:few]), *more])})")
        case _ if isinstance(value, Type):
            return str(value)
        case _ if not few and value is not None:
            return "…"
        case float():
            return _numbers(value)
    return _short(repr(value))


def _numbers(value: object) -> str:
    """Numbers to four digits, which is enough to recognise them."""
    if isinstance(value, list):
        return f"[{', '.join(map(_numbers, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "..."


# --- text ---------------------------------------------------------------------------------------


def text(flow: Flow) -> str:
    """The program as aligned lines."""
    rows = [
        ("in" if line.operator == "in" else line.name, _middle(line), line.type, line.place)
        for line in lines(flow)
    ]
    names = {line.node: line.name for line in lines(flow)}
    rows += [("out", f"{name} = {names[item]}", "", "") for name, item in flow.outputs.items()]
    widths = [min(max(len(row[column]) for row in rows), _LONGEST) for column in range(3)]
    padded = (
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]))
        for row in rows
    )
    return "\n".join(row.rstrip() for row in padded) + "\n"


def _middle(line: Line) -> str:
    return line.name if line.operator == "in" else line.call


# --- Mermaid --------------------------------------------------------------------------------------


def mermaid(flow: Flow) -> str:
    """The program as a Mermaid flow chart."""
    shown = lines(flow)
    keys = {line.node: f"n{place}" for place, line in enumerate(shown)}
    made = ["flowchart TD"]
    for line in shown:
        title = line.name if line.operator == "in" else line.operator
        parts = [title, *line.parameters, line.type, *([line.place] if line.place else [])]
        label = "<br/>".join(map(_quoted, parts))
        shape = f'(["{label}"])' if line.operator == "in" else f'["{label}"]'
        made.append(f"    {keys[line.node]}{shape}")
        made += [f"    {keys[each]} --> {keys[line.node]}" for each in line.node.inputs]
    for place, (name, item) in enumerate(flow.outputs.items()):
        made += [f'    o{place}(["{_quoted(name)}"])', f"    {keys[item]} --> o{place}"]
    return "\n".join(made) + "\n"


def _quoted(label: str) -> str:
    """Text that Mermaid takes literally."""
    named = {"&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;", "#": "&#35;"}
    return "".join(named.get(letter, letter) for letter in label)
