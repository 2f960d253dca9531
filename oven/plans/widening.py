"""Whether a program answers float32 rows as it answers the same numbers in float64, to the bit.

Trees do: they only compare. Then rows in float32 need no plan of their own to be answered at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from flour.core.node import Node
from flour.core.source import Source
from flour.core.types import Type, Vector
from flour.language.flow import Flow

# By name, as programs have few of them, and the others need not be imported.
#: Operators that hand numbers on as they are.
CARRYING = frozenset({"AsFloat", "AsVector", "Concat", "Element", "RequireFinite", "Select"})
#: Operators that only compare the numbers they read.
COMPARING = frozenset({"TreeLeaves", "Trees"})


def widens_exactly(flow: Flow, kinds: Mapping[str, Type]) -> bool:
    """Whether a program gives the same bits for inputs of these types, made float64 or not."""
    own = flow.inputs()
    narrow = {name for name, kind in kinds.items() if kind != own[name]}
    for name in narrow:
        kind = own[name]
        if not isinstance(kind, Vector) or kinds[name] != kind.having(dtype="float32"):
            return False
        if kind.dtype != "float64":
            return False
    carried: set[Node] = set()
    for item in flow.nodes():
        if isinstance(item.op, Source):
            carried.update({item} if item.op.label in narrow else ())
        elif (
            carried.isdisjoint(item.inputs)
            or item.op.name in COMPARING
            or (item.op.name == "Cast" and item.op.fields()["dtype"] == "float64")
        ):
            continue
        elif item.op.name in CARRYING:
            carried.add(item)
        else:
            return False
    return carried.isdisjoint(flow.outputs.values())
