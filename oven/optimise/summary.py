"""Short texts of programs for traces and messages: shapes instead of numbers.

Linear[1x20](Divide[20](Subtract[20](X)))          one line, down to the inputs
%3 = Linear[1x20](%2) : Vector[1, float64]         a listing, a line for each node
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flour.core.chunked_array import Long, Pieces
from flour.core.node import Node, topological
from flour.core.op import Op
from flour.core.provenance import Origin
from flour.core.source import Source
from flour.core.types import Type
from objectstore import Blob, Strings

_LONGEST = 6


def brief(op: Op) -> str:
    """The operator's name and the shapes of its parameters."""
    if isinstance(op, Source):
        return op.label
    usual = type(op)._defaults  # noqa: SLF001 (what is at its default says nothing)
    said = {key: value for key, value in op.fields().items() if value not in ((), "")}
    facts = [_value(value) for key, value in said.items() if usual.get(key, ...) != value]
    return op.name + (f"[{', '.join(facts)}]" if facts else "")


def _value(value: object) -> str:
    match value:
        case Blob() | Pieces():
            return _array(value)
        case Strings():
            return f"{len(value)} texts"
        case Op():
            return brief(value)
        case tuple():
            shown = [_value(item) for item in value[:_LONGEST]]
            return "(" + ", ".join(shown) + (", ..." if len(value) > _LONGEST else "") + ")"
        case _ if isinstance(value, Type):
            return str(value)
    return str(value)


def _array(value: Long) -> str:
    # Column numbers and the like are structure: their values say more than their count.
    if value.dtype.kind in "iu" and value.array.ndim == 1 and value.array.size <= _LONGEST:
        return "{" + " ".join(map(str, value.array.tolist())) + "}"
    return "x".join(map(str, value.shape)) or "1"


def expression(item: Node, stops: Collection[Node] = ()) -> str:
    """The node as one line, down to the inputs or to `stops`, which are shown by their type."""
    texts: dict[Node, str] = {}
    stack = [item]
    while stack:
        current = stack[-1]
        if current in stops:
            texts[current] = str(current.type) if current.inputs else brief(current.op)
        waiting = [s for s in current.inputs if s not in texts] if current not in texts else []
        if waiting:
            stack += waiting
            continue
        if current not in texts:
            texts[current] = _applied(current, texts)
        stack.pop()
    return texts[item]


def _applied(item: Node, names: Mapping[Node, str]) -> str:
    inputs = ", ".join(names[source] for source in item.inputs)
    return brief(item.op) + (f"({inputs})" if item.inputs else "")


def listing(
    outputs: Mapping[str, Node], origins: Mapping[Node, tuple[Origin, ...]] | None = None
) -> str:
    """Every node on a line of its own, inputs first, then the outputs by name.

    With origins, every line ends with the steps the node comes from.
    """
    names: dict[Node, str] = {}
    lines = []
    for item in topological(outputs.values()):
        names[item] = f"%{len(names)}"
        steps = dict.fromkeys(
            origin.step for origin in (origins or {}).get(item, ()) if origin.step
        )
        where = f"  <- {', '.join(steps)}" if steps else ""
        lines.append(f"{names[item]} = {_applied(item, names)} : {item.type}{where}")
    lines += [f"{name} = {names[item]}" for name, item in outputs.items()]
    return "\n".join(lines)
