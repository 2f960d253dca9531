"""Results of statsmodels: linear models, generalised ones, and those of classes and counts.

Rows hold the columns of the model's matrix, as `predict` has them, with the constant where there is
one. Of formulas, those that add up columns as they are can be read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flour.core.types import Record, Scalar, Type, Vector
from flour.language.adapters import INPUT_TYPES, Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.linear import affine

_KINDS = {
    "regression.linear_model": "RegressionResults OLSResults",
    "regression.quantile_regression": "QuantRegResults",
    "robust.robust_linear_model": "RLMResults",
    "genmod.generalized_linear_model": "GLMResults",
    "discrete.discrete_model": "BinaryResults LogitResults ProbitResults PoissonResults "
    "MultinomialResults",
}
_NAMES = [
    f"statsmodels.{module}.{name}{tail}"
    for module, names in _KINDS.items()
    for name in names.split()
    for tail in ("", "Wrapper")
]
_CONSTANT = "Intercept"
_MATRIX = "fit it on a matrix, sm.OLS(y, X), whose columns a pipeline or patsy.dmatrices has made"


@adapts(*_NAMES)
def _results(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    found = vars(fit).get("_results", fit)
    model, weights, constant = found.model, np.asarray(found.params, np.float64), np.zeros(1)
    if hasattr(model, "formula"):
        names = _columns(model)
        plain = bool(names) and all(name.isidentifier() for name in names)
        to.need(plain, f"the formula {model.formula!r} is no sum of columns as they are", _MATRIX)
        own = np.array([name != _CONSTANT for name in names])
        weights, constant = weights[own], weights[~own].sum(axis=0)
    sums = affine(to.doubles(x), weights.T, constant)
    if type(model).__name__ == "MNLogit":  # the first class has no weights
        each = sums.fill([0.0]).concat(sums).exp()
        return {"probabilities": each / each.sum()}
    link, power = _OF_MODELS.get(type(model).__name__, "identity"), 1.0
    if hasattr(model, "family"):
        found = vars(model.family)["_link"]
        link, power = type(found).__name__, float(getattr(found, "power", 1.0))
    name = link.lower().replace("_", "")  # to 0.13, classes have names in small letters
    to.need(name in _INVERSES, f"the link {link} has no inverse here", "use another one")
    return {"value": _INVERSES[name](sums.element(0), power)}


#: Links of models that have no family.
_OF_MODELS = {"Logit": "logit", "Probit": "probit", "Poisson": "log"}
#: By the class of a link in small letters: its inverse, from what the link adds up and its power.
_INVERSES: dict[str, Callable[[Flow, float], Flow]] = {
    "identity": lambda x, _: x,
    "log": lambda x, _: x.exp(),
    "logit": lambda x, _: x.sigmoid(),
    "probit": lambda x, _: ((x / float(np.sqrt(2.0))).erf() + 1.0) / 2.0,
    "cloglog": lambda x, _: x.exp().negate().exp().one_minus(),
    "loglog": lambda x, _: x.negate().exp().negate().exp(),
    **dict.fromkeys(
        ("power", "inversepower", "inversesquared", "sqrt"),
        lambda x, power: x if power == 1 else x.power(1 / power),
    ),
}


def _columns(model: Fitted) -> list[str]:
    """The names of the columns of the frame that a model was fitted on; none if there was none."""
    frame = getattr(model.data, "orig_exog", None)
    return [str(name) for name in getattr(frame, "columns", ())]


def _input(fit: Fitted) -> Type:
    """The columns of a model's matrix, by their names where it has some."""
    found = vars(fit).get("_results", fit)
    names, formula = _columns(found.model), hasattr(found.model, "formula")
    names = [name for name in names if not formula or name != _CONSTANT]
    if not names or len(set(names)) < len(names):
        return Vector(len(np.asarray(found.params)))
    return Record(tuple((name, Scalar("float64")) for name in names))


INPUT_TYPES.update({f"statsmodels.{module}": _input for module in _KINDS})
