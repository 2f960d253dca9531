"""Checks at the inputs of a program that refuse what scikit-learn's validation refuses.

Each step says what it refuses: NaN, infinity, numbers beyond float32. Between the inputs and a step
stand steps that keep such values in their columns (scalers, selections) and others that take them
away (imputers, encoders). So what a step refuses is pulled back to the columns of the inputs, where
one check a row is enough, and where the optimiser sees through it. What can come up in between (the
logarithm of a negative number) is checked there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node, extents, node, topological
from flour.core.source import Source
from flour.core.types import (
    ANYTHING,
    EXPECTED,
    FLOATS,
    LARGEST,
    LARGEST_SINGLE,
    Extent,
    Record,
    Type,
    width_of,
)
from flour.language.adapters import public_name
from flour.language.flow import Flow
from flour.ops.bases import Elementwise
from flour.ops.require import RequireFinite
from flour.pickles.standins import StandIn
from flour.sklearn import stand_ins
from objectstore import Blob

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
    *("LabelEncoder", "LabelBinarizer", "MultiLabelBinarizer", "_ConstantPredictor"),
}
#: Ensembles of imbalanced-learn, which predict as classes of scikit-learn.
_AS = {
    "BalancedRandomForestClassifier": "sklearn.ensemble.RandomForestClassifier",
    "BalancedBaggingClassifier": "sklearn.ensemble.BaggingClassifier",
    "EasyEnsembleClassifier": "sklearn.ensemble.BaggingClassifier",
    "RUSBoostClassifier": "sklearn.ensemble.AdaBoostClassifier",
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
#: Operators that leave NaN and infinity in their columns, and keep or scale other numbers.
_ARITHMETIC = frozenset(
    {"Add", "Subtract", "Multiply", "Divide", "Cast", "AsFloat", "Impute", "Abs", "Negate"}
)
#: Operators that pick columns of a record.
PICKS = frozenset({"Field", "Pick"})


class RefusedInput(NamedTuple):
    """Input that an estimator refuses: NaN, and in every column numbers larger than `largest`."""

    step: str
    #: In every column, or by column.
    nan: bool | NDArray[np.bool_]
    largest: float


def refused_by(estimator: Any, version: tuple[int, int]) -> RefusedInput | None:
    """The demand of the estimator's own validation when it predicts; None if there is none."""
    name = public_name(type(estimator))
    name = _AS.get(name.rpartition(".")[2], name) if name.startswith("imblearn.") else name
    step = name.rpartition(".")[2]
    if not name.startswith("sklearn.") or step in _UNCHECKED:
        return None
    if step == "FunctionTransformer":
        return RefusedInput(step, nan=True, largest=LARGEST) if estimator.validate else None
    if isinstance(estimator, StandIn):
        takes_nan = stand_ins.takes_nan(estimator, version)
    elif hasattr(estimator, "__sklearn_tags__"):
        takes_nan = estimator.__sklearn_tags__().input_tags.allow_nan
    else:  # scikit-learn before 1.6
        takes_nan = estimator._get_tags()["allow_nan"]
    if takes_nan and name.startswith(_SELECTION):
        return None
    if step == "MissingIndicator" and takes_nan and estimator.features == "missing-only":
        return RefusedInput(step, nan=_new(estimator), largest=LARGEST)
    if step == "SplineTransformer" and getattr(estimator, "handle_missing", "error") == "zeros":
        return None
    # An isotonic regression that was fitted on float32 converts its input to that.
    thresholds = getattr(estimator, "X_thresholds_", None)
    narrow = step in _TREES or getattr(thresholds, "dtype", None) == np.float32
    narrow |= step == "KBinsDiscretizer" and estimator.dtype == np.float32
    return RefusedInput(step, nan=not takes_nan, largest=LARGEST_SINGLE if narrow else LARGEST)


def _new(indicator: Any) -> bool | NDArray[np.bool_]:
    """The columns in which a missing value is an error, as none was when it was fitted."""
    if not indicator.error_on_new:
        return False
    every = np.ones(int(indicator.n_features_in_), np.bool_)
    every[np.asarray(indicator.features_, np.int64)] = False
    return every


