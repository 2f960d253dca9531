"""Adapters of sklearn.neural_network: layers of products and activations."""

from __future__ import annotations

from collections.abc import Callable

from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.linear import affine
from flour.sklearn.estimators.linear_models import both

ACTIVATIONS: dict[str, Callable[[Flow], Flow]] = {
    "identity": lambda x: x,
    "relu": lambda x: x.relu(),
    "tanh": lambda x: x.tanh(),
    "logistic": lambda x: x.sigmoid(),
    "softmax": lambda x: x.softmax(),
    "exp": lambda x: x.exp(),
}


def _forward(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The activations of the last layer."""
    x = to.matrix(x)
    names = [fit.activation] * (fit.n_layers_ - 2) + [fit.out_activation_]
    for weights, bias, name in zip(fit.coefs_, fit.intercepts_, names, strict=True):
        to.need(name in ACTIVATIONS, f"the activation {name!r} is not known here")
        x = ACTIVATIONS[name](affine(x, weights.T, bias))
    return x


@adapts("sklearn.neural_network.MLPRegressor")
def _regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    activations = _forward(fit, x, to)
    return {"value": activations.element(0) if fit.n_outputs_ == 1 else activations}


@adapts("sklearn.neural_network.MLPClassifier")
def _classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    activations = _forward(fit, x, to)
    kind = fit._label_binarizer.y_type_
    if kind == "multiclass":
        return {"label": activations.arg_max().take(fit.classes_), "probabilities": activations}
    above = activations.greater([0.5]).cast("int64")
    if kind == "multilabel-indicator":
        return {"label": above, "probabilities": activations}
    return {"label": above.element(0).take(fit.classes_), "probabilities": both(activations)}


@adapts("sklearn.neural_network.BernoulliRBM")
def _machine(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return affine(to.floats(x), fit.components_, fit.intercept_hidden_).sigmoid()
