"""Comparisons with fitted numbers, and choosing between two values.

`Greater` is with the arithmetic in elementwise.py.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, numeric
from flour.core.emission import Emitter, RowValue, ScalarValue
from flour.core.native import Code, expression
from flour.core.op import Array, Columns, Op
from flour.core.types import Scalar, Type, Vector, promote
from flour.ops.bases import Elementwise


class Threshold(Elementwise, abstract=True):
    """Each column against its number, in the wider of both dtypes; a NaN never compares.

    (`not_equal` is the exception: NaN differs from everything.)
    """

    function: ClassVar[np.ufunc]
    operand: Array
    result = "bool"

    def compute(self, x: NDArray[Any]) -> Any:
        return type(self).function(x, self.operand.array.reshape(-1))

    def structure(self) -> tuple[object, ...]:
        return (self.operand.dtype.name,)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        wide = promote(x.dtype, self.operand.dtype.name)
        value, operand = e.cast(x.expr, x.dtype, wide), e.at(self.operand, j, wide)
        return expression(e, type(self).function, Code(value), Code(operand))


class GreaterEqual(Threshold):
    """True if x >= operand, column by column; never for NaN."""

    function = np.greater_equal


class Less(Threshold):
    """True if x < operand, column by column; never for NaN."""

    function = np.less


class LessEqual(Threshold):
    """True if x <= operand, column by column; never for NaN."""

    function = np.less_equal


class Equal(Threshold):
    """True if x == operand, column by column; never for NaN."""

    function = np.equal


class NotEqual(Threshold):
    """True if x != operand, column by column; always for NaN."""

    function = np.not_equal


class Where(Op):
    """`yes` where x is true, else `no`: column by column, scalars meet every column."""

    def infer(self, x: Type, yes: Type, no: Type) -> Type:
        kinds = [numeric(kind, "where") for kind in (x, yes, no)]
        expect(kinds[0].dtype == "bool", f"where chooses by bools, got {x}", "compare first: x > 0")
        widths = {kind.width for kind in kinds if isinstance(kind, Vector)}
        expect(len(widths) < 2, "where needs vectors of one width, or scalars")
        dtype = promote(kinds[1].dtype, kinds[2].dtype)
        return Vector(widths.pop(), dtype) if widths else Scalar(dtype)

    def reference(self, x: Columns, yes: Columns, no: Columns) -> Columns:
        sides = [x, yes, no]
        if any(side.ndim == 2 for side in sides):
            sides = [side if side.ndim == 2 else side[:, None] for side in sides]
        return np.where(*sides)

    def emit(self, e: Emitter, x: RowValue, yes: RowValue, no: RowValue) -> RowValue:
        dtype = promote(yes.dtype, no.dtype)

        def choose(_: str, mask: str, left: str, right: str) -> str:
            both = e.cast(left, yes.dtype, dtype), e.cast(right, no.dtype, dtype)
            return f"({both[0]} if {mask} else {both[1]})"

        widths = [v.width for v in (x, yes, no) if not isinstance(v, ScalarValue)]
        if not widths:
            sides = [v.expr for v in (x, yes, no) if isinstance(v, ScalarValue)]
            return e.let(choose("0", *sides), dtype)
        return e.map(choose, x, yes, no, dtype=dtype, width=widths[0])