#: The number of no step.
_NONE = 1 << 30


class StepDemand(NamedTuple):
    """Values that are refused in the columns of a node, and by which step.

    `steps` are the numbers of those that are the first to refuse NaN, infinity and large numbers.
    """

    steps: NDArray[np.int64]
    nan: NDArray[np.bool_]
    largest: NDArray[np.float64]

    @staticmethod
    def of(refused: RefusedInput, width: int, number: int) -> StepDemand:
        """The demand of a refusal that holds in every column of `width`."""
        nan, steps = np.empty(width, np.bool_), np.full((3, width), number)
        nan[:] = refused.nan
        steps[0, ~nan] = _NONE
        return StepDemand(steps, nan, np.full(width, refused.largest))

    @property
    def nothing(self) -> bool:
        """True if any number is fine."""
        return not self.nan.any() and bool(np.isinf(self.largest).all())

    def pick(self, columns: Any) -> StepDemand:
        """That of some columns."""
        return StepDemand(self.steps[:, columns], self.nan[columns], self.largest[columns])

    def scattered(self, columns: Any, width: int) -> StepDemand:
        """That of a vector of which these columns were picked."""
        nan, largest = np.zeros(width, np.bool_), np.full(width, np.inf)
        np.logical_or.at(nan, columns, self.nan)
        np.minimum.at(largest, columns, self.largest)
        steps, places = np.full((3, width), _NONE), np.asarray(columns, np.int64)
        np.minimum.at(steps, (np.arange(3)[:, None], places), self.steps)
        order = np.lexsort((self.steps[2], self.largest))[::-1]  # the smallest limit counts
        steps[2, places[order]] = self.steps[2, order]
        return StepDemand(steps, nan, largest)

    def both(self, other: StepDemand | None) -> StepDemand:
        """The demand that refuses what either refuses; `other` was there first."""
        if other is None:
            return self
        nan, largest = self.nan | other.nan, np.minimum(self.largest, other.largest)
        steps = np.minimum(self.steps, other.steps)
        steps[2] = np.where(self.largest < other.largest, self.steps[2], steps[2])
        steps[2] = np.where(self.largest > other.largest, other.steps[2], steps[2])
        return StepDemand(steps, nan, largest)

    def beyond(self, extent: Extent) -> StepDemand:
        """That of what numbers of this extent can be."""
        largest = np.where(self.largest < extent.largest, self.largest, np.inf)
        return self._replace(nan=self.nan & extent.nan, largest=largest)

    def with_impossible(self, extent: Extent) -> StepDemand:
        """With infinity, if NaN alone is refused of finite numbers: a sum proves that it is not."""
        widened = self.nan.all() and extent.largest <= LARGEST
        return self._replace(largest=np.minimum(self.largest, LARGEST)) if widened else self


Asked = Iterable[tuple[Node, RefusedInput]]


def with_checks(program: Flow, asked: Asked) -> Flow:
    """The program with a check for what its steps refuse of the nodes that reach them."""
    asked = [*asked]
    demands = _pulled_back([*program.outputs.values()], asked)
    if not demands and not any(isinstance(each.op, RequireFinite) for each in program.nodes()):
        return program
    names = {number: refused.step for number, (_, refused) in enumerate(asked)}

    def change(old: Node, inputs: tuple[Node, ...]) -> Node:
        op, demand = old.op, demands.get(old)
        if isinstance(op, RequireFinite) and not op.labels:
            op = op.replace(labels=_named(old.inputs[0]))
        if demand is None:
            return node(op, inputs, old)
        limits = _shortest(demand.nan), _shortest(demand.largest)
        alike = (demand.steps == demand.steps[:, :1]).all()
        by = tuple(
            names.get(int(each), "") for each in demand.steps[:, : 1 if alike else None].ravel()
        )
        steps, by = ((by[0], by[1]), ()) if alike and by[1] == by[2] else (("", ""), by)
        check = RequireFinite(*limits, *steps, _named(old), steps=by)
        return node(check, [node(op, inputs, old)])

    return program.rebuilt(change)


