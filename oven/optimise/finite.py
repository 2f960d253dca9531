"""Whether computing a node can produce NaN or infinity, or refuse a row.

Rules that treat 0 · x as 0 ask whether x is finite whatever the inputs are: an input of floats may
be NaN or infinite, unless the program refuses such rows. Overflow is left out of account, as it
needs inputs near the end of the float range. Rules that leave out a branch ask whether it can
refuse a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flour.core.chunked_array import Pieces
from flour.core.node import Node, topological
from flour.core.op import Op
from flour.core.types import Scalar, Type, Vector
from objectstore import Blob

#: Operators whose results are finite if their inputs and parameters are: by name, since most
#: programs have few of them, and the others need not be imported.
KEEPING = frozenset(
    {
        *("Fill", "Concat", "Select", "Element", "AsVector", "Take", "ToDense", "ToSparse"),
        *("Subtract", "Add", "Multiply", "Divide", "OneMinus"),
        *("Clip", "AsFloat", "Cast", "CastLike"),
        *("OneHot", "LookUp", "Plus", "Minus", "Times", "Abs", "Negate", "Relu", "Sign", "Square"),
        *("Linear", "Sigmoid", "Softmax", "Sum", "Max", "Min", "Norm", "RequireFinite"),
    }
)


def finite(item: Node) -> bool:
    """Whether every value of this node is finite, whatever the program's inputs are."""
    known: dict[Node, bool] = {}
    for each in topological([item]):
        known[each] = (each.op.refuses_all_but_finite() or _is_integer(each.type)) or (
            each.op.name in KEEPING
            and _finite_parameters(each.op)
            and all(known[source] for source in each.inputs)
        )
    return known[item]


def may_refuse(item: Node) -> bool:
    """Whether computing this node can be an error for some rows (a category never seen, NaN)."""
    return bool(refusing([item]))


def refusing(items: Sequence[Node]) -> set[Node]:
    """The nodes that can refuse a row, of those that are computed for these."""
    return {each for each in topological(items) if each.op.refuses_rows()}


def _is_integer(kind: Type) -> bool:
    """Whole numbers and bools are always finite."""
    return isinstance(kind, Vector | Scalar) and not kind.dtype.startswith("float")


def _finite_parameters(op: Op) -> bool:
    if op.name == "Clip":
        return True  # an infinite limit is no limit
    for value in op.fields().values():
        if isinstance(value, Blob | Pieces) and value.dtype.kind == "f":
            numbers = value.array.astype(np.float64)
            if not np.all(np.isfinite(numbers)) or (op.name == "Divide" and not numbers.all()):
                return False
    return True
