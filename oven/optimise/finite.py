"""Whether computing a node can produce NaN or infinity, or refuse a row.

Rules that treat 0 · x as 0 ask whether x is finite whatever the inputs are: an input of floats may
be NaN or infinite, unless the program refuses such rows. Overflow is left out of account, as it
needs inputs near the end of the float range. Rules that leave out a branch ask whether it can
refuse a row.
"""

from __future__ import annotations

import numpy as np

from flour.core.chunked_array import Pieces
from flour.core.node import Node, topological
from flour.core.op import Op
from flour.core.types import Scalar, Type, Vector
from flour.ops.binary import CastLike, Minus, Plus, Times
from flour.ops.categorise import Encoding
from flour.ops.elementwise import Add, Cast, Clip, Divide, Multiply, OneMinus, Subtract
from flour.ops.encode import LookUp, OneHot
from flour.ops.linear import Linear
from flour.ops.link import Sigmoid, Softmax
from flour.ops.reduce import Max, Min, Norm, Sum
from flour.ops.require import RequireFinite
from flour.ops.source import Fill
from flour.ops.storage import ToDense, ToSparse
from flour.ops.structure import AsVector, Concat, Element, Select, Take
from flour.ops.unary import Abs, Negate, Relu, Sign, Square
from objectstore import Blob

#: Operators whose results are finite if their inputs and parameters are.
_KEEPING: tuple[type[Op], ...] = (
    *(Fill, Concat, Select, Element, AsVector, Take, ToDense, ToSparse),
    *(Subtract, Add, Multiply, Divide, Clip, Cast, CastLike, OneMinus),
    *(OneHot, LookUp, Plus, Minus, Times, Abs, Negate, Relu, Sign, Square),
    *(Linear, Sigmoid, Softmax, Sum, Max, Min, Norm, RequireFinite),
)


def finite(item: Node) -> bool:
    """Whether every value of this node is finite, whatever the program's inputs are."""
    known: dict[Node, bool] = {}
    for each in topological([item]):
        checked = isinstance(each.op, RequireFinite) and each.op.everything
        known[each] = (checked or _is_integer(each.type)) or (
            isinstance(each.op, _KEEPING)
            and _finite_parameters(each.op)
            and all(known[source] for source in each.inputs)
        )
    return known[item]


def may_refuse(item: Node) -> bool:
    """Whether computing this node can be an error for some rows (a category never seen, NaN)."""
    ops = [each.op for each in topological([item])]
    strict = (op.fields()["strict"] for op in ops if isinstance(op, Encoding))
    return any(strict) or any(isinstance(op, RequireFinite) for op in ops)


def _is_integer(kind: Type) -> bool:
    """Whole numbers and bools are always finite."""
    return isinstance(kind, Vector | Scalar) and not kind.dtype.startswith("float")


def _finite_parameters(op: Op) -> bool:
    if isinstance(op, Clip):
        return True  # an infinite limit is no limit
    for value in op.fields().values():
        if isinstance(value, Blob | Pieces) and value.dtype.kind == "f":
            numbers = value.array.astype(np.float64)
            if not np.all(np.isfinite(numbers)) or (isinstance(op, Divide) and not numbers.all()):
                return False
    return True
