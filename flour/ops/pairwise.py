"""Functions of two flows that are no arithmetic: extremes, comparisons, logic, bits.

Integer division and remainders are here too: they round towards zero, as C and ONNX do, and a
division by zero is zero, so that no row of data can stop a process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy import fmod
from numpy.typing import NDArray

from flour.core.check import expect
from flour.core.emission import Emitter, RowValue
from flour.core.native import Code, write
from flour.core.op import Columns, Op
from flour.core.types import FLOATS, INTS, Category, Scalar, Type, Vector, promote
from flour.core.words import Number, bits, like, narrowed
from flour.ops.bases import meeting
from flour.ops.unary import whole


class Pairwise(Op, abstract=True):
    """Two inputs of one width, or a scalar and a vector: column by column, in the common dtype."""

    #: The dtypes it takes, and the dtype of the result (None: the inputs').
    takes: ClassVar[tuple[str, ...]] = (*FLOATS, *INTS)
    result: ClassVar[str | None] = None
    #: The function on arrays of one dtype; `native` is the same of two numbers.
    function: ClassVar[np.ufunc]
    native: ClassVar[Callable[..., Number] | None] = None

    def infer(self, x: Type, y: Type) -> Type:
        left, right = self._taken(x), self._taken(y)
        strings = {kind.dtype == "string" for kind in (left, right)}
        expect(len(strings) == 1, f"{self.name} needs two strings, or none")
        wide = promote(left.dtype, right.dtype)
        expect(wide in self.takes, f"{self.name} cannot take {x} with {y}", "cast one of them")
        widths = {kind.width for kind in (left, right) if isinstance(kind, Vector)}
        expect(len(widths) < 2, f"{self.name} needs two vectors of one width, or a scalar")
        dtype = self.result or wide
        return Vector(widths.pop(), dtype) if widths else Scalar(dtype)

    def _taken(self, kind: Type) -> Scalar | Vector:
        """The type of an input, which must be one that the operator takes."""
        if isinstance(kind, Category) and kind.dtype == "string":
            kind = Scalar("string")
        fine = isinstance(kind, Scalar | Vector) and kind.dtype in self.takes
        expect(fine, f"{self.name} cannot take {kind}", f"it takes {', '.join(self.takes)}")
        return kind  # type: ignore[return-value]  # checked above

    def compute(self, x: NDArray[Any], y: NDArray[Any]) -> Any:
        return type(self).function(x, y)

    def reference(self, x: Columns, y: Columns) -> Columns:
        x, y = meeting(x, y)
        wide = promote(x.dtype.name, y.dtype.name)
        return self.compute(x.astype(wide, copy=False), y.astype(wide, copy=False))

    def element(self, e: Emitter, x: str, y: str, dtype: str) -> str:
        """The function as an expression of two locals."""
        function = type(self).native or type(self).function
        found = write(e, function, Code(x, dtype), Code(y, dtype))
        return found if self.result or type(self).native else whole(found, dtype)

    def emit(self, e: Emitter, x: RowValue, y: RowValue) -> RowValue:
        wide = promote(x.dtype, y.dtype)

        def both(_: str, left: str, right: str) -> str:
            first = e.let(e.cast(left, x.dtype, wide), wide).expr
            return self.element(e, first, e.let(e.cast(right, y.dtype, wide), wide).expr, wide)

        return e.map(both, x, y, dtype=self.result or wide)


# --- extremes -------------------------------------------------------------------------------------


class LargerOf(Pairwise, method="", function=np.maximum, commutative=True):
    """The larger of two; NaN if either is NaN."""


class SmallerOf(Pairwise, method="", function=np.minimum, commutative=True):
    """The smaller of two; NaN if either is NaN."""


# --- comparisons ----------------------------------------------------------------------------------


class Above(Pairwise, function=np.greater, result="bool"):
    """True if x > y; never for NaN."""


class AtLeast(Pairwise, method="", function=np.greater_equal, result="bool"):
    """True if x >= y; never for NaN."""


class Same(Pairwise):
    """True if x == y; never for NaN."""

    method = ""
    function = np.equal
    takes = (*FLOATS, *INTS, "bool")
    result = "bool"
    commutative = True


# --- logic and bits -------------------------------------------------------------------------------


class Both(Pairwise, function=np.logical_and, takes=("bool",), result="bool", commutative=True):
    """True if x and y are both true."""


class Either(Pairwise, function=np.logical_or, takes=("bool",), result="bool", commutative=True):
    """True if x or y is true, or both are."""


class OnlyOne(Pairwise):
    """True if exactly one of x and y is true."""

    method = ""
    function = np.not_equal
    takes = ("bool",)
    result = "bool"
    commutative = True


class BitAnd(Pairwise, method="", function=np.bitwise_and, takes=INTS, commutative=True):
    """The bits that x and y both have."""


class BitOr(Pairwise, method="", function=np.bitwise_or, takes=INTS, commutative=True):
    """The bits that x or y has."""


class BitXor(Pairwise, method="", function=np.bitwise_xor, takes=INTS, commutative=True):
    """The bits in which x and y differ."""


class ShiftLeft(Pairwise, method="", takes=INTS):
    """The bits of x moved up by y places; none are left where y is no number of its places."""

    def compute(self, x: NDArray[Any], y: NDArray[Any]) -> Any:
        fine = _within(x, y)
        return np.where(fine, np.left_shift(x, np.where(fine, y, 0)), 0).astype(x.dtype)

    @staticmethod
    def native(x: Number, y: Number) -> Number:
        return narrowed(x << y) if y >= 0 and y < bits(x) else like(x, 0)


class ShiftRight(ShiftLeft):
    """The bits of x moved down by y places; its sign fills what was moved."""

    def compute(self, x: NDArray[Any], y: NDArray[Any]) -> Any:
        fine = _within(x, y)
        fill = np.where(x < 0, -1, 0)
        return np.where(fine, np.right_shift(x, np.where(fine, y, 0)), fill).astype(x.dtype)

    @staticmethod
    def native(x: Number, y: Number) -> Number:
        fill = 0 if x.dtype[0] == "u" else (-1 if x < 0 else 0)
        return narrowed(x >> y) if y >= 0 and y < bits(x) else like(x, fill)


BITS = {dtype: 8 * np.dtype(dtype).itemsize for dtype in INTS}


def _within(x: NDArray[Any], y: NDArray[Any]) -> Any:
    """True if a shift is by fewer bits than x has."""
    return (y >= 0) & (y < BITS[x.dtype.name])


# --- whole numbers, and powers -------------------------------------------------------------------


class WholeQuotient(Pairwise, method="", takes=INTS):
    """x / y of whole numbers, rounded towards zero; zero where y is zero."""

    def compute(self, x: NDArray[Any], y: NDArray[Any]) -> Any:
        quotient = np.floor_divide(x, y)
        if x.dtype.kind == "i":
            inexact = (quotient * y != x) & ((x < 0) != (y < 0)) & (y != 0)
            quotient = quotient + inexact.astype(x.dtype)
        return quotient

    @staticmethod
    def native(x: Number, y: Number) -> Number:
        if x.dtype[0] == "u":
            quotient = like(x, x // y) if y != 0 else like(x, 0)
        elif y == 0:
            quotient = like(x, 0)
        elif y == -1:  # the lowest number has no counterpart: dividing it stops processors
            quotient = like(x, -x)
        else:
            quotient = like(x, x // y + (1 if x % y != 0 and (x < 0) != (y < 0) else 0))
        return quotient


def leaves_nothing(y: Number) -> Any:
    """True if no remainder is asked of the processor: 0 stops it, and -1 does for the lowest."""
    return y == 0 or y == -1  # noqa: PLR1714 (native code has no sets)


class Modulo(Pairwise, method="", function=np.mod):
    """The remainder with the sign of y, as Python's; for whole numbers zero where y is zero."""

    @staticmethod
    def native(x: Number, y: Number) -> Number:
        if x.dtype in FLOATS:
            rest, none = fmod(x, y), like(x, 0.0)
            plain = rest + y if (rest < 0) != (y < 0) else rest
            return (none if y > 0 else -none) if rest == 0 else plain
        if x.dtype[0] == "u":
            return like(x, x % y) if y != 0 else like(x, 0)
        return like(x, 0) if leaves_nothing(y) else like(x, x % y)


