"""FunctionTransformer: functions of numpy that have an operator of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flour.adapters import adapts
from flour.op import Op
from flour.ops import unary

if TYPE_CHECKING:
    from flour.flow import Flow
    from flour.sklearn import Importer

#: Functions that make floats of whole numbers.
_TO_FLOAT: dict[str, type[Op]] = {
    "exp": unary.Exp,
    "expm1": unary.Expm1,
    "log": unary.Log,
    "log10": unary.Log10,
    "log1p": unary.Log1p,
    "log2": unary.Log2,
    "sqrt": unary.Sqrt,
    "sin": unary.Sin,
    "cos": unary.Cos,
    "tan": unary.Tan,
    "sinh": unary.Sinh,
    "cosh": unary.Cosh,
    "tanh": unary.Tanh,
    "rint": unary.Rint,
    "erf": unary.Erf,
}
#: Functions that answer in the dtype they get, or in one of their own.
_ANY: dict[str, type[Op]] = {
    "absolute": unary.Abs,
    "fabs": unary.Abs,
    "negative": unary.Negate,
    "square": unary.Square,
    "sign": unary.Sign,
    "floor": unary.Floor,
    "ceil": unary.Ceil,
    "trunc": unary.Trunc,
    "isnan": unary.IsNan,
}


@adapts("sklearn.preprocessing.FunctionTransformer")
def _function_transformer(fit: Any, x: Flow, to: Importer) -> Flow:
    if fit.func is None:
        return to.matrix(x)
    to.need(not fit.kw_args, "the function is called with arguments of its own", _HINT)
    x = to.matrix(x)
    name = fit.func.__name__ if isinstance(fit.func, np.ufunc) else ""
    if name == "reciprocal":
        return unary.Reciprocal()(to.floats(x))
    if name in _TO_FLOAT:
        return _TO_FLOAT[name]()(to.floats(x))
    if name in _ANY:
        return _ANY[name]()(to.floats(x) if name == "fabs" else x)
    return to.refuse(f"{_called(fit.func)} is Python code", _HINT)  # type: ignore[no-any-return]  # raises


def _called(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or getattr(function, "__name__", function))


_HINT = "use one of numpy's own functions: " + ", ".join(f"np.{n}" for n in (*_TO_FLOAT, *_ANY))
