"""Native code with the same bits on every processor, for what is exported.

It has the vocabulary of all native code with these differences: what the C library computes
elsewhere is computed here, a product and a sum are rounded one after the other, sums keep their
order, and no address is called. A word that has no such form (`sin`, `erf`) is left out, so code
that needs it is refused.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import cache, partial

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from flour.core.parsing import parse_source
from oven.compiler import machine, source_check
from oven.compiler.functions import bits, of_bits
from oven.compiler.intrinsics.base import Generic, Routine, Typed, Values
from oven.compiler.intrinsics.builder import Builder, typed
from oven.compiler.intrinsics.vocabulary import vocabulary as usual
from oven.compiler.kinds import FLOAT32, FLOAT64, INT64, Kind, Mismatch, Value, converted
from oven.compiler.lowering import Intrinsic, Lowering, Module
from oven.compiler.native import optimised
from oven.errors import CompileError

_CALLING = ("call_", "c_call_")
_OF_C = {"sin", "cos", "tan", "sinh", "cosh", "erf", "acos", "acosh", "asin", "asinh"}
_OF_C |= {"atan", "atanh"}


@cache
def vocabulary() -> dict[str, Intrinsic | int]:
    """The words of portable code."""
    made = {
        name: word
        for name, word in usual().items()
        if not name.startswith(_CALLING) and name not in _OF_C
    }
    for kind in (FLOAT64, FLOAT32):
        made[f"loose_add_{kind.name}"] = plain(kind, "fadd")
        made[f"loose_mul_{kind.name}"] = plain(kind, "fmul")
        made[f"vadd_product_{kind.name}"] = made[f"vadd_product_exact_{kind.name}"]
    quad = made["quad_add_product"]
    assert isinstance(quad, Typed), "it is a word of vectors"
    made["quad_add_product"] = typed(quad.kinds, quad.result, _add_product)
    made |= {"fused": Generic(_fused), "exp_alone": made["exp"], "log_alone": made["log"]}
    made |= {"head": Routine(head, inline=True)}
    own = {name: partial(_through_float64, function=each) for name, each in OWN.items()}
    return made | {name: Generic(write) for name, write in own.items()}


def plain(kind: Kind, operation: str) -> Typed:
    """An operation on two floats that keeps its place."""
    return Typed((kind, kind), kind, lambda b, args: getattr(b, operation)(*args))


def _add_product(b: Builder, args: Values) -> ir.Value:
    return b.fadd(args[0], b.fmul(args[1], args[2]))


def _fused(code: Lowering, arguments: Sequence[Value]) -> Value:
    """a * b + c, rounded twice."""
    kind = arguments[2].kind
    a, b, c = (converted(code.builder, value, kind) for value in arguments)
    return Value(kind, code.builder.fadd(code.builder.fmul(a, b), c))


def _through_float64(
    code: Lowering, arguments: Sequence[Value], function: Callable[..., float]
) -> Value:
    """A function of float64, whose result has the width of the arguments."""
    single = all(value.kind is FLOAT32 for value in arguments)
    given = [Value(FLOAT64, converted(code.builder, value, FLOAT64)) for value in arguments]
    made = Routine(function).write(code, given)
    kind = FLOAT32 if single else FLOAT64
    return Value(kind, converted(code.builder, made, kind))


# --- one module -----------------------------------------------------------------------------------


class StageWord:
    """A call of another function of the module, which is written with the first call."""

    def __init__(self, source: str, name: str, known: Collection[str] = ()) -> None:
        self.definition = definition(source, name, known)

    def write(self, code: Lowering, arguments: Sequence[Value]) -> Value:
        """Write the call's code."""
        given = [converted(code.builder, value, INT64) for value in arguments]
        function, _ = code.module.function(self.definition, (INT64,) * len(given), inline=False)
        return Value(INT64, code.builder.call(function, given))


def definition(source: str, name: str, known: Collection[str] = ()) -> ast.FunctionDef:
    """The one function of this source, vetted and under this name; `known` are words besides."""
    (function,) = (item for item in parse_source(source).body if isinstance(item, ast.FunctionDef))
    text = source.replace(f"def {function.name}(", f"def {name}(", 1)
    source_check.vet(text, name, {*vocabulary(), *known}, len(function.args.args))
    (renamed,) = parse_source(text).body
    assert isinstance(renamed, ast.FunctionDef), "it was vetted"
    return renamed


def module(words: Mapping[str, Intrinsic | int]) -> Module:
    """An empty module for the processor that is aimed at."""
    made = Module({**vocabulary(), **words})
    made.llvm.triple = machine.triple()
    # The widths of the processor's own integers are left out, as in native.ir_text.
    layout = str(machine.target_machine().target_data)
    made.llvm.data_layout = re.sub(r"-n[\d:]+", "", layout)
    return made


def missing(source: str, words: Container[str]) -> str:
    """The first word of all native code that a source has and these words have not; or nothing."""
    for item in ast.walk(parse_source(source)):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Name):
            name = item.func.id
            if name != "range" and name not in words and name in usual():
                return name
    return ""


