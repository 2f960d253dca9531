"""The types of values in native code, and conversions between them.

They follow numba's rules, which are numpy's for one number: whole numbers are computed in 64 bits,
a float32 with a whole number of 64 bits in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir


@dataclass(frozen=True)
class Kind:
    """A type of values."""

    name: str
    llvm: ir.Type
    form: str
    bits: int = 0
    signed: bool = False

    @property
    def is_float(self) -> bool:
        """True if values are floating-point numbers."""
        return self.form == "float"

    @property
    def is_whole(self) -> bool:
        """True if values are integers or truth values."""
        return self.form in {"int", "bool"}


#: LLVM's whole numbers.
BIT, BYTE, SHORT, INT, WORD = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))


#: LLVM's whole numbers.
BIT, BYTE, SHORT, INT, WORD = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))


class Value(NamedTuple):
    """A value in the code that is being written."""

    kind: Kind
    llvm: ir.Value


class Mismatch(Exception):
    """Native code that mixes types in a way that has no meaning here."""


def _whole(bits: int, *, signed: bool) -> Kind:
    return Kind(f"{'' if signed else 'u'}int{bits}", ir.IntType(bits), "int", bits, signed)


INT64, INT32, INT16, INT8 = (_whole(bits, signed=True) for bits in (64, 32, 16, 8))
UINT64, UINT32, UINT16, UINT8 = (_whole(bits, signed=False) for bits in (64, 32, 16, 8))
FLOAT64 = Kind("float64", ir.DoubleType(), "float", 64)
FLOAT32 = Kind("float32", ir.FloatType(), "float", 32)
BOOL = Kind("bool", ir.IntType(1), "bool", 1)
NOTHING = Kind("nothing", ir.VoidType(), "nothing")
#: The types of numbers in memory by numpy's names for them.
_FLOATS_AND_BOOL = (FLOAT64, FLOAT32, BOOL)
_WHOLE = (INT64, INT32, INT16, INT8, UINT64, UINT32, UINT16, UINT8)
KINDS = {kind.name: kind for kind in (*_FLOATS_AND_BOOL, *_WHOLE)}


def vector(kind: Kind, count: int) -> Kind:
    """The type of vectors of `count` numbers."""
    return Kind(f"{count} x {kind.name}", ir.VectorType(kind.llvm, count), "vector")


def several(kinds: tuple[Kind, ...]) -> Kind:
    """The type of what a function returns that returns several values."""
    names = ", ".join(kind.name for kind in kinds)
    return Kind(f"({names})", ir.LiteralStructType([kind.llvm for kind in kinds]), "several")


def parts(kind: Kind) -> list[Kind]:
    """The types of several values, in which LLVM's own do not tell a sign."""
    return [KINDS[name] for name in kind.name.strip("()").split(", ")]


def common(left: Kind, right: Kind) -> Kind:
    """The type in which an operation on two numbers is done."""
    if left == right and left.form != "bool":
        return left if left.is_float else _wide(left)
    if left.is_whole and right.is_whole:
        either = (_wide(left), _wide(right))
        return UINT64 if either == (UINT64, UINT64) else INT64
    if left.is_float and right.is_float:
        return FLOAT64
    number, other = (left, right) if left.is_float else (right, left)
    if not number.is_float or not other.is_whole:
        raise Mismatch(f"{left.name} and {right.name} have no type in common")
    if number is FLOAT32 and other.bits < 32:
        raise Mismatch(f"convert {other.name} before it meets float32")
    return FLOAT64


def _wide(kind: Kind) -> Kind:
    return INT64 if kind.signed or kind is BOOL else UINT64


def merged(left: Kind, right: Kind) -> Kind:
    """The type of a variable that is given both."""
    if left == right:
        return left
    if left.is_float and right.is_float:
        raise Mismatch("one variable is given float32 and float64: convert one of them")
    return common(left, right)


def converted(  # noqa: PLR0911 (a case for each pair of forms)
    builder: ir.IRBuilder, value: Value, kind: Kind
) -> ir.Value:
    """The value in another type, as C converts it."""
    own, number = value
    if own == kind:
        return number
    if kind is BOOL:
        zero = ir.Constant(own.llvm, 0)
        if own.is_float:
            return builder.fcmp_unordered("!=", number, zero)
        return builder.icmp_unsigned("!=", number, zero)
    if own.is_whole and kind.is_whole:
        if own.bits >= kind.bits:
            return number if own.bits == kind.bits else builder.trunc(number, kind.llvm)
        return (builder.sext if own.signed else builder.zext)(number, kind.llvm)
    if own.is_whole and kind.is_float:
        return (builder.sitofp if own.signed else builder.uitofp)(number, kind.llvm)
    if own.is_float and kind.is_whole:
        return (builder.fptosi if kind.signed else builder.fptoui)(number, kind.llvm)
    if own.is_float and kind.is_float:
        return (builder.fpext if own.bits < kind.bits else builder.fptrunc)(number, kind.llvm)
    raise Mismatch(f"{own.name} is no {kind.name}")
