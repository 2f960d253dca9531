"""Models of a transformed target: the inverse transformation runs after the model."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy import exp, log1p
from numpy.typing import NDArray

from flour.core.emission import Emitter, ScalarValue
from flour.core.native import expression
from flour.core.op import Array
from flour.core.types import Vector
from flour.core.words import Number, cast
from flour.language.adapters import Fitted, Importer, adapter_of, adapts, public_name
from flour.language.flow import Flow
from flour.ops.bases import FloatElementwise

_EPSILON = float(np.spacing(1.0))


class UndoYeoJohnson(FloatElementwise, monotone=True):
    """The number whose Yeo-Johnson transform is x, an exponent a column, in the wider width."""

    exponents: Array

    def compute(self, x: NDArray[Any]) -> Any:
        powers = np.broadcast_to(self.exponents.array.reshape(-1), x.shape)
        wide = x.astype(np.result_type(x, powers))
        up, down = np.maximum(wide, 0), np.minimum(wide, 0)
        above = np.where(
            np.abs(powers) < _EPSILON, np.exp(up) - 1, np.power(up * powers + 1, 1 / powers) - 1
        )
        rest = 2 - powers
        below = np.where(
            np.abs(powers - 2) > _EPSILON,
            1 - np.power(-rest * down + 1, 1 / rest),
            1 - np.exp(-down),
        )
        result = np.where(wide >= 0, above, below)
        return np.where(np.isnan(wide), wide, result).astype(x.dtype)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        power = ScalarValue(e.at(self.exponents, j, "float64"), "float64")
        return expression(e, yeo_johnson_undone, x, power)


def yeo_johnson_undone(x: Number, power: Number) -> Number:
    """The number whose transform is x."""
    result = cast(x, "float64")
    if result >= 0.0:
        if abs(power) < _EPSILON:
            result = exp(result) - 1.0
        else:
            result = (result * power + 1.0) ** (1.0 / power) - 1.0
    else:
        rest = 2.0 - power
        if abs(power - 2.0) > _EPSILON:
            result = 1.0 - (-rest * result + 1.0) ** (1.0 / rest)
        else:
            result = 1.0 - exp(-result)
    return cast(result, x.dtype)


class UndoBoxCox(FloatElementwise, monotone=True):
    """The number whose Box-Cox transform is x, an exponent a column, in float64."""

    exponents: Array

    def compute(self, x: NDArray[Any]) -> Any:
        powers = np.broadcast_to(self.exponents.array.reshape(-1).astype(np.float64), x.shape)
        wide = x.astype(np.float64)
        result = np.where(powers == 0, np.exp(wide), np.exp(np.log1p(powers * wide) / powers))
        return result.astype(x.dtype)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        power = ScalarValue(e.at(self.exponents, j, "float64"), "float64")
        return expression(e, box_cox_undone, x, power)


def box_cox_undone(x: Number, power: Number) -> Number:
    """The number whose transform is x."""
    result = cast(x, "float64")
    if power != 0.0:
        result = log1p(power * result) / power
    return cast(exp(result), x.dtype)


# --- adapters -------------------------------------------------------------------------------------


@adapts("sklearn.compose.TransformedTargetRegressor")
def _transformed_target(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    value = to.predict(fit.regressor_, x, "regressor_")["value"]
    target = undone(fit.transformer_, to.matrix(value), to)
    flat = fit._training_dim == 1 and isinstance(target.type, Vector) and target.type.width == 1
    return {"value": target.element(0) if flat else target}


def undone(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """x after a fitted transformer's inverse_transform."""
    name = public_name(type(fit))
    if name == "sklearn.pipeline.Pipeline":
        for _, step in reversed(fit.steps):
            if step is not None and not isinstance(step, str):
                x = undone(step, x, to)
        return x
    if name == "sklearn.preprocessing.FunctionTransformer":
        inverse = SimpleNamespace(func=fit.inverse_func, kw_args=fit.inv_kw_args)
        adapter = adapter_of(name)
        assert adapter is not None, "it is one of ours"
        result: Flow = adapter(inverse, x, to)
        return result
    to.need(
        name in _INVERSES,
        f"the inverse of {type(fit).__name__} is not imported",
        "transform the target by " + ", ".join(key.rpartition(".")[2] for key in _INVERSES),
    )
    return _INVERSES[name](fit, to.floats(x), to)


def _undo_standard(fit: Fitted, x: Flow, _to: Importer) -> Flow:
    x = x.multiply(fit.scale_) if fit.with_std else x
    return x.add(fit.mean_) if fit.with_mean else x


def _undo_robust(fit: Fitted, x: Flow, _to: Importer) -> Flow:
    x = x.multiply(fit.scale_, wide=True) if fit.with_scaling else x
    return x.add(fit.center_, wide=True) if fit.with_centering else x


def _undo_power(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = undone(fit._scaler, x, to) if fit.standardize else x
    box_cox = fit.method == "box-cox"
    return x.undo_box_cox(fit.lambdas_) if box_cox else x.undo_yeo_johnson(fit.lambdas_)


_INVERSES: dict[str, Callable[[Fitted, Flow, Importer], Flow]] = {
    "sklearn.preprocessing.StandardScaler": _undo_standard,
    "sklearn.preprocessing.MinMaxScaler": lambda fit, x, _to: x.subtract(
        fit.min_, wide=True
    ).divide(fit.scale_, wide=True),
    "sklearn.preprocessing.MaxAbsScaler": lambda fit, x, _to: x.multiply(fit.scale_, wide=True),
    "sklearn.preprocessing.RobustScaler": _undo_robust,
    "sklearn.preprocessing.PowerTransformer": _undo_power,
}
