"""Learned shortcuts: a cheap model answers the rows of which it is sure, the whole one the rest.

The cheap model is a part of the whole one: its first trees, or a linear model of some of its
branches that learns the whole one's scores. It is sure of a class from a probability on that is
chosen so that, of rows that were held out for it, the labels that differ are few: their share is
below `loss` with the given confidence (Clopper and Pearson's bound; thresholds are tried from the
most careful on, and the first that fails ends the search, so that the bound holds for the chosen).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import flour
import oven
from flour.core.errors import ParameterError
from flour.core.node import Node, node
from flour.core.op import Columns
from flour.core.reference import row_count
from flour.core.source import Source
from flour.core.sparse import Sparse, hstack
from flour.data.coerce import coerce
from flour.language.flow import Flow
from flour.ops.linear import Linear
from flour.ops.structure import Concat
from flour.ops.trees.trees import Trees
from oven import Plan
from runtime.runtime import Runtime

Floats = NDArray[np.float64]

#: Shares of the trees that a cheap model may have, and branches of which all subsets are tried.
_TREES = (1 / 32, 1 / 16, 1 / 8, 1 / 4)
_MOST_BRANCHES = 4
#: How careful thresholds are, the most careful first: the share of teaching rows that may differ,
#: in parts of the loss, and how many are taken of the surest rows of which no more do.
_CARE = [(0.0, part) for part in (0.4, 0.6, 0.8, 0.9)] + [
    (share, 1.0) for share in (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 1.1)
]
#: A cascade that is not faster by this is not worth its thresholds.
_WORTH = 1.2
#: How often a time is taken; the shortest counts.
_TIMES = 3
_ROUNDS, _RIDGE = 60, 1.0


@dataclass(frozen=True)
class Shortcut:
    """A model with a shortcut: `runtime.register(name, shortcut.graph)` serves it.

    Outputs are those of the model, of the part that answered, and `exit`: 1 where the cheap part
    did, 2 where the whole model did.
    """

    graph: Flow
    part: str
    """The cheap part in words."""
    share: float
    """The share of held-out rows that it answers."""
    loss: float
    """An upper bound of the share of rows whose label differs."""
    confidence: float
    speedup: float
    """Processor time of the whole model by that of the cascade, on `rows` as one block."""
    tried: tuple[str, ...]
    """A line on each cheap part that was tried."""

    def __str__(self) -> str:
        sure = f"labels differ on at most {self.loss:.2%} of rows ({self.confidence:.0%} sure)"
        line = f"{self.part} answers {self.share:.1%} of rows, {self.speedup:.1f}x; {sure}"
        return "\n".join((line, *(f"  {each}" for each in self.tried)))


class _Answers(NamedTuple):
    """Probabilities and labels of a model on all rows."""

    probabilities: Floats
    label: NDArray[Any]


class _CheapModel(NamedTuple):
    """A cheap model with its thresholds, a class each, and what was found of it."""

    part: str
    plan: Plan
    thresholds: Floats
    share: float = 0.0
    loss: float = 1.0
    seconds: float = 0.0
    """Time of a block, in parts of that of the whole model."""

    @property
    def speedup(self) -> float:
        """Time of the whole model by that of the cascade."""
        return 1.0 / (self.seconds + 1.0 - self.share)

    def __str__(self) -> str:
        return f"{self.part}: {self.share:.1%} of rows at {self.seconds:.2f} of the time"


def shortcut(
    plan: Plan, rows: object, *, loss: float = 0.001, confidence: float = 0.95
) -> Shortcut:
    """A cascade of this plan, or an error that says why none is worth it.

    A third of the `rows` teaches the cheap model and its thresholds; the others measure them, so
    take rows like those to be answered, in any order but one that means something.
    """
    flow = plan.flow
    if not (0 < loss < 1 and 0 < confidence < 1):
        raise ParameterError(
            "loss and confidence are shares between 0 and 1",
            where="shortcut",
            found=f"loss={loss}, confidence={confidence}",
        )
    if not {"label", "probabilities"} <= {*flow.outputs}:
        raise ParameterError(
            "a shortcut is for classifiers with probabilities",
            where="shortcut",
            found=f"outputs {', '.join(flow.outputs)}",
        )
    answers = Flow({name: flow.outputs[name] for name in ("label", "probabilities")})
    cheaper = _cheaper(answers)
    found: list[_CheapModel] = []
    if cheaper.parts:
        judge = _Judge(plan, rows, len(cheaper.parts), loss, confidence)
        found = [judge.judged(*each) for each in _cheap_models(answers, cheaper, judge)]
    lines = tuple(map(str, found))
    best = max(found, key=lambda each: each.speedup, default=None)
    if best is None or best.speedup < _WORTH:
        raise _useless(plan, lines)
    graph = _cascade(plan, best)
    speedup = _speedup(graph, plan, rows)
    if speedup < _WORTH:
        lines = (*lines, f"the cascade of {best.part}, measured: {speedup:.2f} times as fast")
        raise _useless(plan, lines)
    return Shortcut(graph, best.part, best.share, best.loss, confidence, speedup, lines)


def _ran(plan: Plan, columns: Mapping[str, Columns]) -> dict[str, Columns]:
    """Every output of a plan for the columns that it reads."""
    read = {name: columns[name] for name in plan.inputs}
    return plan.wait().run_columns(read, row_count(next(iter(read.values()))))


def _answers(plan: Plan, columns: Mapping[str, Columns]) -> _Answers:
    made = _ran(plan, columns)
    return _Answers(np.asarray(made["probabilities"], np.float64), np.asarray(made["label"]))


def _useless(plan: Plan, lines: Sequence[str]) -> ParameterError:
    names = [each.op.name for each in plan.flow.nodes() if not isinstance(each.op, Source)]
    return ParameterError(
        "no part of this model is a shortcut that pays",
        where="shortcut",
        found="; ".join(lines) or f"a program that ends in {', '.join(names[-6:])}",
        hint="parts that can be cheap are the first of many trees, and some of the branches "
        "that a linear model reads; a larger loss lets them answer more rows",
    )


def _speedup(graph: Flow, plan: Plan, rows: object) -> float:
    """Time of the whole model by that of the cascade, as served, on these rows as a block."""
    times: dict[str, list[float]] = {"whole": [], "cascade": []}
    with Runtime() as trial:
        trial.register("whole", plan, background=False)
        trial.register("cascade", graph, background=False)
        for _ in range(_TIMES):
            for name, taken in times.items():
                start = time.process_time()
                trial.predict(name, rows)
                taken.append(time.process_time() - start)
    return min(times["whole"]) / min(times["cascade"])


# --- cheap models --------------------------------------------------------------------------------


class _Cheaper(NamedTuple):
    """A way to cheaper programs: the node that is replaced, and the parts that it may be left."""

    item: Node
    parts: Sequence[Any]


def _cheaper(outputs: Flow) -> _Cheaper:
    """The last sum of trees, or of several branches, on the way to the answer."""
    for item in reversed(outputs.nodes()):
        if isinstance(item.op, Trees):
            return _Cheaper(item, _counts(item.op))
        if isinstance(item.op, Linear):
            branches = item.inputs[0].inputs if isinstance(item.inputs[0].op, Concat) else ()
            return _Cheaper(item, _subsets(len(branches)))
    return _Cheaper(next(iter(outputs.outputs.values())), ())


def _cheap_models(outputs: Flow, cheaper: _Cheaper, judge: _Judge) -> Iterator[tuple[str, Flow]]:
    """Cheaper programs with the same outputs, and what they are called."""
    item, parts = cheaper
    op: Any = item.op
    if isinstance(op, Trees):
        for count in parts:
            part = node(_first_trees(op, count), item.inputs)
            yield f"the first {count} of {len(op.roots)} trees", _with(outputs, item, part)
        return
    lesson, of = _Lesson(item, judge.columns, judge.teaches), len(item.inputs[0].inputs)
    for places in parts:
        name = f"branch {' and '.join(str(place + 1) for place in places)} of {of}"
        yield name, _with(outputs, item, lesson.learned(places))


def _with(flow: Flow, old: Node, new: Node) -> Flow:
    """The program with one node in another's place."""
    return flow.rebuilt(lambda item, inputs: new if item is old else node(item.op, inputs))


