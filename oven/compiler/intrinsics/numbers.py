"""Functions of numbers: conversions, rounding, and what the C library computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from llvmlite import ir

from oven.compiler import functions
from oven.compiler.intrinsics.base import Generic, Routine, Typed
from oven.compiler.intrinsics.builder import declared
from oven.compiler.kinds import (
    FLOAT32,
    FLOAT64,
    INT64,
    KINDS,
    Kind,
    Mismatch,
    Value,
    common,
    converted,
)
from oven.compiler.lowering import Intrinsic, Lowering

#: Functions that LLVM knows; the C library has the others.
_KNOWN = ("exp", "log", "log10", "sin", "cos", "sqrt", "floor", "ceil", "trunc", "rint")
_OF_C = (
    *("expm1", "log1p", "log2", "tan", "sinh", "cosh", "erf", "acos", "acosh", "asin", "asinh"),
    *("atan", "atanh", "tanh"),
)
#: Sums that may be made in any order, and fused with a product: what lets them use SIMD.
_ANY_ORDER, _FUSED = ("reassoc", "contract", "nsz"), ("contract",)


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every intrinsic by name."""
    made: dict[str, Intrinsic | int] = {name: _convert(kind) for name, kind in KINDS.items()}
    made |= {"int": Generic(_int), "float": _convert(FLOAT64), "abs": Generic(_abs)}
    made["range"] = Generic(_range)
    made |= {"min": Generic(partial(_least, sign="<")), "max": Generic(partial(_least, sign=">"))}
    for kind in (FLOAT64, FLOAT32):
        made[f"loose_add_{kind.name}"] = _arithmetic(kind, "fadd", _ANY_ORDER)
        made[f"loose_mul_{kind.name}"] = _arithmetic(kind, "fmul", _FUSED)
    made |= {name: Generic(partial(_function, name=name)) for name in (*_KNOWN, *_OF_C)}
    # The C library's, for one number at a time. It has numpy's bits for whole numbers.
    made |= {"exp_alone": made["exp"], "log_alone": made["log"]}
    made |= {"exp": _own(functions.EXP), "log": _own(functions.LOG)}
    made |= {"tanh": _own(functions.TANH), "fmod": Generic(_fmod), "pow": Generic(_pow)}
    made |= {"fused": Generic(_fused), "bits": Generic(_bits), "of_bits": Generic(_of_bits)}
    made["type_of"] = Generic(lambda code, args: _to(code, args[1], args[0].kind))
    # Modulo 2**64; the usual arithmetic promises LLVM that nothing overflows.
    made |= {f"wrap_{name}": _arithmetic(INT64, name, ()) for name in ("add", "mul")}
    return made | {each.__name__: Routine(each, inline=True) for each in _IN_PYTHON}


def _to(code: Lowering, value: Value, kind: Kind) -> Value:
    return Value(kind, converted(code.builder, value, kind))


def _convert(kind: Kind) -> Generic:
    def write(code: Lowering, arguments: Sequence[Value]) -> Value:
        (value,) = arguments
        return _to(code, value, kind)

    return Generic(write)


def _range(*_: object) -> Value:
    raise Mismatch("a range is what a loop runs over, and nothing else")


def _int(code: Lowering, arguments: Sequence[Value]) -> Value:
    (value,) = arguments
    return _to(code, value, common(value.kind, INT64) if value.kind.is_whole else INT64)


def _abs(code: Lowering, arguments: Sequence[Value]) -> Value:
    (value,) = arguments
    builder = code.builder
    if value.kind.is_float:
        return _function(code, arguments, name="fabs")
    number = _to(code, value, common(value.kind, value.kind))
    if not number.kind.signed:
        return number
    below = builder.icmp_signed("<", number.llvm, ir.Constant(number.kind.llvm, 0))
    return Value(number.kind, builder.select(below, builder.neg(number.llvm), number.llvm))


def _least(code: Lowering, arguments: Sequence[Value], sign: str) -> Value:
    """Python's `min` and `max`: the first of equal ones, and never a NaN that comes second."""
    made, *rest = arguments
    for value in rest:
        kind = value.kind if value.kind == made.kind else common(value.kind, made.kind)
        given, known = (_to(code, each, kind) for each in (value, made))
        if kind.is_float:
            better = code.builder.fcmp_ordered(sign, given.llvm, known.llvm)
        else:
            test = code.builder.icmp_signed if kind.signed else code.builder.icmp_unsigned
            better = test(sign, given.llvm, known.llvm)
        made = Value(kind, code.builder.select(better, given.llvm, known.llvm))
    return made


def _arithmetic(kind: Kind, operation: str, flags: tuple[str, ...]) -> Typed:
    return Typed((kind, kind), kind, lambda b, args: getattr(b, operation)(*args, flags=flags))


def _float(code: Lowering, value: Value) -> Value:
    return value if value.kind.is_float else _to(code, value, FLOAT64)


