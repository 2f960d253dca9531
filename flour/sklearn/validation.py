"""What scikit-learn's own validation refuses, as checks at the inputs of a program.

Each step says what it refuses: NaN, infinity, numbers beyond float32. Between the inputs and a step
stand steps that keep such values in their columns (scalers, selections) and others that take them
away (imputers, encoders). So what a step refuses is pulled back to the columns of the inputs, where
one check a row is enough, and where the optimiser sees through it. What can come up in between (the
logarithm of a negative number) is checked there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node, node, topological
from flour.core.source import Source
from flour.core.types import FLOATS, Record, Type, Vector
from flour.language.adapters import public_name
from flour.language.flow import Flow
from flour.ops.bases import Elementwise
from flour.ops.require import LARGEST, LARGEST_SINGLE, RequireFinite

#: Estimators that look at no value, or leave that to the estimators inside them.
_UNCHECKED = frozenset(
    f"{name}{kind}"
    for name in ("Dummy", "HistGradientBoosting", "Bagging", "MultiOutput", "Stacking", "Voting")
    for kind in ("Classifier", "Regressor")
) | {
    *("IsolationForest", "Pipeline", "ColumnTransformer", "FeatureUnion", "FrozenEstimator"),
    *("CalibratedClassifierCV", "FixedThresholdClassifier", "TunedThresholdClassifierCV"),
    *("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV"),
    *("OneVsOneClassifier", "OneVsRestClassifier", "OutputCodeClassifier", "RANSACRegressor"),
    *("SelfTrainingClassifier", "TransformedTargetRegressor", "CountVectorizer"),
    *("TfidfVectorizer", "HashingVectorizer", "DictVectorizer", "FeatureHasher"),
    *("LabelEncoder", "LabelBinarizer", "MultiLabelBinarizer"),
}
#: Selections check nothing where they take NaN.
_SELECTION = "sklearn.feature_selection."
#: Trees compare float32: a number beyond those is refused like infinity.
_TREES = frozenset(
    f"{name}{kind}"
    for name in ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees", "GradientBoosting")
    for kind in ("Classifier", "Regressor")
) | {"RandomTreesEmbedding"}
# Operators are told by name: programs have few of them, and the others need not be imported.
#: Where NaN or infinity comes up although nothing at the inputs is.
SOURCES_OF_NAN = frozenset(
    {
        *("Log", "Log1p", "Log2", "Log10", "Sqrt", "Exp", "Reciprocal", "BoxCox"),
        *("PythonColumns", "Acos", "Acosh", "Asin", "Atanh"),
    }
)
SAME_COLUMNS = frozenset({"ToDense", "ToSparse", "AsVector"})
#: What fills gaps, and leaves other numbers as they are.
_IMPUTERS = frozenset({"Impute", "ImputeNearest"})
#: What picks columns of a record.
PICKS = frozenset({"Field", "Pick"})


class Refused(NamedTuple):
    """What an estimator refuses: NaN, and in every column numbers larger than `largest`."""

    step: str
    #: In every column, or by column.
    nan: bool | NDArray[np.bool_]
    largest: float


def refused_by(estimator: Any) -> Refused | None:
    """What the estimator's own validation refuses when it predicts; None if nothing."""
    name = public_name(type(estimator))
    step = name.rpartition(".")[2]
    if not name.startswith("sklearn.") or step in _UNCHECKED:
        return None
    if step == "FunctionTransformer":
        return Refused(step, nan=True, largest=LARGEST) if estimator.validate else None
    takes_nan = estimator.__sklearn_tags__().input_tags.allow_nan
    if takes_nan and name.startswith(_SELECTION):
        return None
    if step == "MissingIndicator" and takes_nan and estimator.features == "missing-only":
        return Refused(step, nan=_new(estimator), largest=LARGEST)
    if step == "SplineTransformer" and getattr(estimator, "handle_missing", "error") == "zeros":
        return None
    narrow = step in _TREES or _is_single(getattr(estimator, "X_thresholds_", None))
    narrow |= step == "KBinsDiscretizer" and estimator.dtype == np.float32
    return Refused(step, nan=not takes_nan, largest=LARGEST_SINGLE if narrow else LARGEST)


def _new(indicator: Any) -> bool | NDArray[np.bool_]:
    """The columns in which a missing value is an error, as none was when it was fitted."""
    if not indicator.error_on_new:
        return False
    every = np.ones(int(indicator.n_features_in_), np.bool_)
    every[np.asarray(indicator.features_, np.int64)] = False
    return every


def _is_single(thresholds: Any) -> bool:
    """Whether an isotonic regression was fitted on float32, to which it converts its input."""
    return thresholds is not None and thresholds.dtype == np.float32


