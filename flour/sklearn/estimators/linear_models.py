"""Adapters of sklearn.linear_model and sklearn.neural_network.

Linear models are one matrix product and a link, networks are layers of products and activations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.linear import affine, plain

# --- regressors -----------------------------------------------------------------------------------


@adapts(
    *(
        f"sklearn.linear_model.{name}"
        for name in (
            *("LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet"),
            *("ElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV", "MultiTaskElasticNet"),
            *("MultiTaskElasticNetCV", "Lars", "LarsCV", "LassoLars", "LassoLarsCV"),
            *("LassoLarsIC", "OrthogonalMatchingPursuit", "OrthogonalMatchingPursuitCV"),
            *("BayesianRidge", "ARDRegression", "HuberRegressor", "TheilSenRegressor"),
            *("QuantileRegressor", "SGDRegressor", "PassiveAggressiveRegressor"),
        )
    ),
    "sklearn.svm.LinearSVR",
)
def _regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    products = affine(to.matrix(x), fit.coef_, fit.intercept_)
    # A target fitted as a column is predicted as a column, except by the stochastic models.
    single = plain(fit.coef_).ndim == 1 or type(fit).__name__.startswith("SGD")
    return {"value": products.element(0) if single else products}


@adapts(
    "sklearn.linear_model.PoissonRegressor",
    "sklearn.linear_model.GammaRegressor",
    "sklearn.linear_model.TweedieRegressor",
)
def _generalised(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    raw = affine(to.matrix(x), fit.coef_, fit.intercept_).element(0)
    link = type(fit._base_loss.link).__name__
    to.need(link in ("IdentityLink", "LogLink"), f"the link {link} has no inverse here")
    return {"value": raw.exp() if link == "LogLink" else raw}


@adapts("sklearn.linear_model.RANSACRegressor")
def _ransac(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return to.predict(fit.estimator_, x, "estimator_")


# --- classifiers ----------------------------------------------------------------------------------


@adapts("sklearn.linear_model.LogisticRegression", "sklearn.linear_model.LogisticRegressionCV")
def _logistic(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    multi = getattr(fit, "multi_class", None)  # to 1.7
    scores = affine(to.matrix(x), fit.coef_, fit.intercept_)
    if len(fit.classes_) > 2:
        # Later versions fit one model of all classes: one row of iterations, and no liblinear.
        if fit.solver == "liblinear" or (multi == "ovr" and len(fit.n_iter_) > 1):
            return to.classifier(fit.classes_, scores, scores.sigmoid().share())
        return to.classifier(fit.classes_, scores, scores.softmax())
    if multi == "multinomial":
        return to.classifier(fit.classes_, scores, scores.negate().concat(scores).softmax())
    return to.classifier(fit.classes_, scores, both(scores.sigmoid()))


@adapts(
    "sklearn.linear_model.SGDClassifier",
    "sklearn.linear_model.Perceptron",
    "sklearn.linear_model.PassiveAggressiveClassifier",
    "sklearn.svm.LinearSVC",
)
def _linear_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    scores = affine(to.matrix(x), fit.coef_, fit.intercept_)
    chances = _chances(scores, fit, to) if hasattr(fit, "predict_proba") else None
    return to.classifier(fit.classes_, scores, chances)


def _chances(scores: Flow, fit: Fitted, to: Importer) -> Flow:
    """Probabilities of independent two-class models, made to add up."""
    binary = len(fit.classes_) == 2
    if fit.loss in ("log_loss", "log"):  # to 1.0
        chances = scores.sigmoid()
        if not binary and to.fitted < (1, 9):  # where all are zero, none adds up to one
            return chances / chances.sum()
    else:
        # The second class's probability goes into a float64 array for data of any dtype.
        clipped = scores.clip([-1.0], [1.0])
        chances = (clipped.cast("float64") if binary else clipped) + 1.0
        chances = chances / 2.0
    return both(chances) if binary else chances.proportions()


@adapts("sklearn.linear_model.RidgeClassifier", "sklearn.linear_model.RidgeClassifierCV")
def _ridge_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    scores = affine(to.matrix(x), fit.coef_, fit.intercept_)
    if fit._label_binarizer.y_type_.startswith("multilabel"):
        return {"label": scores.greater([0.0]).cast("int64"), "scores": scores}
    return to.classifier(fit.classes_, scores)


@adapts("sklearn.linear_model.SGDOneClassSVM")
def _one_class(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    scores = affine(to.matrix(x), fit.coef_, -fit.offset_).element(0)
    return {"label": inliers(scores, "int32"), "scores": scores}


def both(second: Flow) -> Flow:
    """The probabilities of two classes, from that of the second."""
    return second.one_minus().concat(second)


def inliers(scores: Flow, dtype: str) -> Flow:
    """1 where the score is zero or more, else (NaN, from data that overflows) -1."""
    return scores.greater_equal([0.0]).cast("int64").take(np.array([-1, 1], dtype))


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
def _network_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    activations = _forward(fit, x, to)
    return {"value": activations.element(0) if fit.n_outputs_ == 1 else activations}


@adapts("sklearn.neural_network.MLPClassifier")
def _network_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
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
