"""scikit-learn's gradient boosting, old and histogram-based."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core import provenance
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.categories import Coding, codes_of, pick
from flour.ops.categorise import flatten
from flour.ops.trees.trees import Trees
from flour.ops.trees.walk import COMPARED, LEFT, RIGHT
from flour.sklearn.estimators.compose import columns_of
from flour.sklearn.estimators.forests import covers, table
from flour.sklearn.versions import renewed


@adapts("sklearn.ensemble.GradientBoostingClassifier")
def _boosted_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    scores = _boosted(fit, x, to)
    outputs = _classifier(fit, scores, to)
    if scores.type.width > 1:  # type: ignore[union-attr]  # trees make vectors
        return outputs
    # This one decides for the second class from zero on; the others only above zero.
    first = outputs["scores"].negate().greater([0.0]).cast("int64")
    return {**outputs, "label": first.take(fit.classes_[::-1])}


@adapts("sklearn.ensemble.GradientBoostingRegressor")
def _boosted_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return {"value": _boosted(fit, x, to).element(0)}


def _boosted(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The raw predictions: the first guess, then every stage's trees, scaled by the rate."""
    x = to.floats(x)
    stages, outputs = fit.estimators_.shape
    trees = [fit.estimators_[i, k].tree_ for i in range(stages) for k in range(outputs)]
    rows = [tree.value[tree.children_left < 0].reshape(-1, 1) for tree in trees]
    base, first = _first_guess(fit, x, outputs, to)
    raw = Trees(
        **table(trees),
        **covers(trees, to),
        value=np.concatenate(rows) * fit.learning_rate,
        target=np.tile(np.arange(outputs, dtype=np.int32), stages),
        base=base,
        narrow=True,
    )(x)
    return raw if first is None else raw + first


def _first_guess(
    fit: Fitted, x: Flow, outputs: int, to: Importer
) -> tuple[NDArray[np.float64], Flow | None]:
    """A constant to start from, or what an estimator of the user's own predicts."""
    if isinstance(fit.init_, str):
        return np.zeros(outputs), None
    if type(fit.init_).__name__ in ("DummyClassifier", "DummyRegressor"):
        return _constant_guess(fit, to), None
    to.need(
        not hasattr(fit, "classes_"),
        f"a gradient boosting classifier that starts from {type(fit.init_).__name__}",
        hint="train it with init=None or init='zero'",
    )
    narrow = x.cast("float32")  # the data has been narrowed for the trees by then
    return np.zeros(outputs), to.predict(fit.init_, narrow, "init")["value"].as_vector()


def _constant_guess(fit: Fitted, to: Importer) -> NDArray[np.float64]:
    """The margins of a dummy's constant prediction; probabilities are kept off 0 and 1."""
    if not hasattr(fit, "classes_"):
        return np.asarray(fit.init_.constant_, np.float64).reshape(-1)
    loss, shares = type(fit._loss).__name__, np.asarray(fit.init_.class_prior_)
    # To 1.7, single floats said how far off; to 1.3, logarithms were not centred.
    tiny = np.finfo(np.float64 if to.fitted >= (1, 8) else np.float32).eps
    if "Multinomial" in loss:
        logs: NDArray[np.float64] = np.log(np.clip(shares, tiny, 1 - tiny))
        return logs if loss == "MultinomialDeviance" else logs - logs.mean()
    (odds,) = _log_odds(np.clip(shares[1:], tiny, 1 - tiny))
    return np.array([odds / 2 if loss == "ExponentialLoss" else odds])