class Demand(NamedTuple):
    """What is refused in the columns of a node, and which step refuses NaN, and large numbers."""

    steps: tuple[str, str]
    nan: NDArray[np.bool_]
    largest: NDArray[np.float64]

    @staticmethod
    def of(refused: Refused, width: int) -> Demand:
        """The same in every column."""
        nan = np.array(np.broadcast_to(refused.nan, width))
        steps = (refused.step if nan.any() else "", refused.step)
        return Demand(steps, nan, np.full(width, refused.largest))

    @property
    def nothing(self) -> bool:
        """Whether any number is fine."""
        return not self.nan.any() and bool(np.isinf(self.largest).all())

    def pick(self, columns: Any) -> Demand:
        """That of some columns."""
        return Demand(self.steps, self.nan[columns], self.largest[columns])

    def scattered(self, columns: Any, width: int) -> Demand:
        """That of a vector of which these columns were picked."""
        nan, largest = np.zeros(width, np.bool_), np.full(width, np.inf)
        np.logical_or.at(nan, columns, self.nan)
        np.minimum.at(largest, columns, self.largest)
        return Demand(self.steps, nan, largest)

    def both(self, other: Demand | None) -> Demand:
        """What either refuses; `other` was there first."""
        if other is None:
            return self
        nan, largest = self.nan | other.nan, np.minimum(self.largest, other.largest)
        steps = other.steps[0] or self.steps[0], other.steps[1] or self.steps[1]
        return Demand(steps, nan, largest)

    def without_nan(self) -> Demand:
        """That of numbers with gaps which are filled."""
        return self._replace(nan=np.zeros_like(self.nan))

    def computed(self) -> Demand:
        """That of the numbers which a function of each turns into these."""
        largest = np.where(np.isfinite(self.largest), LARGEST, np.inf)
        return self._replace(largest=largest)


Asked = Iterable[tuple[Node, Refused]]


def with_checks(program: Flow, asked: Asked) -> Flow:
    """The program with a check for what its steps refuse of the nodes that reach them."""
    demands = _pulled_back([*program.outputs.values()], asked)
    if not demands:
        return program

    def change(old: Node, inputs: tuple[Node, ...]) -> Node:
        made, demand = node(old.op, inputs), demands.get(old)
        if demand is None:
            return made
        labels = _labels(old) if old.op.name in PICKS else ()
        limits = _shortest(demand.nan), _shortest(demand.largest)
        return node(RequireFinite(*limits, *demand.steps, labels), [made])

    return program.rebuilt(change)


def _shortest(values: NDArray[Any]) -> NDArray[Any]:
    """One value where all columns have the same."""
    return values[:1] if (values == values[:1]).all() else values


def _pulled_back(roots: list[Node], asked: Asked) -> dict[Node, Demand]:
    """What to check where: at inputs, and where NaN may come up."""
    demands: dict[Node, Demand] = {}
    for item, refused in reversed([*asked]):
        # Trees take missing values in dense rows only.
        sparse_trees = refused.step in _TREES and getattr(item.type, "sparse", False)
        strict = refused._replace(nan=True) if sparse_trees else refused
        _add(demands, item, Demand.of(strict, _width(item.type)))
    found: dict[Node, Demand] = {}
    order = topological([*roots, *demands])
    for item in reversed(order):
        demand = demands.get(item)
        if demand is None or demand.nothing:
            continue
        if _is_checked(item):
            found[item] = demand
        else:
            for source, part in _at_inputs(item, demand):
                _add(demands, source, part)
    for item in order:
        record = demands.get(item.inputs[0]) if item.op.name in PICKS else None
        if record is not None and isinstance(item.inputs[0].op, Source):
            part = record.pick(_places(item))
            if not part.nothing and _dtype(item.type) != "string":
                found[item] = part.both(found.get(item))
    return found


def _add(demands: dict[Node, Demand], item: Node, demand: Demand) -> None:
    demands[item] = demand.both(demands.get(item))


def _is_checked(item: Node) -> bool:
    """Whether the node is where a demand is checked: a column of an input, or a source of NaN."""
    if isinstance(item.op, Source) and not isinstance(item.type, Record):
        return _dtype(item.type) not in ("", "string")
    if item.op.name in PICKS:
        return isinstance(item.inputs[0].op, Source) and _dtype(item.type) != "string"
    return item.op.name in SOURCES_OF_NAN and _dtype(item.type) in FLOATS


def _at_inputs(item: Node, demand: Demand) -> Iterator[tuple[Node, Demand]]:
    """What a demand means for the inputs of the node; where it takes NaN away, nothing."""
    op, inputs = item.op, item.inputs
    fields = op.fields()
    if op.name == "Narrow":
        names = inputs[0].type.names  # type: ignore[union-attr]  # it is a record
        yield (
            inputs[0],
            demand.scattered([names.index(each) for each in fields["labels"]], len(names)),
        )
    elif op.name in {"Concat", "Bundle"}:
        start = 0
        for each in inputs:
            yield each, demand.pick(slice(start, start + _width(each.type)))
            start += _width(each.type)
    elif op.name == "Select":
        yield inputs[0], demand.scattered(fields["columns"].array, _width(inputs[0].type))
    elif op.name == "Element":
        yield inputs[0], demand.scattered([fields["column"]], _width(inputs[0].type))
    elif op.name in SAME_COLUMNS:
        yield inputs[0], demand
    elif op.name in _IMPUTERS and _width(inputs[0].type) == _width(item.type):
        marker = fields.get("marker", np.nan)
        yield inputs[0], demand if marker == marker else demand.without_nan()  # noqa: PLR0124 (NaN)
    elif (isinstance(op, Elementwise) or op.name == "Ranks") and _dtype(item.type) in FLOATS:
        casts = op.name in {"Cast", "AsFloat"}
        yield inputs[0], demand if casts else demand.computed()


def _places(item: Node) -> list[int]:
    """The places of the columns that are picked from a record."""
    names = item.inputs[0].type.names  # type: ignore[union-attr]  # it is a record
    return [names.index(each) for each in _labels(item)]


def _labels(item: Node) -> tuple[str, ...]:
    fields = item.op.fields()
    return fields.get("labels") or (fields["label"],)


def _width(kind: Type) -> int:
    if isinstance(kind, Record):
        return len(kind.names)
    return kind.width if isinstance(kind, Vector) else 1


def _dtype(kind: Type) -> str:
    return getattr(kind, "dtype", "")
