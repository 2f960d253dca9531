"""Stand-ins for objects of scikit-learn in files that are read as data (`flour.pickles`).

Importers read the attributes of fitted estimators. Where they ask for more, an object's fields or
the methods that an estimator offers, the kinds below answer from the attributes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.pickles.standins import Global, StandIn
from flour.sklearn import frame_stand_ins as _frames  # noqa: F401  # it registers them
from flour.sklearn.english import STOP_WORDS
from flour.sklearn.selected import selected

_PREDICTS = (
    *("AdaBoost", "Bagging", "DecisionTree", "Dummy", "ExtraTree", "ExtraTrees", "RandomForest"),
    *("GaussianProcess", "GradientBoosting", "HistGradientBoosting", "KNeighbors", "MLP"),
    "RadiusNeighbors",
)
#: Classifiers that always have these methods.
_PROBABLE = frozenset(f"{name}Classifier" for name in _PREDICTS) | {
    *("BayesianGaussianMixture", "BernoulliNB", "CalibratedClassifierCV", "CategoricalNB"),
    *("ComplementNB", "GaussianMixture", "GaussianNB", "LabelPropagation", "LabelSpreading"),
    *("LinearDiscriminantAnalysis", "LogisticRegression", "LogisticRegressionCV"),
    *("MultinomialNB", "QuadraticDiscriminantAnalysis", "_ConstantPredictor"),
    "_BinaryGaussianProcessClassifierLaplace",
    *("LGBMClassifier", "XGBClassifier", "XGBRFClassifier", "CatBoostClassifier"),
}
_DECIDING = frozenset(
    {
        *("AdaBoostClassifier", "EllipticEnvelope", "GradientBoostingClassifier"),
        *("HistGradientBoostingClassifier", "IsolationForest", "LinearDiscriminantAnalysis"),
        *("LinearSVC", "LogisticRegression", "LogisticRegressionCV", "NuSVC", "OneClassSVM"),
        *("OneVsOneClassifier", "PassiveAggressiveClassifier", "Perceptron", "SGDOneClassSVM"),
        *("QuadraticDiscriminantAnalysis", "RidgeClassifier", "RidgeClassifierCV", "SVC"),
        *("SGDClassifier", "_ConstantPredictor", "LGBMClassifier", "LocalOutlierFactor"),
    }
)
#: Where an estimator keeps those that it asks.
_INNER = (
    *("best_estimator_", "final_estimator_", "estimator_", "estimators_", "base_estimator_"),
    "estimator",
)
#: Arrays with an item, or a column, for each column of the data; to 0.23 nothing else says it.
_WIDE = (
    *("x_mean_", "ranking_", "coef_", "scale_", "data_max_", "center_", "statistics_"),
    *("support_vectors_", "components_", "_fit_X", "X_fit_", "X_train_", "centroids_", "theta_"),
    *("sigma_", "means_", "cluster_centers_", "subcluster_centers_", "variances_", "location_"),
    *("quantiles_", "lambdas_", "n_bins_", "scores_", "bin_edges_", "training_data_"),
)
_READERS = (
    *("best_estimator_", "estimators_", "estimator_", "calibrated_classifiers_", "estimator"),
    *("base_estimator", "nbrs_", "initial_imputer_"),
)
#: The first version that takes NaN, of classes that did not always.
_NAN_SINCE = {
    **dict.fromkeys(("DecisionTreeClassifier", "DecisionTreeRegressor"), (1, 3)),
    **dict.fromkeys(("RandomForestClassifier", "RandomForestRegressor"), (1, 4)),
    **dict.fromkeys(("ExtraTreeClassifier", "ExtraTreeRegressor"), (1, 6)),
    **dict.fromkeys(("ExtraTreesClassifier", "ExtraTreesRegressor"), (1, 6)),
    "RandomTreesEmbedding": (1, 6),
    "OrdinalEncoder": (1, 0),
    "OneHotEncoder": (0, 24),
}
_TAKE_NAN = frozenset(
    {
        *("MaxAbsScaler", "MinMaxScaler", "PowerTransformer", "QuantileTransformer"),
        *("RobustScaler", "StandardScaler", "TargetEncoder", "VarianceThreshold"),
        *_NAN_SINCE,
    }
)
_NAN_CRITERIA = frozenset(
    ("gini", "log_loss", "entropy", "squared_error", "friedman_mse", "poisson")
)


class Estimator(StandIn, packages="sklearn imblearn feature_engine category_encoders"):
    """An estimator: any object of scikit-learn that says what version fitted it."""

    def __sklearn_is_fitted__(self) -> bool:
        return any(name[-1] == "_" != name[0] for name in vars(self))

    def __getattr__(self, name: str) -> Any:
        if name in _OFFERED and _OFFERED[name](self):
            return _OfferedMethod(self, name)
        if name in _DERIVED:
            with suppress(AttributeError, LookupError, StopIteration):
                return _DERIVED[name](self)
        said = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(said, name=name, obj=self)


class _OfferedMethod:
    """A method that an estimator has, of which only the name is known."""

    __slots__ = ("_name", "_of")

    def __init__(self, of: Estimator, name: str) -> None:
        self._of, self._name = of, name


def _asked(estimator: StandIn) -> Any:
    """The estimator that answers within another one; None of those that answer themselves."""
    own = vars(estimator)
    if "steps" in own:
        return own["steps"][-1][1]
    for name in _INNER:
        found = own.get(name)
        found = found[0] if isinstance(found, list) and found else found
        if isinstance(found, StandIn):
            return found
    return None


def _probable(estimator: StandIn) -> bool:
    name, own = type(estimator).__name__, vars(estimator)
    if name in _PROBABLE:
        return True
    if name == "SGDClassifier":
        return own.get("loss") in ("log", "log_loss", "modified_huber")
    if name in ("SVC", "NuSVC"):
        return bool(own.get("probability") == True)  # noqa: E712  # or "deprecated", or of numpy
    if name == "NearestCentroid":
        return "within_class_std_dev_" in own and bool(own["metric"] == "euclidean")
    if name == "VotingClassifier":
        return bool(own.get("voting") == "soft")
    inner = None if name.endswith("Regressor") else _asked(estimator)
    return inner is not None and hasattr(inner, "predict_proba")


def _deciding(estimator: StandIn) -> bool:
    if type(estimator).__name__ in _DECIDING:
        return True
    if type(estimator).__name__ == "NearestCentroid":
        return _probable(estimator)
    inner = _asked(estimator)
    return inner is not None and hasattr(inner, "decision_function")


#: Packages of what chooses rows while a pipeline is trained.
_SAMPLERS = tuple(
    f"imblearn.{name}" for name in ("over_sampling", "under_sampling", "combine", "base")
)
_OFFERED: dict[str, Callable[[StandIn], bool]] = {
    "fit": lambda _: True,
    "get_params": lambda _: True,
    "predict_proba": _probable,
    "predict_log_proba": _probable,
    "decision_function": _deciding,
    "fit_resample": lambda estimator: type(estimator).__module__.startswith(_SAMPLERS),
}


# --- attributes and methods that other attributes give -------------------------------------------


def _first(estimator: StandIn) -> Any:
    """The estimator that reads the input first."""
    own = vars(estimator)
    steps = [step for _, step in own.get("steps", own.get("transformer_list", ()))]
    found = (own.get(name) for name in _READERS)
    inner = [each for some in found for each in (some if isinstance(some, list) else [some])]
    return next(step for step in (*steps, *inner) if isinstance(step, StandIn))


def _width(estimator: StandIn) -> int:
    """The width that an estimator reads but does not state itself."""
    own = vars(estimator)
    if "categories_" in own:
        return len(own["categories_"])
    if "shape_fit_" in own:  # of a kernel that was computed before, rows
        return int(own["shape_fit_"][1])
    for name in _WIDE:
        if shape := getattr(own.get(name), "shape", ()):
            return int(shape[-1])
    for name in ("n_features_", "n_input_features_", "_n_features"):
        if name in own:
            return int(own[name])
    if "coefs_" in own:
        return len(own["coefs_"][0])
    width: int = _first(estimator).n_features_in_
    return width


def _of_final(name: str) -> Callable[[StandIn], Any]:
    """An attribute of the estimator that answers in the end."""
    return lambda estimator: getattr(_asked(estimator), name)


def _multilabel(estimator: StandIn) -> bool:
    kind: str = estimator.label_binarizer_.y_type_  # type: ignore[attr-defined]  # it is a stand-in
    return kind.startswith("multilabel")


def _weights(estimator: StandIn) -> list[float] | None:
    own = vars(estimator)
    pairs = zip(own["estimators"], own.get("weights") or (), strict=False)
    return [weight for (_, child), weight in pairs if child != "drop"] or None


def _stop_words(estimator: StandIn) -> Callable[[], frozenset[str] | None]:
    words = vars(estimator).get("stop_words")
    found = STOP_WORDS if words == "english" else words
    return lambda: None if found is None else frozenset(found)


def _precision(estimator: StandIn) -> Callable[[], NDArray[Any]]:
    own = vars(estimator)
    return lambda: (
        _pseudo_inverse(own["covariance_"]) if own["precision_"] is None else own["precision_"]
    )


def _pseudo_inverse(table: NDArray[Any]) -> NDArray[Any]:
    """The pseudo-inverse of a symmetric matrix, as scipy has it."""
    values, vectors = np.linalg.eigh(table)
    limit = np.abs(values).max() * max(table.shape) * np.finfo(values.dtype).eps
    kept = np.abs(values) > limit
    found: NDArray[Any] = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return found


def _support(estimator: StandIn) -> Callable[[], NDArray[np.bool_]]:
    return lambda: selected(type(estimator).__name__, vars(estimator))


_DERIVED: dict[str, Callable[[StandIn], Any]] = {
    "n_features_in_": _width,
    "feature_names_in_": lambda estimator: _first(estimator).feature_names_in_,
    "classes_": _of_final("classes_"),
    "n_outputs_": _of_final("n_outputs_"),
    "multilabel_": _multilabel,
    "_weights_not_none": _weights,
    "get_stop_words": _stop_words,
    "get_precision": _precision,
    "get_support": _support,
    "_loss": lambda estimator: vars(estimator)["loss_"],
    "X_thresholds_": lambda estimator: vars(estimator)["_necessary_X_"],
    "y_thresholds_": lambda estimator: vars(estimator)["_necessary_y_"],
}


def takes_nan(estimator: StandIn, version: tuple[int, int]) -> bool:
    """True if an estimator does not refuse NaN, as the version of scikit-learn had it."""
    name, own = type(estimator).__name__.removeprefix("Balanced"), vars(estimator)
    inner = own.get("estimator_", own.get("estimator"))
    if name in ("RFE", "RFECV", "SelectFromModel", "SequentialFeatureSelector"):
        return isinstance(inner, StandIn) and takes_nan(inner, version)
    if name in ("SimpleImputer", "KNNImputer", "MissingIndicator", "IterativeImputer"):
        marker = own.get("missing_values")
        return marker is None or bool(np.isreal(marker) and np.isnan(marker))
    if name == "SplineTransformer":
        return bool(own.get("handle_missing") == "zeros")
    if name.startswith(("KNeighbors", "RadiusNeighbors")):
        return bool(own.get("metric") == "nan_euclidean")
    if name.startswith(("DecisionTree", "RandomForest", "ExtraTree")):
        plain = own.get("criterion") in _NAN_CRITERIA and own.get("monotonic_cst") is None
        if name in _NAN_SINCE and version < (1, 6):
            plain = plain and own.get("splitter", "best") == "best"
        return plain and version >= _NAN_SINCE.get(name, (0, 0))
    return name in _TAKE_NAN and version >= _NAN_SINCE.get(name, (0, 0))


class TreeStandIn(StandIn, names="sklearn.Tree"):
    """The nodes of a decision tree."""

    nodes: NDArray[Any]
    values: NDArray[Any]

    def __getattr__(self, name: str) -> Any:
        nodes = vars(self).get("nodes")
        if nodes is None or name not in (nodes.dtype.names or ()):
            raise AttributeError(f"a tree has no {name!r}", name=name, obj=self)
        return np.ascontiguousarray(nodes[name])

    @property
    def children_left(self) -> NDArray[Any]:
        """The numbers of the nodes on the left; -1 of leaves."""
        return np.ascontiguousarray(self.nodes["left_child"])

    @property
    def children_right(self) -> NDArray[Any]:
        """The numbers of the nodes on the right; -1 of leaves."""
        return np.ascontiguousarray(self.nodes["right_child"])

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return len(self.nodes)

    @property
    def value(self) -> NDArray[Any]:
        """The values of each node, by output and class."""
        return self.values

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return int((self.nodes["left_child"] == -1).sum())


class TripletStandIn(StandIn, names="sklearn._ImputerTriplet"):
    """One step of an iterative imputer, a tuple with names."""

    def begin(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Take the values by their names."""
        super().begin((), named)
        names = ("feat_idx", "neighbor_feat_idx", "estimator")
        vars(self).update(zip(names, arguments, strict=True))