def _shortest(values: NDArray[Any]) -> NDArray[Any] | Blob:
    """One value where all columns have the same."""
    alike = len(values) and (values == values[:1]).all()
    return _single(values[0].item()) if alike else values


#: The few limits that all programs have.
_single = lru_cache(64, typed=True)(lambda value: Blob.of([value]))


def _pulled_back(roots: list[Node], asked: Asked) -> dict[Node, StepDemand]:
    """The checks by place: at inputs if they tell, else right behind what makes such numbers."""
    demands: dict[Node, StepDemand] = {}
    for number, (item, refused) in enumerate(asked):
        # Trees take missing values in dense rows only.
        sparse_trees = refused.step in _TREES and getattr(item.type, "sparse", False)
        strict = refused._replace(nan=True) if sparse_trees else refused
        _add(demands, item, StepDemand.of(strict, width_of(item.type), number))
    found: dict[Node, StepDemand] = {}
    order, known = topological([*roots, *demands]), _extents(demands)
    for item in reversed(order):
        if item not in demands or (demand := demands[item].beyond(known[item][0])).nothing:
            continue
        further = None if _is_input(item) else _at_inputs(item, demand, known)
        if further is None and _dtype(item.type) not in ("", "string"):
            found[item] = demand.with_impossible(known[item][0])
        for source, part in further or ():
            _add(demands, source, part)
    for item in order:
        record = demands.get(item.inputs[0]) if item.op.name in PICKS else None
        if record is not None and isinstance(item.inputs[0].op, Source):
            # The places of the columns that are picked from a record.
            names = item.inputs[0].type.names  # type: ignore[union-attr]  # it is a record
            part = record.pick([names.index(each) for each in _labels(item)])
            if not part.nothing and _dtype(item.type) != "string":
                found[item] = part.both(found.get(item))
    return found


def _extents(demands: Mapping[Node, StepDemand]) -> dict[Node, tuple[Extent, Extent]]:
    """The extents of nodes, and of what is left of them by steps that refuse some numbers."""
    before: dict[Node, Extent] = {}

    def checked(item: Node, extent: Extent) -> Extent:
        # Rows of whole numbers may come as floats: see oven/plans/plan.py.
        before[item], demand = ANYTHING if _is_input(item) else extent, demands.get(item)
        nan, largest = before[item].nan, before[item].largest
        if demand is None:
            return before[item]
        if (limit := float(np.maximum.reduce(demand.largest))) <= LARGEST:
            largest = min(largest, _most(item), limit)
        return extent._replace(nan=nan and not demand.nan.all(), largest=largest)

    after = extents(topological([*demands]), checked)
    return {item: (before[item], extent) for item, extent in after.items()}


def _most(item: Node) -> float:
    """The largest number that is expected of a node whose numbers are finite."""
    return LARGEST_SINGLE if _dtype(item.type) == "float32" else EXPECTED


def _add(demands: dict[Node, StepDemand], item: Node, demand: StepDemand) -> None:
    demands[item] = demand.both(demands.get(item))


def _is_input(item: Node) -> bool:
    """True if the node is a column of an input."""
    if item.op.name in PICKS:
        return isinstance(item.inputs[0].op, Source)
    return isinstance(item.op, Source) and not isinstance(item.type, Record)


Parts = list[tuple[Node, StepDemand]]


