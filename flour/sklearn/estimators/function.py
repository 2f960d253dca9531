"""FunctionTransformer: functions of numpy that have an operator of their own."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.callables import called
from flour.core.op import Op
from flour.core.types import DTYPES, FLOATS, Record, Vector
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops import unary
from flour.ops.elementwise import NumpyFloat
from flour.ops.python import PythonColumns, columns_of

#: Functions that turn whole numbers into floats.
_TO_FLOAT: dict[str, type[Op]] = {
    **{
        kind.__name__.lower(): kind
        for kind in (
            *(unary.Exp, unary.Expm1, unary.Log, unary.Log10, unary.Log1p, unary.Log2, unary.Sqrt),
            *(unary.Sin, unary.Cos, unary.Tan, unary.Sinh, unary.Cosh, unary.Tanh),
            *(unary.Rint, unary.Erf),
        )
    },
    "arcsin": unary.Asin,
    "arccos": unary.Acos,
    "arctan": unary.Atan,
    "arcsinh": unary.Asinh,
    "arccosh": unary.Acosh,
    "arctanh": unary.Atanh,
}
#: Functions whose result has the dtype of the input, or one of its own.
_ANY: dict[str, type[Op]] = {
    kind.__name__.lower(): kind
    for kind in (unary.Square, unary.Sign, unary.Floor, unary.Ceil, unary.Trunc, unary.IsNan)
} | {"absolute": unary.Abs, "fabs": unary.Abs, "negative": unary.Negate}


#: Functions that are a product.
_DEGREES = {
    **dict.fromkeys(("degrees", "rad2deg"), 180.0 / np.pi),
    **dict.fromkeys(("radians", "deg2rad"), np.pi / 180.0),
}
_NUMBERS = (int, float)


@adapts("sklearn.preprocessing.FunctionTransformer")
def _function_transformer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    if fit.func is None:
        return x if isinstance(x.type, Record) else to.matrix(x)
    if fit.kw_args:
        clipped = _clipped(fit, x, to)
        if clipped is not None:
            return clipped
        call = partial(fit.func, **fit.kw_args) if callable(fit.func) else fit.func
        return python_columns(call, fit, x, to, "the function is called with arguments of its own")
    made = _of_numpy(fit.func, to.matrix(x)) if isinstance(fit.func, np.ufunc) else None
    if made is not None:
        return made
    return python_columns(fit.func, fit, x, to, f"{called(fit.func)} is Python code")


def _of_numpy(function: np.ufunc, x: Flow) -> Flow | None:
    """A function of numpy's that has an operator of its own."""
    name = function.__name__
    if name == "reciprocal":
        return unary.Reciprocal()(x)
    if name in _DEGREES:
        return NumpyFloat()(x).multiply([_DEGREES[name]])
    if name in _TO_FLOAT:
        return _TO_FLOAT[name]()(NumpyFloat()(x))
    return _ANY[name]()(NumpyFloat()(x) if name == "fabs" else x) if name in _ANY else None


def _clipped(fit: Fitted, x: Flow, to: Importer) -> Flow | None:
    """`np.clip` between two numbers."""
    if fit.func is not np.clip or set(fit.kw_args) != {"a_min", "a_max"}:
        return None
    low, high = fit.kw_args["a_min"], fit.kw_args["a_max"]
    fine = type(low) in _NUMBERS and type(high) in _NUMBERS and low <= high
    if not fine:
        return None
    x = to.matrix(x)
    clipped = to.floats(x).clip([float(low)], [float(high)])
    return clipped.cast_like(x) if {type(low), type(high)} == {int} else clipped


def python_columns(call: object, fit: Fitted, x: Flow, to: Importer, what: str) -> Flow:
    """The function as a Python stage; its result for the sample gives the width and dtype."""
    function = to.python(call, what, "or " + _HINT)
    to.need(not to.is_sparse(x), "the function would be handed a sparse matrix")
    columns, names = _as_fitted(fit, x, to)
    rows = [to.rows(each) for each in columns]
    hint = "pass sample=, a few rows: they show how many columns the function makes"
    known = rows and rows[0] is not None and len(rows[0])
    to.need(known, "the width of the function's result is not known", hint)
    series = not isinstance(x.type, Record | Vector)
    answer = PythonColumns(function, 0, names=names, series=series).answer(*rows)
    texts = series and answer.ndim == 1 and answer.dtype.kind in "OU"
    found = f"{getattr(answer, 'dtype', 'a frame')} {answer.shape} of {len(rows[0])} rows"
    fine = answer.shape[:1] == (len(rows[0]),) and (answer.ndim == 2 or texts)
    to.need(fine, f"the function's result is not a matrix of numbers: {found}")
    width, dtype = 0 if texts else answer.shape[1], str(getattr(answer, "dtype", ""))
    # The float width of the sample; columns of whole numbers may have fractions later.
    columns = [
        column.cast(str(row.dtype)) if row.dtype.kind == "f" else column
        for column, row in zip(columns, rows, strict=True)
    ]
    if texts or dtype in DTYPES:
        dtype = "string" if texts else dtype
        return PythonColumns(function, width, dtype, names, series)(*columns)
    kind = "object" if isinstance(answer, np.ndarray) else "float64"
    gives = tuple((name, _kind(name, column, to)) for name, column in columns_of(answer).items())
    return PythonColumns(function, width, kind, names, series, gives)(*columns)


def _as_fitted(fit: Fitted, x: Flow, to: Importer) -> tuple[list[Flow], tuple[str, ...]]:
    """The columns as a function reads them, and their names if it is handed a frame."""
    if isinstance(x.type, Record):
        names = to.frame_names(x) or (() if x.type.positional else x.type.names)
        dtypes = {getattr(kind, "dtype", "string") for _, kind in x.type.fields}
        if len(dtypes) == 1 and dtypes != {"string"}:
            return [to.matrix(x)], names
        return [x.field(name) for name in x.type.names], names
    if isinstance(x.type, Vector):
        return [x], to.frame_names(x) or tuple(map(str, getattr(fit, "feature_names_in_", ())))
    return [x], to.frame_names(x) or (
        (x.node.op.fields()["label"],) if x.node.op.name == "Field" else ()
    )


def _kind(name: str, column: NDArray[Any], to: Importer) -> str:
    """The dtype of a column that a function has answered: whole numbers may be missing later."""
    if column.dtype.kind in "OU":
        return "string" if any(isinstance(value, str) for value in column) else "float64"
    kind = str(column.dtype.name)
    to.need(kind in DTYPES, f"the function answers with a column {name!r} of {kind}")
    return kind if kind in FLOATS else "float64"


_NAMES = (f"np.{name}" for name in (*_TO_FLOAT, *_ANY) if hasattr(np, name))
_HINT = "use one of numpy's own functions, such as " + ", ".join(_NAMES)