_SEARCHES = "BallTree BallTree32 BallTree64 KDTree KDTree32 KDTree64 BinaryTree"


class SearchStandIn(StandIn, names=" ".join(f"sklearn.{name}" for name in _SEARCHES.split())):
    """A tree of points, which neighbours are searched in."""

    def get_arrays(self) -> tuple[NDArray[Any], ...]:
        """The points, their numbers by node, the nodes and their bounds."""
        return tuple(self._state[:4])

    _state: tuple[Any, ...]


class SparseStandIn(
    StandIn, names="scipy.csr_matrix scipy.csc_matrix scipy.csr_array scipy.csc_array"
):
    """A sparse matrix of scipy, by rows or by columns."""

    _shape: tuple[int, int]
    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        rows, columns = self._shape
        return int(rows), int(columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return self.data.dtype

    def toarray(self) -> NDArray[Any]:
        """The matrix with its zeros."""
        by_rows = type(self).__name__.startswith("csr")
        found = np.zeros(self.shape if by_rows else self.shape[::-1], self.data.dtype)
        at = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        np.add.at(found, (at, self.indices), self.data)
        return found if by_rows else found.T

    def diagonal(self) -> NDArray[Any]:
        """The values on the diagonal."""
        return np.asarray(self.toarray().diagonal())


class DiagonalStandIn(StandIn, names="scipy.dia_matrix"):
    """A sparse matrix of scipy by its diagonals."""

    data: NDArray[Any]

    def diagonal(self) -> NDArray[Any]:
        """The values on the main diagonal, which is the only one that models keep."""
        return np.asarray(self.data[0])


class ScorerStandIn(Estimator, names="sklearn._CurveScorer"):
    """A score as a function of the threshold."""

    def _get_pos_label(self) -> Any:
        """The class that counts, which functions for two classes have a default for."""
        of_one = ("f1", "fbeta", "jaccard", "precision", "recall", "average")
        default = 1 if self._score_func.name.partition("_")[0] in of_one else None
        return self._kwargs.get("pos_label", default)

    _score_func: Global
    _kwargs: dict[str, Any]


class SplineStandIn(StandIn, names="scipy.BSpline"):
    """Splines of scipy over one column."""

    def build(self, state: object) -> None:
        """Take the attributes, which later versions keep in an object of their own."""
        inner = state[0] if isinstance(state, tuple) and state else None
        super().build(vars(inner) if isinstance(inner, StandIn) else state)

    def __getattr__(self, name: str) -> Any:
        if name in ("t", "c") and f"_{name}" in vars(self):
            return vars(self)[f"_{name}"]
        raise AttributeError(f"splines have no {name!r}", name=name, obj=self)

    def __call__(self, x: float, nu: int = 0) -> NDArray[np.float64]:
        """The splines' values at x, or their slopes (de Boor's recursion)."""
        knots, degree = self.t, int(self.k)
        count = len(knots) - degree - 1
        at = int(np.clip(np.searchsorted(knots, x, "right") - 1, degree, count - 1))
        values = np.zeros(degree + 1)
        values[0] = 1.0
        for order in range(1, degree + 1):
            before, values[0] = values.copy(), 0.0
            for n in range(1, order + 1):
                right, left = knots[at + n], knots[at + n - order]
                if right == left:
                    values[n] = 0.0
                    continue
                weight = before[n - 1] / (right - left)
                if order > degree - nu:
                    values[n - 1] -= order * weight
                    values[n] = order * weight
                else:
                    values[n - 1] += weight * (right - x)
                    values[n] = weight * (x - left)
        found = np.zeros(count)
        found[at - degree : at + 1] = values
        return np.asarray(found @ self.c)
