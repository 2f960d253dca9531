"""A program to look at: as lines of text, as a Mermaid diagram, as a page of its own.

    in   x    Vector[3, float64]
    %1   Subtract(x, operand=[1.0, 2.0, 3.0])    Vector[3, float64]    train.py:12
    %2   Sum(%1)                                 float64               train.py:13
    out  output = %2

Every value has a number, in an order in which they can be computed; `in` and `out` say which are
the program's own. What made a value stands last: the step of an imported model, or file and line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flour.core.chunked_array import Pieces
from flour.core.hidden import computed_from_hidden
from flour.core.node import Node
from flour.core.op import Op
from flour.core.provenance import Origin
from flour.core.source import Source
from flour.core.types import Type
from flour.language.flow import Flow
from objectstore import Blob, Strings

_FEW = 4
_LONGEST = 60
#: Operators and fields that say which columns are read, and no values of them.
_READERS, _NAMES = frozenset({"Field", "Pick", "Narrow"}), frozenset({"label", "labels"})


@dataclass(frozen=True)
class ShownValue:
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
        """Its origin: the step of an imported model, else file and line."""
        shown = (origin.step or f"{origin.file}:{origin.line}" for origin in self.places)
        return ", ".join(dict.fromkeys(shown))


def lines(flow: Flow) -> list[ShownValue]:
    """Every value of the program, inputs first, each before its readers."""
    order = sorted(flow.nodes(), key=lambda item: not isinstance(item.op, Source))
    names: dict[Node, str] = {}
    for item in order:
        number = len(names) - len(flow.inputs()) + 1
        names[item] = item.op.label if isinstance(item.op, Source) else f"%{number}"
    places, secret = flow.origins(), computed_from_hidden(order)
    return [_line(item, names, places.get(item, ()), item in secret) for item in order]


def _line(
    item: Node,
    names: Mapping[Node, str],
    places: tuple[Origin, ...],
    secret: bool,  # noqa: FBT001 (a fact of the node)
) -> ShownValue:
    source = isinstance(item.op, Source)
    return ShownValue(
        item,
        names[item],
        "in" if source else item.op.name,
        tuple(names[each] for each in item.inputs),
        () if source else parameters(item.op, secret=secret),
        str(item.type),
        places,
    )


def parameters(op: Op, *, secret: bool = False) -> tuple[str, ...]:
    """The operator's parameters that differ from their defaults, as `name=value`.

    With `secret`, sizes stand in the place of values.
    """
    plain = type(op)._defaults  # noqa: SLF001 (what an operator may be made without)
    told = _NAMES if op.name in _READERS else ()
    return tuple(
        f"{key}={described(value, 0 if secret and key not in told else _FEW)}"
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
        (
            *(("in", line.name) if line.operator == "in" else (line.name, line.call)),
            line.type,
            line.place,
        )
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