def _counts(op: Trees) -> list[int]:
    """Numbers of trees to try: whole rounds, where each class has a tree of its own."""
    every = len(op.roots)
    targets = op.target.array
    rounds = len(np.unique(targets))
    if every % rounds or not np.array_equal(targets, np.tile(targets[:rounds], every // rounds)):
        return []
    counts = {max(1, math.ceil(every // rounds * share)) * rounds for share in _TREES}
    return sorted(count for count in counts if count <= every // 2)


def _first_trees(op: Trees, count: int) -> Trees:
    """The ensemble of an ensemble's first trees, whose nodes and leaves come first."""
    of_nodes = {"feature", "left", "right", "threshold", "missing", "category", "length", "cover"}
    tables = [(name, each.array) for name, each in op.fields().items() if name in of_nodes]
    fields: dict[str, Any] = {name: array[: op.roots.array[count]] for name, array in tables}
    leaves = 1 + fields["left"][fields["feature"] < 0].max()
    fields |= {"value": op.value.array[:leaves], "divisor": count if op.divisor else 0}
    return op.replace(roots=op.roots.array[:count], target=op.target.array[:count], **fields)


def _subsets(count: int) -> list[tuple[int, ...]]:
    """Some of so many branches: all choices of few, and each one of many."""
    sizes = range(1, count if count <= _MOST_BRANCHES else 2)
    return [places for size in sizes for places in combinations(range(count), size)]


class _Lesson:
    """The branches and scores of a linear model on all rows, some of which teach."""

    def __init__(
        self, item: Node, columns: Mapping[str, Columns], teaches: NDArray[np.bool_]
    ) -> None:
        op: Any = item.op
        self._op, self._branches = op, item.inputs[0].inputs
        self._teaches = teaches.astype(np.float64)
        ends = np.cumsum([getattr(each.type, "width", 1) for each in self._branches])
        self._weights = np.split(op.weights.array.astype(np.float64), ends[:-1], axis=1)
        values = {f"branch{n}": branch for n, branch in enumerate(self._branches)}
        made = _ran(oven.bake(Flow({**values, "scores": item})), columns)
        self._columns = [made[name] for name in values]
        self._scores = np.asarray(made["scores"], np.float64)

    def learned(self, places: Sequence[int]) -> Node:
        """A linear model of these branches, near the whole one's scores where rows teach."""
        x = hstack([self._columns[place] for place in places], np.dtype(np.float64))
        weights = np.concatenate([self._weights[place] for place in places], axis=1)
        solved = [self._solved(x, *each) for each in zip(weights, self._scores.T, strict=True)]
        kind = self._op.weights.dtype
        inputs = [self._branches[place] for place in places]
        joined = inputs[0] if len(inputs) == 1 else node(Concat(), inputs)
        learned = np.array([each[:-1] for each in solved], kind)
        return node(Linear(learned, np.array([each[-1] for each in solved], kind)), [joined])

    def _solved(self, x: Sparse, weights: Floats, scores: Floats) -> Floats:
        """Weights and bias by least squares, drawn to these weights: conjugate gradients."""
        rows, width = x.rows, x.shape[1]

        def times(vector: Floats) -> Floats:
            sums = np.bincount(rows, x.data * vector[x.indices], minlength=len(x))
            taught: Floats = self._teaches * (sums + vector[-1])
            return taught

        def back(residual: Floats) -> Floats:
            sums = np.bincount(x.indices, x.data * residual[rows], minlength=width)
            return np.append(sums, residual.sum())

        found = np.append(weights, 0.0)
        step = left = back(self._teaches * scores - times(found))
        for _ in range(_ROUNDS):
            size = left @ left
            if size < 1e-12:
                break
            curved = back(times(step)) + _RIDGE * step
            length = size / (step @ curved)
            found, left = found + length * step, left - length * curved
            step = left + (left @ left) / size * step
        return found


# --- where a model is sure -----------------------------------------------------------------------


class _Judge:
    """The whole model's answers on rows that teach, and on those that judge cheap models."""

    def __init__(
        self, plan: Plan, rows: object, tried: int, loss: float, confidence: float
    ) -> None:
        self._rows, self._loss = rows, loss
        self.columns, _ = coerce(plan.inputs, rows)
        self.whole = _answers(plan, self.columns)
        count = len(self.whole.label)
        self.teaches = np.arange(count) % 3 == 0
        self._confidence, self.tried = confidence, tried
        needed = math.ceil(1.5 * math.log((1.0 - confidence) / tried) / math.log1p(-loss)) + 3
        if count < needed:
            raise ParameterError(
                "too few rows to show that so small a share of labels differs",
                where="shortcut",
                found=f"{count} rows for loss={loss}",
                hint=f"{needed} rows, or a larger loss",
            )
        self._whole_seconds = self._seconds(plan)

    def judged(self, part: str, cheap: Flow) -> _CheapModel:
        """This part with the thresholds that answer most rows with a loss that is small enough."""
        plan = oven.bake(cheap)
        answers = _answers(plan, self.columns)
        differs = answers.label != self.whole.label
        best = _CheapModel(part, plan, np.full(answers.probabilities.shape[1], 2.0))
        doubt = (1.0 - self._confidence) / self.tried
        for share, surest in _CARE:
            taught = (answers.probabilities[self.teaches], differs[self.teaches])
            bounds = _thresholds(*taught, share * self._loss, surest)
            sure = np.any(answers.probabilities[~self.teaches] >= bounds, axis=1)
            wrong = int((sure & differs[~self.teaches]).sum())
            loss = upper_bound(wrong, len(sure), doubt)
            if loss > self._loss:
                break
            best = best._replace(thresholds=bounds, share=float(sure.mean()), loss=loss)
        return best._replace(seconds=self._seconds(plan) / self._whole_seconds)

    def _seconds(self, plan: Plan) -> float:
        answer = plan.entry()
        times = []
        for _ in range(_TIMES):
            start = time.thread_time()
            answer(self._rows)
            times.append(time.thread_time() - start)
        return min(times)


def _thresholds(
    probabilities: Floats, differs: NDArray[np.bool_], share: float, part: float
) -> Floats:
    """The least probability of each class from which on its cheap answers stand.

    Of the rows of a class, at most this share differs from there on; of those rows, this part is
    taken. No class is sure at one half or below.
    """
    bounds = np.full(probabilities.shape[1], 2.0)
    top = probabilities.argmax(axis=1)
    for place in range(len(bounds)):
        own = top == place
        order = np.argsort(-probabilities[own, place], kind="stable")
        falling, wrong = probabilities[own, place][order], np.cumsum(differs[own][order])
        # Rows of one probability are answered together, or not at all.
        ends = np.flatnonzero(np.append(falling[1:] < falling[:-1], True)[: len(order)])
        fine = ends[(wrong[ends] <= share * len(order)) & (falling[ends] > 0.5)]
        if len(fine):
            bounds[place] = falling[ends[np.searchsorted(ends, int(part * fine[-1]))]]
    return bounds


def upper_bound(wrong: int, count: int, doubt: float) -> float:
    """Clopper and Pearson's upper bound of a share of which `wrong` of `count` were seen."""
    low, high = wrong / count, 1.0
    ways = [
        math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        for k in range(wrong + 1)
    ]
    for _ in range(60):
        middle = (low + high) / 2
        terms = (
            way + k * math.log(middle) + (count - k) * math.log1p(-middle)
            for k, way in enumerate(ways)
        )
        at_most = sum(map(math.exp, terms)) if middle < 1.0 else 0.0
        low, high = (middle, high) if at_most > doubt else (low, middle)
    return high


# --- the cascade ---------------------------------------------------------------------------------


def _cascade(plan: Plan, found: _CheapModel) -> Flow:
    """The graph of both models."""
    sources = [Flow({"input": item}) for item in plan.flow.nodes() if isinstance(item.op, Source)]
    cheap = flour.plan(found.plan)(*sources)
    whole = flour.plan(plan)(*sources)
    sure = (cheap["probabilities"] - found.thresholds).max() >= 0.0
    first = {name: cheap[name] for name in ("label", "probabilities")} | {"exit": 1}
    return flour.outputs(
        **{
            name: flour.first_match([(sure, value)], whole[name] if name != "exit" else 2)
            for name, value in first.items()
        }
    )