def _log_odds(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithms of p / (1 - p), in a way of its own where p is about a half."""
    from_half = 2.0 * (shares - 0.5)
    near = np.log1p(from_half) - np.log1p(-from_half)
    return np.where((shares < 0.3) | (shares > 0.65), np.log(shares / (1.0 - shares)), near)


def _classifier(fit: Fitted, scores: Flow, to: Importer) -> dict[str, Flow]:
    """Labels and probabilities from raw predictions, by the link of the loss."""
    loss = type(fit._loss).__name__
    if "Multinomial" in loss or loss == "CategoricalCrossEntropy":
        return to.classifier(fit.classes_, scores, scores.softmax())
    known = ("HalfBinomialLoss", "BinomialDeviance", "BinaryCrossEntropy", "ExponentialLoss")
    to.need(loss in known, f"the loss {loss} is not known here")
    flat = scores.element(0)
    second = (flat.multiply([2.0]) if loss == "ExponentialLoss" else flat).sigmoid()
    return to.classifier(fit.classes_, scores, second.one_minus().concat(second))


# --- histogram-based ---------------------------------------------------------------------------


@adapts("sklearn.ensemble.HistGradientBoostingClassifier")
def _hist_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return _classifier(fit, _hist(fit, x, to), to)


@adapts("sklearn.ensemble.HistGradientBoostingRegressor")
def _hist_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    raw = _hist(fit, x, to).element(0)
    loss = type(fit._loss).__name__
    link = _LINKS.get(loss) or type(fit._loss.link).__name__
    to.need(link in ("IdentityLink", "LogLink"), f"the link {link} is not known here")
    return {"value": raw.exp() if link == "LogLink" else raw}


#: Losses of histogram-based boosting to 1.0, which have no links.
_LINKS = {
    **dict.fromkeys(("LeastSquares", "LeastAbsoluteDeviation"), "IdentityLink"),
    "Poisson": "LogLink",
}


def _hist(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The raw predictions: the baseline, then every iteration's trees."""
    outputs = fit.n_trees_per_iteration_
    trees = [tree for iteration in fit._predictors for tree in iteration]
    if any(renewed(tree) is not tree for tree in trees[:1]):  # one version fitted them all
        trees = [*map(renewed, trees)]
    words = np.concatenate([tree.raw_left_cat_bitsets.ravel() for tree in trees])
    sizes = [(len(tree.nodes), tree.raw_left_cat_bitsets.size) for tree in trees]
    firsts = np.cumsum([(0, 0), *sizes[:-1]], axis=0)
    every = np.concatenate([tree.nodes for tree in trees])
    nodes = _hist_nodes(every, *np.repeat(firsts, [size for size, _ in sizes], axis=0).T)
    if to.covers:
        nodes["cover"] = every["count"].astype(np.float64)
    if len(words):
        nodes["words"] = words
    else:
        del nodes["category"], nodes["length"]
    return Trees(
        **nodes,
        roots=_i4(firsts[:, 0]),
        target=np.tile(np.arange(outputs, dtype=np.int32), len(fit._predictors)),
        base=np.asarray(fit._baseline_prediction, np.float64).reshape(-1),
    )(_hist_columns(fit, x, to))


def _hist_nodes(
    nodes: NDArray[Any], first_node: NDArray[np.int64], first_word: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    inner = nodes["is_leaf"] == 0
    if "is_categorical" not in (nodes.dtype.names or ()):  # to 0.23
        limits, categorical = nodes["threshold"], np.zeros(len(nodes), np.bool_)
        places = np.zeros(len(nodes), np.int64)
    else:
        limits, categorical = nodes["num_threshold"], inner & (nodes["is_categorical"] != 0)
        places = first_word + 8 * nodes["bitset_idx"].astype(int)
    number = np.cumsum(~inner) - 1
    directions = np.where(nodes["missing_go_to_left"] != 0, LEFT, RIGHT)
    return {
        "feature": np.where(inner, _i4(nodes["feature_idx"]), np.int32(-1)),
        "threshold": np.where(inner, limits, 0.0),
        "left": _i4(np.where(inner, nodes["left"].astype(int) + first_node, number)),
        "right": _i4(np.where(inner, nodes["right"].astype(int) + first_node, 0)),
        "missing": np.where(inner, directions, COMPARED).astype(np.uint8),
        "value": nodes["value"][~inner][:, None].astype(np.float64),
        "category": _i4(np.where(categorical, places, -1)),
        "length": _i4(np.where(categorical, 8, 0)),
    }


def _i4(values: NDArray[Any]) -> NDArray[np.int32]:
    return values.astype(np.int32)


def _hist_columns(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The columns as the trees number them: encoded categories first, then the numbers.

    The encoder gives NaN for an unseen category, and NaN goes the way of missing values.
    """
    if fit._preprocessor is None:
        return _known_categories(fit, to.doubles(x), to)
    prepare = fit._preprocessor
    where = prepare._transformer_to_input_indices
    parts = []
    if len(where["encoder"]):
        encoder = next(step for name, step, _ in prepare.transformers_ if name == "encoder")
        with provenance.step("categories"):
            parts.append(to.transform(encoder, columns_of(x, where["encoder"]), "encoder"))
    if len(where["numerical"]):
        parts.append(to.doubles(columns_of(x, where["numerical"])))
    return parts[0].concat(*parts[1:])


def _known_categories(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The columns for trees of versions to 1.3, which ask for the categories' own numbers."""
    places = [] if fit.is_categorical_ is None else np.flatnonzero(fit.is_categorical_).tolist()
    if not places:
        return x
    known = [np.unique(np.trunc(fit._bin_mapper.bin_thresholds_[j])).tolist() for j in places]
    codings = [Coding(np.arange(len(values))) for values in known]
    chosen = pick(x, places)  # fractions are cut off; from 1.2 on, below zero nothing is known
    chosen = chosen.floor() if to.fitted >= (1, 2) else chosen.trunc()
    codes = codes_of(chosen, known, codings, to, strict=False)
    found = codes.look_up(*flatten(known, np.float64), np.full(len(places), np.nan))
    others = [j for j in range(x.type.width) if j not in places]  # type: ignore[union-attr]  # they are doubles
    if not others:
        return found
    return found.concat(pick(x, others)).select(np.argsort([*places, *others]))