def _at_inputs(  # noqa: PLR0911 (one for each kind)
    item: Node, demand: StepDemand, known: Mapping[Node, tuple[Extent, Extent]]
) -> Parts | None:
    """The demands on the inputs of the node; None where they do not tell."""
    op, inputs = item.op, item.inputs
    fields = op.fields()
    if op.name == "Narrow":
        names = inputs[0].type.names  # type: ignore[union-attr]  # it is a record
        places = [names.index(each) for each in fields["labels"]]
        return [(inputs[0], demand.scattered(places, len(names)))]
    if op.name in {"Concat", "Bundle"}:
        ends = np.cumsum([0, *(width_of(each.type) for each in inputs)])
        return [*zip(inputs, (demand.pick(slice(*each)) for each in pairwise(ends)), strict=True)]
    if op.name in {"Select", "Element"}:
        columns = fields["columns"].array if op.name == "Select" else [fields["column"]]
        return [(inputs[0], demand.scattered(columns, width_of(inputs[0].type)))]
    if op.same_values:
        return [(inputs[0], demand)]
    if isinstance(item.op, Source) or _dtype(item.type) not in FLOATS:
        return []
    if isinstance(op, Elementwise):
        small = op.name in _ARITHMETIC and known[item][0].largest <= LARGEST
        if small and np.isinf(demand.largest).all():
            return [(inputs[0], demand)]  # NaN comes of NaN alone
        before = _before(item, op, demand, known[inputs[0]][1])
        return None if before is None else [(inputs[0], before)]
    return [(inputs[0], demand)] if op.name == "Ranks" else None


def _before(item: Node, op: Elementwise, demand: StepDemand, extent: Extent) -> StepDemand | None:
    """The demand on a function's input for results as demanded; None: the results have to tell."""
    (x,) = item.inputs
    narrow = _dtype(item.type) == "float32" or op.fields().get("dtype") == "float32"
    limits = np.minimum(demand.largest, LARGEST_SINGLE if narrow else LARGEST)
    limits = np.where(np.isfinite(demand.largest), limits, np.inf)
    expected = Extent(nan=False, largest=min(extent.largest, _most(x)))
    result = op.extent([expected], [x.type])
    if result.nan and demand.nan.any():
        return None
    fits = np.all(limits >= result.largest)
    if op.name in _ARITHMETIC:
        infinite = np.where(np.isfinite(limits), LARGEST, np.inf)
        before = infinite if fits else _limits_before(op, limits)
        return None if before is None else demand._replace(largest=before)
    missing, above, below = (
        (values != values) & demand.nan | (np.abs(values) > limits)  # noqa: PLR0124 (NaN)
        for values in op.at([np.nan, np.inf, -np.inf], x.type)
    )
    if not fits or (np.isinf(extent.largest) and not np.all(above == below)):
        return None
    nan, infinite = (np.array(np.broadcast_to(each, limits.shape)) for each in (missing, above))
    return StepDemand(demand.steps, nan, np.where(infinite, LARGEST, np.inf))


def _limits_before(op: Elementwise, limits: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The limits of what arithmetic with fitted numbers keeps below these; None where it varies."""
    if op.name in {"Add", "Subtract", "Multiply", "Divide"}:
        size = np.abs(op.fields()["operand"].array.reshape(-1).astype(np.float64))
        if op.name in {"Multiply", "Divide"}:
            with np.errstate(all="ignore"):
                scaled = limits * size if op.name == "Divide" else limits / size
            return np.where(np.isfinite(limits), np.minimum(scaled, LARGEST), np.inf)
        # Beside a number that is this much larger, what is added is lost.
        return limits if np.all(size <= limits * 1e-17) else None
    values = op.fields()["values"].array if op.name == "Impute" else 0.0
    return limits if np.all(np.abs(values) <= limits) else None


def _labels(item: Node) -> tuple[str, ...]:
    fields = item.op.fields()
    return fields.get("labels") or (fields["label"],)


def _named(item: Node) -> tuple[str, ...]:
    """The names of the columns of a record that the node's columns are made of, one by one."""
    if item.op.name in PICKS:
        return _labels(item)
    if item.op.name == "Concat":
        parts = [_named(each) for each in item.inputs]
        return sum(parts, ()) if all(parts) else ()
    alike = item.op.by_column and len(item.inputs) == 1
    alike = alike and width_of(item.inputs[0].type) == width_of(item.type)
    return _named(item.inputs[0]) if alike else ()


def _dtype(kind: Type) -> str:
    return getattr(kind, "dtype", "")