class Remainder(Pairwise, method="", function=np.fmod):
    """The remainder with the sign of x, as C's fmod; for whole numbers zero where y is zero."""

    @staticmethod
    def native(x: Number, y: Number) -> Number:
        if x.dtype in FLOATS:
            return fmod(x, y)
        if x.dtype[0] == "u":
            return like(x, x % y) if y != 0 else like(x, 0)
        rest = like(x, 0) if leaves_nothing(y) else like(x, x % y)
        return like(x, rest - y) if rest != 0 and (rest < 0) != (x < 0) else rest


class PowerOf(Pairwise, method=""):
    """x to the power of y; whole numbers wrap around, and negative powers of them are cut off."""

    def compute(self, x: NDArray[Any], y: NDArray[Any]) -> Any:
        if x.dtype.kind == "f":
            return np.power(x, y)
        x, y = np.broadcast_arrays(x, y)
        result, base, rest = np.ones_like(x), x.copy(), np.maximum(y, 0).astype(np.uint64)
        while rest.any():
            result = np.where(rest & 1, result * base, result)
            base, rest = base * base, rest >> np.uint64(1)
        inverse = np.where(x == 1, 1, np.where(x == -1, 1 - 2 * (y & 1), 0)).astype(x.dtype)
        return result if x.dtype.kind == "u" else np.where(y < 0, inverse, result)

    @staticmethod
    def native(x: Number, y: Number) -> Number:
        if x.dtype in FLOATS:
            return x**y
        result, base, rest = like(x, 1), like(x, x), like(x, y)
        while rest > 0:
            if rest & like(x, 1):
                result = like(x, result * base)
            base = like(x, base * base)
            rest = like(x, rest >> like(x, 1))
        if x.dtype[0] != "u" and y < 0:
            result = like(x, 1 if x == 1 else (1 - 2 * (y & 1) if x == -1 else 0))
        return result


class SameText(Pairwise, method="", takes=("string",), result="bool", commutative=True):
    """True if two strings are equal, character by character; False where one is missing."""

    def reference(self, x: Columns, y: Columns) -> Columns:
        pairs = np.broadcast_arrays(*meeting(x, y))
        both = zip(*(side.reshape(-1).tolist() for side in pairs), strict=True)
        equal = [isinstance(left, str) and left == right for left, right in both]
        return np.array(equal, bool).reshape(pairs[0].shape)

    def element(self, e: Emitter, x: str, y: str, dtype: str) -> str:
        (here, size), (there, other) = (
            [e.let(f"ld_int64({cell}, {half})", "int64").expr for half in (0, 1)] for cell in (x, y)
        )
        return f"({size} >= 0 and {size} == {other} and text_same({here}, {there}, {size}))"
