"""The ONNX forms of functions that ONNX has no operator for, or none that is exact near zero."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from flour.core.node import Node
from flour.onnx.export.numbers import parameter
from flour.onnx.export.writer import Export, dtype_of, form
from flour.ops import interpolate

_LARGE = 22.0  # e ** -x is lost beside e ** x beyond this, in float64


def number(out: Export, value: float, dtype: str) -> str:
    """One number as a constant that meets every column."""
    return out.constant(value, dtype)


def expm1(out: Export, x: str, dtype: str) -> str:
    """e ** x - 1: the rounding of e ** x is undone by its own logarithm."""
    one, grown = number(out, 1, dtype), out("Exp", x)
    less = out("Sub", grown, one)
    exact = out("Div", out("Mul", less, x), out("Log", grown))
    far = out("Greater", out("Abs", x), number(out, 1, dtype))
    made = out("Where", far, less, exact)
    return out("Where", out("Equal", less, number(out, 0, dtype)), x, made)


def log1p(out: Export, x: str, dtype: str) -> str:
    """log(1 + x): the rounding of 1 + x is undone by how much was really added."""
    one = number(out, 1, dtype)
    grown = out("Add", x, one)
    added, log = out("Sub", grown, one), out("Log", grown)
    exact = out("Div", out("Mul", log, x), added)
    far = out("Greater", out("Abs", x), one)
    made = out("Where", far, log, exact)
    return out("Where", out("Equal", added, number(out, 0, dtype)), x, made)


def _itself(item: Node) -> str:
    return dtype_of(item.type)


@form("Log2", "Log10")
def _log_to_a_base(out: Export, item: Node, x: str) -> str:
    base = 2.0 if item.op.name == "Log2" else 10.0
    return out("Div", out("Log", x), number(out, float(np.log(base)), _itself(item)))


@form("Trunc")
def _trunc(out: Export, item: Node, x: str) -> str:
    if np.dtype(_itself(item)).kind != "f":
        return out("Identity", x)
    return out("Mul", out("Sign", x), out("Floor", out("Abs", x)))


@form("Sinh", "Cosh")
def _hyperbolic(out: Export, item: Node, x: str) -> str:
    dtype, size = _itself(item), out("Abs", x)
    half = number(out, 0.5, dtype)
    root = out("Exp", out("Mul", size, half))  # its square may be too large where half of it is not
    far = out("Mul", out("Mul", root, half), root)
    if item.op.name == "Cosh":
        return out("Add", far, out("Mul", out("Exp", out("Neg", size)), half))
    grown = expm1(out, size, dtype)
    rest = out("Div", grown, out("Add", grown, number(out, 1, dtype)))
    near = out("Mul", out("Add", grown, rest), half)
    beyond = out("Greater", size, number(out, _LARGE, dtype))
    return out("Mul", out("Sign", x), out("Where", beyond, far, near))


@form("Power")
def _power(out: Export, item: Node, x: str) -> str:
    return out("Pow", x, number(out, item.op.fields()["exponent"], _itself(item)))


@form("Damp")
def _damp(out: Export, item: Node, x: str) -> str:
    dtype = _itself(item)
    grown = out("Add", out("Log", x), number(out, 1, dtype))
    return out("Where", out("Equal", x, number(out, 0, dtype)), x, grown)


@form("Clip")
def _clip(out: Export, item: Node, x: str) -> str:
    fields, dtype = item.op.fields(), _itself(item)
    low, high = (parameter(out, item, fields[key].array, dtype) for key in ("low", "high"))
    raised = out("Where", out("Less", x, low), low, x)
    return out("Where", out("Greater", raised, high), high, raised)


@form("Quotient")
def _quotient(out: Export, item: Node, x: str) -> str:
    have, op = _itself(item), item.op.fields()
    inner = np.result_type(have, op["operand"].dtype).name if op["wide"] else have
    fitted = parameter(out, item, op["operand"].array, inner)
    return out.cast(out("Div", fitted, out.cast(x, have, inner)), inner, have)


@form("Erf")
def _erf(out: Export, item: Node, x: str) -> str:
    """Near zero a series, further away 1 - e ** -x^2 times a polynomial of a fraction of x."""
    if _itself(item) != "float64":  # no runtime has float64, and ONNX's evaluator a rough one
        return out("Erf", x)
    size, square = out("Abs", x), out("Mul", x, x)
    series = out.constant(_SERIES[-1])
    for term in _SERIES[-2::-1]:
        series = out("Add", out("Mul", series, square), out.constant(term))
    away = out("Where", out("Greater", size, out.constant(_FAR)), out.constant(_FAR), size)
    rest = out("Div", out("Sub", away, out.constant(_KNEE)), out("Add", away, out.constant(_KNEE)))
    grown = _chebyshev(out, rest)
    tail = out("Mul", out("Exp", out("Neg", square)), grown)
    outer = out("Mul", out("Sign", x), out("Sub", out.constant(1.0), tail))
    return out("Where", out("Less", size, out.constant(1.0)), out("Mul", x, series), outer)


_FAR, _KNEE = 6.5, 3.75  # beyond _FAR the error function is one
_SERIES = [
    2 / math.sqrt(math.pi) * (-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(22)
]


def _chebyshev(out: Export, t: str) -> str:
    """e ** x^2 times what the error function lacks to one, where t = (x - knee) / (x + knee)."""
    ends = [(end - _KNEE) / (end + _KNEE) for end in (1.0, _FAR)]

    def scaled(t: Any) -> Any:
        x = _KNEE * (1 + t) / (1 - t)
        return np.array([math.exp(v * v) * math.erfc(v) for v in x])

    fit = np.polynomial.Chebyshev.interpolate(scaled, 18, ends)
    middle, half = sum(ends) / 2, (ends[1] - ends[0]) / 2
    u = out("Div", out("Sub", t, out.constant(middle)), out.constant(half))
    double = out("Add", u, u)
    one, two = out.constant(0.0), out.constant(0.0)
    for term in fit.coef[:0:-1]:  # Clenshaw's way to add up such a series
        one, two = out("Add", out("Sub", out("Mul", double, one), two), out.constant(term)), one
    return out("Add", out("Sub", out("Mul", u, one), two), out.constant(fit.coef[0]))


# --- power transforms ---------------------------------------------------------------------------


def _powers(out: Export, item: Node, wide: str) -> Callable[[Any], str]:
    """Makes constants, one a column, of what is worked out from the exponents here."""
    return lambda values: parameter(out, item, values, wide if values.dtype != bool else "bool")


def _safe(values: Any) -> Any:
    return np.where(values == 0, 1.0, values)


@form("YeoJohnson")
def _yeo_johnson(out: Export, item: Node, x: str) -> str:
    dtype, powers = _itself(item), item.op.fields()["exponents"].array.reshape(-1)
    wide = np.result_type(dtype, powers.dtype).name
    eps, made = np.finfo(wide).eps, _powers(out, item, wide)
    sides: list[str] = []
    zero = number(out, 0, dtype)
    positive = out("GreaterOrEqual", x, zero)
    for factor, tiny in ((powers, np.abs(powers) < eps), (2 - powers, np.abs(powers - 2) <= eps)):
        part = x if not sides else out("Neg", x)
        part = out("Where", out("Greater", part, zero), part, zero)
        log = out.cast(log1p(out, part, dtype), dtype, wide)
        grown = expm1(out, out("Mul", log, made(factor)), wide)
        bent = out("Div", grown, made(_safe(factor)))
        sides.append(out("Where", made(tiny), log, bent))
    both = out("Where", positive, sides[0], out("Neg", sides[1]))
    return out("Where", out("IsNaN", x), x, out.cast(both, wide, dtype))


@form("BoxCox")
def _box_cox(out: Export, item: Node, x: str) -> str:
    dtype, wide = _itself(item), "float64"
    powers = item.op.fields()["exponents"].array.reshape(-1).astype(np.float64)
    made, safe = _powers(out, item, wide), _safe(powers)
    log = out("Log", out.cast(x, dtype, wide))
    product = out("Mul", log, made(powers))
    bent = out("Div", expm1(out, product, wide), made(safe))
    grown = out("Exp", out("Sub", product, made(np.log(np.abs(safe)))))
    huge = out("Sub", out("Mul", grown, made(np.sign(safe))), made(1 / safe))
    bent = out("Where", out("Less", product, number(out, 709.78, wide)), bent, huge)
    return out.cast(out("Where", made(np.abs(powers) < 1e-19), log, bent), wide, dtype)


@form("UndoBoxCox")
def _undo_box_cox(out: Export, item: Node, x: str) -> str:
    dtype, wide = _itself(item), "float64"
    powers = item.op.fields()["exponents"].array.reshape(-1).astype(np.float64)
    made, x = _powers(out, item, wide), out.cast(x, dtype, wide)
    bent = out("Div", log1p(out, out("Mul", x, made(powers)), wide), made(_safe(powers)))
    return out.cast(out("Exp", out("Where", made(powers == 0), x, bent)), wide, dtype)


@form("UndoYeoJohnson")
def _undo_yeo_johnson(out: Export, item: Node, x: str) -> str:
    dtype, wide = _itself(item), "float64"
    powers = item.op.fields()["exponents"].array.reshape(-1).astype(np.float64)
    made, one = _powers(out, item, wide), number(out, 1, wide)
    x = out.cast(x, dtype, wide)
    eps, sides = float(np.spacing(1.0)), list[str]()
    for factor, tiny in ((powers, np.abs(powers) < eps), (2 - powers, np.abs(powers - 2) <= eps)):
        part = x if not sides else out("Neg", x)
        part = out("Where", out("Greater", part, number(out, 0, wide)), part, number(out, 0, wide))
        base = out("Add", out("Mul", part, made(factor)), one)
        bent = out("Pow", base, made(1 / _safe(factor)))
        sides.append(out("Sub", out("Where", made(tiny), out("Exp", part), bent), one))
    positive = out("GreaterOrEqual", x, number(out, 0, wide))
    both = out("Where", positive, sides[0], out("Neg", sides[1]))
    return out.cast(out("Where", out("IsNaN", x), x, both), wide, dtype)


# --- probabilities ------------------------------------------------------------------------------


@form("Logistic")
def _logistic(out: Export, item: Node, x: str) -> str:
    dtype = _itself(item)
    one = number(out, 1, dtype)
    upper = out("Div", one, out("Add", one, out("Exp", out("Neg", out("Abs", x)))))
    return out("Where", out("Less", x, number(out, 0, dtype)), out("Sub", one, upper), upper)


@form("NormalQuantile")
def _normal_quantile(out: Export, item: Node, x: str) -> str:
    dtype, wide = _itself(item), "float64"

    def n(value: float) -> str:
        return number(out, value, wide)

    p = out.cast(x, dtype, wide)
    q = out("Sub", p, n(0.5))
    middle = _ratio(out, interpolate._MIDDLE, out("Sub", n(0.180625), out("Mul", q, q)))  # noqa: SLF001 (its coefficients)
    tail = out("Where", out("LessOrEqual", q, n(0)), p, out("Sub", n(1), p))
    away = out("Sqrt", out("Neg", out("Log", tail)))
    side = _ratio(out, interpolate._SIDE, out("Sub", away, n(1.6)))  # noqa: SLF001 (its coefficients)
    far = _ratio(out, interpolate._TAIL, out("Sub", away, n(5)))  # noqa: SLF001 (its coefficients)
    outer = out("Where", out("LessOrEqual", away, n(5)), side, far)
    sign = out("Where", out("Less", q, n(0)), n(-1), n(1))
    near = out("LessOrEqual", out("Abs", q), n(0.425))
    made = out("Where", near, out("Mul", q, middle), out("Mul", outer, sign))
    end = out("Or", out("Equal", p, n(0)), out("Equal", p, n(1)))
    made = out("Where", end, out("Mul", sign, n(np.inf)), made)
    within = out("And", out("GreaterOrEqual", p, n(0)), out("LessOrEqual", p, n(1)))
    return out.cast(out("Where", within, made, n(np.nan)), wide, dtype)


def _ratio(out: Export, both: Any, x: str) -> str:
    """A quotient of two polynomials, as the operator works it out."""
    made = []
    for side in both:
        total = number(out, side[0], "float64")
        for term in side[1:]:
            total = out("Add", out("Mul", total, x), number(out, term, "float64"))
        made.append(total)
    return out("Div", *made)


@form("ChiWave")
def _chi_wave(out: Export, item: Node, x: str) -> str:
    dtype, op = _itself(item), item.op.fields()
    step, interval = op["step"], op["interval"]

    def n(value: float) -> str:
        return number(out, value, dtype)

    if step == 0:
        made = out("Sqrt", out("Mul", x, n(interval)))
    else:
        angle = out("Mul", n(step), out("Mul", n(interval), out("Log", x)))
        spread = n(float(np.cosh(np.pi * step * interval)))
        factor = out("Div", out("Mul", out("Mul", n(2), x), n(interval)), spread)
        made = out("Mul", out("Sqrt", factor), out("Sin" if op["sine"] else "Cos", angle))
    return out("Where", out("Equal", x, n(0)), n(0), made)


# --- operators of one expression ------------------------------------------------------------------

form("Expm1")(lambda out, item, x: expm1(out, x, _itself(item)))
form("Log1p")(lambda out, item, x: log1p(out, x, _itself(item)))
form("Tan")(lambda out, _, x: out("Div", out("Sin", x), out("Cos", x)))


__all__ = ["expm1", "log1p", "number"]