def compile_source(source: str, name: str) -> machine.MachineCode:
    """Object code of a stage for this process: with the bits that its exports have."""
    made = module({})
    try:
        function, _ = made.write(definition(source, name), name, (INT64,) * 4)
        parsed = optimised(llvm.parse_assembly(str(made.llvm)))
    except (Mismatch, RuntimeError) as problem:
        raise CompileError.of(name, source, str(problem)) from problem
    code = machine.target_machine().emit_object(parsed)
    return machine.MachineCode(function.name, bytes(code), str(parsed), source)


# --- functions of the C library, in Python --------------------------------------------------------
#
# `exp`, `log` and `fused` stand for the words of these names, as `bits` and `of_bits` do.


def exp(x: float) -> float:
    """e to the power x."""
    return float(np.exp(x))


def log(x: float) -> float:
    """The natural logarithm."""
    return float(np.log(x))


def expm1(x: float) -> float:
    """exp(x) - 1 without cancellation: what rounding does to u = exp(x), it does to log(u), too."""
    u = exp(x)
    if u == 1.0 or x != x:  # noqa: PLR0124 (the definition of NaN)
        return x
    less = u - 1.0
    if less == -1.0 or less == math.inf:  # noqa: PLR1714 (native code has no sets)
        return less
    return less * (x / log(u))


def log1p(x: float) -> float:
    """log(1 + x) without cancellation, as `expm1` does it."""
    u = 1.0 + x
    if u == 1.0 or u == math.inf:  # noqa: PLR1714 (as above)
        return x
    return log(u) * (x / (u - 1.0))


def log2(x: float) -> float:
    """The binary logarithm."""
    return log(x) * 1.4426950408889634


def log10(x: float) -> float:
    """The decimal logarithm."""
    return log(x) * 0.4342944819032518


def fmod(x: float, by: float) -> float:
    """The remainder of a division, exact, with the sign of x."""
    rest, step = abs(x), abs(by)
    if rest != rest or step != step or rest == math.inf or step == 0.0:  # noqa: PLR0124
        return (x * by) / (x * by)
    if rest < step:
        return x
    least = step
    while step + step <= rest:
        step = step + step
    while step >= least:
        if rest >= step:
            rest = rest - step
        step = step * 0.5
    return -rest if x < 0.0 else rest


def pow_float64(x: float, y: float) -> float:
    """x to the power y: exp(y log |x|) with the logarithm in two parts, and C's special cases."""
    if y == 0.0 or x == 1.0:
        return 1.0
    if x != x or y != y:  # noqa: PLR0124 (the definition of NaN)
        return x + y
    odd, whole = 0, abs(y) >= 9007199254740992.0
    if not whole:
        integer = int(y)
        whole = float(integer) == y
        odd = integer & 1 if whole else 0
    a = abs(x)
    if a == 0.0 or a == math.inf or (a == 1.0 and (x > 0.0 or whole)):  # noqa: PLR1714 (as above)
        made = 1.0 if a == 1.0 else (0.0 if (a == 0.0) == (y > 0.0) else math.inf)
        return -made if odd != 0 and bits(x) < 0 else made
    if x < 0.0 and not whole:
        return (x - x) / (x - x)
    tiny = a < 2.2250738585072014e-308
    number = bits(a * 18014398509481984.0 if tiny else a)
    moved = number - 4604544271217802189
    k = float(moved >> 52) - (54.0 if tiny else 0.0)
    m = of_bits(x, (moved & 4503599627370495) + 4604544271217802189)
    # s = (m - 1) / (m + 1) in two parts; log m = 2 s + s**3 (2/3 + ...).
    f, below = m - 1.0, m + 1.0
    lost = m - (below - 1.0)
    s = f / below
    s1 = head(s)
    s2 = s - s1
    b1 = head(below)
    b2 = below - b1
    left = ((f - s1 * b1) - s1 * b2 - s2 * b1) - s2 * b2
    s_low = (left - s * lost) / below
    z = s * s
    p = 0.1531383769920937 + z * 0.14798198605116586
    p = 0.2222219843214978 + z * (0.1818357216161805 + z * p)
    p = 0.3999999999940942 + z * (0.2857142874366239 + z * p)
    high = k * 6.93147180369123816490e-01
    two = s + s
    total = high + two
    rest = (high - total) + two if abs(high) > abs(two) else (two - total) + high
    third = s * z * (0.666666666666673513 + z * p)
    low = rest + (2.0 * s_low + (third + k * 1.90821492927058770002e-10))
    big = total + low
    low = low - (big - total)
    y1 = head(y)
    y2 = y - y1
    g1 = head(big)
    g2 = big - g1
    product = y * big
    if abs(product) > 800.0 or product != product:  # noqa: PLR0124 (as above)
        made = math.inf if product > 0.0 else 0.0
        return -made if odd != 0 and x < 0.0 else made
    error = ((y1 * g1 - product) + y1 * g2 + y2 * g1) + y2 * g2 + y * low
    made = exp(product)
    made = made + made * error if made < math.inf else made
    return -made if odd != 0 and x < 0.0 else made


def head(x: float) -> float:
    """The upper half of a float's digits: products of two such halves are exact."""
    return float(of_bits(x, bits(x) & -134217728))


OWN: dict[str, Callable[..., float]] = {
    **{function.__name__: function for function in (expm1, log1p, log2, log10, fmod)},
    "pow": pow_float64,
}