def _function(code: Lowering, arguments: Sequence[Value], name: str) -> Value:
    """A function of one float that LLVM knows, or else of the C library."""
    kind, number = _float(code, *arguments)
    of_c = name in _OF_C
    symbol = name + "f" * (kind is FLOAT32) if of_c else f"llvm.{name}.f{kind.bits}"
    function = declared(code.builder, symbol, [kind.llvm], kind.llvm)
    if of_c:
        function.attributes.update({"nounwind", "readnone"})
    return Value(kind, code.builder.call(function, [number]))


def _fmod(code: Lowering, arguments: Sequence[Value]) -> Value:
    left, right = (_float(code, value) for value in arguments)
    kind = common(left.kind, right.kind)
    return Value(kind, code.builder.frem(*(_to(code, side, kind).llvm for side in (left, right))))


def _pow(code: Lowering, arguments: Sequence[Value]) -> Value:
    kind = common(*(value.kind for value in arguments))
    a, b = (_to(code, value, kind).llvm for value in arguments)
    function = declared(code.builder, f"llvm.pow.f{kind.bits}", [kind.llvm] * 2, kind.llvm)
    return Value(kind, code.builder.call(function, [a, b]))


def _own(by_width: dict[str, Callable[..., float]]) -> Generic:
    """A function of oven.compiler.functions for the width of its argument."""
    routines = {name: Routine(function, inline=True) for name, function in by_width.items()}

    def write(code: Lowering, arguments: Sequence[Value]) -> Value:
        value = _float(code, *arguments)
        return routines[value.kind.name].write(code, [value])

    return Generic(write)


def _fused(code: Lowering, arguments: Sequence[Value]) -> Value:
    """a * b + c, rounded once where the processor can."""
    kind = arguments[2].kind
    a, b, c = (_to(code, value, kind).llvm for value in arguments)
    product = code.builder.fmul(a, b, flags=_FUSED)
    return Value(kind, code.builder.fadd(product, c, flags=_FUSED))


def _bits(code: Lowering, arguments: Sequence[Value]) -> Value:
    """The bits of a float as a whole number with a sign."""
    ((kind, number),) = arguments
    whole = code.builder.bitcast(number, ir.IntType(kind.bits))
    return Value(INT64, whole if kind is FLOAT64 else code.builder.sext(whole, INT64.llvm))


def _of_bits(code: Lowering, arguments: Sequence[Value]) -> Value:
    """The float, as wide as the first, with these bits."""
    like, number = arguments[0].kind, converted(code.builder, arguments[1], INT64)
    if not like.is_float:
        raise Mismatch(f"of_bits makes a float, not {like.name}")
    whole = number if like is FLOAT64 else code.builder.trunc(number, ir.IntType(32))
    return Value(like, code.builder.bitcast(whole, like.llvm))


# --- in Python ------------------------------------------------------------------------------------


def exp(x: float) -> float:
    """e to the power x: stands for the intrinsic, as the next ones do."""
    return math.exp(x)


def type_of(like: float, value: float) -> float:
    """The number in the type of `like`."""
    return type(like)(value)


def maximum(a: float, b: float) -> float:
    """The larger; NaN if either is NaN."""
    return a if a > b or a != a else b  # noqa: PLR0124 (the definition of NaN)


def minimum(a: float, b: float) -> float:
    """The smaller; NaN if either is NaN."""
    return a if a < b or a != a else b  # noqa: PLR0124 (the definition of NaN)


def clip(x: float, low: float, high: float) -> float:
    """x limited to [low, high]; NaN stays NaN."""
    return minimum(maximum(x, low), high)


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)); where exp overflows the answer is zero, as in scipy."""
    return type_of(x, 1) / (type_of(x, 1) + exp(-x))


def sigmoid_alone(x: float) -> float:
    """`sigmoid` with the C library's exp, which is faster for one number at a time."""
    return type_of(x, 1) / (type_of(x, 1) + exp_alone(-x))


def exp_alone(x: float) -> float:
    """e to the power x by the C library."""
    return math.exp(x)


def digamma(x: float) -> float:
    """The digamma function as scikit-learn's topic models compute it: see flour.ops.topics."""
    if x <= 1e-6:
        return -0.5772156649015329 - 1.0 / x
    made = 0.0
    while x < 6.0:
        made -= 1.0 / x
        x += 1.0
    inverse = 1.0 / x
    made += log_alone(x) - 0.5 * inverse
    square = inverse * inverse
    return made - square * (1.0 / 12.0 - square * (1.0 / 120.0 - square * (1.0 / 252.0)))


def float_mod(x: float, by: float) -> float:
    """Python's `%` of floats: the remainder has the sign of `by`."""
    rest = fmod(x, by)
    if by == 0.0:
        return rest
    if rest != 0.0:
        return rest + by if (by < 0.0) != (rest < 0.0) else rest
    rest = rest * rest
    return -rest if by < 0.0 else rest


def fmod(x: float, by: float) -> float:
    """The remainder, with the sign of x."""
    return math.fmod(x, by)


def log_alone(x: float) -> float:
    """The natural logarithm by the C library."""
    return math.log(x)


_IN_PYTHON: list[Callable[..., float]] = [maximum, minimum, clip, sigmoid, sigmoid_alone]
_IN_PYTHON += [digamma, float_mod]
