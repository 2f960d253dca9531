"""Rows that are unlike the reference's, which ordinary plans find.

Such a plan answers as scikit-learn's detectors do: `scores`, of which less is stranger, and
`label`, -1 for an outlier. Three are made of reference rows; any other, such as an imported
IsolationForest, is trained. All run in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import flour
import oven
from flour.core.errors import FlourError, ParameterError, nearest
from flour.language.flow import Flow
from oven import HasPlan, Plan
from runtime.service.private import column_names
from runtime.watch.rows import Table, answers_of

#: The share of reference rows beyond the threshold of a detector that is made of them.
SHARE = 0.001
#: What the components of "pca" have of the variance; the residual is the rest.
_VARIANCE = 0.95
#: Makes directions in which the reference does not vary count much instead of endlessly.
_RIDGE = 1e-6
#: The strangest rows that are kept.
_KEPT = 20

Matrix = NDArray[np.float64]
Detectors = Sequence[str] | Mapping[str, str | Flow | Plan]


class Stranger(NamedTuple):
    """An outlying row: its score, of which less is stranger, and its columns but private ones."""

    score: float
    row: dict[str, Any]


class Outliers:
    """Counts of a plan's outliers, and the strangest of them."""

    def __init__(self, name: str, plan: Plan, private: frozenset[str]) -> None:
        self.name, self.plan = name, plan
        self._private = private
        #: Rows that were looked at, outliers among them, and rows that the plan refused.
        self.rows = self.found = self.refused = 0
        #: The strangest rows, the strangest first; replaced, and never written into.
        self.strangest: list[Stranger] = []

    @property
    def share(self) -> float:
        """Outliers among the rows that were looked at."""
        return self.found / self.rows if self.rows else 0.0

    def add(self, table: Table, weight: int = 1) -> None:
        """Look at rows, each of which counts as `weight`."""
        if not table:
            return
        count = len(next(iter(table.values())))
        try:
            answers = answers_of(self.plan, table)
        except FlourError:
            self.refused += weight * count
            return
        places = np.flatnonzero(answers["label"] == -1)
        self.rows += weight * count
        self.found += weight * len(places)
        if len(places):
            self._keep(table, places, answers)

    def _keep(self, table: Table, places: NDArray[np.int64], answers: dict[str, Any]) -> None:
        scores = answers.get("scores")
        strange = np.zeros(len(places)) if scores is None else scores[places]
        order = np.argsort(strange, kind="stable")[:_KEPT]
        shown = {name: each for name, each in table.items() if name not in self._private}
        new = [
            Stranger(float(strange[at]), {n: _cell(each[places[at]]) for n, each in shown.items()})
            for at in order.tolist()
        ]
        both = sorted([*self.strangest, *new], key=lambda each: each.score)
        self.strangest = both[:_KEPT]

    def hide(self, columns: frozenset[str]) -> bool:
        """Show nothing more of these columns; whether it can go on without reading them."""
        self._private |= columns
        kept = [(each.score, each.row.items()) for each in self.strangest]
        self.strangest = [
            Stranger(score, {name: value for name, value in row if name not in columns})
            for score, row in kept
        ]
        return columns.isdisjoint(column_names(self.plan.inputs))

    def restart(self) -> None:
        """Count anew."""
        self.rows = self.found = self.refused = 0
        self.strangest = []


def outlier_plans(
    wanted: Detectors, rows: Table, private: frozenset[str] = frozenset(), ends: Table | None = None
) -> tuple[Outliers, ...]:
    """The plans of these detectors; those that are made of reference rows are made of these.

    Where only the `ends` of columns are known, their range is.
    """
    if isinstance(wanted, str) or not isinstance(wanted, Mapping | Sequence):
        raise ParameterError("outliers are a sequence", found=repr(wanted), hint='("range",)')
    named = dict(wanted) if isinstance(wanted, Mapping) else {each: each for each in wanted}
    found = []
    for name, each in named.items():
        of_ends = ends and not rows and isinstance(each, str) and each == "range"
        plan = _plan_of(str(name), each, ends if of_ends and ends else rows)
        found.append(Outliers(str(name), plan, private))
    return tuple(found)


def _plan_of(name: str, wanted: object, rows: Table) -> Plan:
    if isinstance(wanted, str):
        if wanted not in MADE:
            raise ParameterError(
                f"no outliers are called {wanted!r}",
                found="made of reference rows: " + ", ".join(MADE),
                hint=nearest(wanted, [*MADE]),
            )
        wanted = MADE[wanted](rows)
    if isinstance(wanted, Flow):
        wanted = oven.bake(wanted, background=True)
    elif isinstance(wanted, HasPlan):
        wanted = wanted.plan
    if not isinstance(wanted, Plan) or "label" not in wanted.outputs:
        raise ParameterError(
            "what finds outliers is a plan with an output `label`, -1 for an outlier",
            where=f"outliers, {name!r}",
            found=type(wanted).__name__,
            hint="import a detector of scikit-learn, such as an IsolationForest",
        )
    return wanted


def out_of_range(rows: Table) -> Flow:
    """Outliers are rows with a number beyond the least or the most of the reference.

    The score is how far the worst column is inside, in parts of its range.
    """
    x, values = _numbers(rows)
    low, high = values.min(0), values.max(0)
    wide = np.where(high > low, high - low, 1.0)
    inside = x.subtract(low).concat(x.negate().add(high)).divide(np.tile(wide, 2))
    return _judged(inside.min())


def mahalanobis(rows: Table, share: float = SHARE) -> Flow:
    """Outliers are rows that are far from the middle, in spreads of how columns go together."""
    scaled, values = _scaled(rows)
    together = values.T @ values / len(values)
    precision = np.linalg.inv(together + _RIDGE * np.eye(len(together)))
    return _far(
        scaled.linear(precision, []).times(scaled).sum(), (values @ precision) * values, share
    )


def pca_residual(rows: Table, share: float = SHARE) -> Flow:
    """Outliers are rows of which the main components of the reference leave much unexplained."""
    scaled, values = _scaled(rows)
    sizes, vectors = np.linalg.eigh(values.T @ values / len(values))
    order = np.argsort(sizes)[::-1]
    reached = np.cumsum(sizes[order]) / max(sizes.sum(), 1e-300)
    count = min(int(np.searchsorted(reached, _VARIANCE)) + 1, len(sizes) - 1)
    main = vectors[:, order[:count]]
    rest = np.eye(len(sizes)) - main @ main.T
    return _far(scaled.linear(rest, []).square().sum(), (values @ rest) ** 2, share)


#: Detectors that are made of reference rows.
MADE: dict[str, Callable[[Table], Flow]] = {
    "range": out_of_range,
    "mahalanobis": mahalanobis,
    "pca": pca_residual,
}


def _numbers(rows: Table) -> tuple[Flow, Matrix]:
    """The columns of numbers as one vector, and those of the reference, with means for holes."""
    found = {name: each for name, each in rows.items() if each.dtype.kind in "biuf"}
    values = np.column_stack([*found.values()]).astype(float) if found else np.zeros((0, 0))
    values = values[np.isfinite(values).any(1)] if values.size else values
    if len(values) < 2:
        raise ParameterError(
            "outliers are told from rows of the reference, in columns of numbers",
            found=f"{len(values)} rows with finite numbers, columns: "
            + (", ".join(rows) or "none"),
            hint='of sketches, as an import makes them, only "range" is told: pass `reference`',
        )
    known = np.isfinite(values)
    means = np.where(known, values, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    values = np.where(known, values, means)
    names = [*found]
    if [*rows] == [str(place) for place in range(len(rows))]:
        x = flour.vector("x", len(rows)).select([int(name) for name in names])
    else:
        row = flour.record(**dict.fromkeys(names, float))
        x = row[names[0]].concat(*(row[name] for name in names[1:]))
    return x.impute(np.nan, means), values


def _scaled(rows: Table) -> tuple[Flow, Matrix]:
    x, values = _numbers(rows)
    if values.shape[1] < 2:
        raise ParameterError(
            "how columns go together takes two columns of numbers", hint='outliers=("range",)'
        )
    means, spreads = values.mean(0), values.std(0)
    spreads = np.where(spreads > 0, spreads, 1.0)
    return x.subtract(means).divide(spreads), (values - means) / spreads


def _far(distance: Flow, parts: Matrix, share: float) -> Flow:
    """Rows further than all but a share of the reference's, whose distances are sums of parts."""
    return _judged(distance.negate().add([float(np.quantile(parts.sum(1), 1 - share))]))


def _judged(scores: Flow) -> Flow:
    label = scores.greater_equal([0.0]).cast("int64").take(np.array([-1, 1]))
    return flour.outputs(label=label, scores=scores)


def _cell(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value
