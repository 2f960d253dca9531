"""A class that is answered before all is fetched: as soon as nothing to come can change it.

Before each fetch a program of the rest of the model bounds its scores, by more than rounding: of
trees by both ways at tests of what is not known, of linear models by the ends of its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import FlourError, ParameterError
from flour.core.node import Node, categories_of, made_of, node, rebuild, topological
from flour.core.op import Op, ours
from flour.core.raw_columns import NO_COLUMN, SEVERAL
from flour.core.reference import evaluate
from flour.core.source import Source
from flour.core.sparse import densify
from flour.core.types import FLOATS, Record, Scalar, Type, Vector, width_of
from flour.language.flow import Flow
from flour.language.graphs import deferrable, first_match

if TYPE_CHECKING:
    from flour.ops.linear import Linear
    from flour.ops.trees.trees import Trees

Floats = NDArray[np.float64]
_SUMS, _COMPARES = {"Trees", "Linear"}, {"Greater", "GreaterEqual", "Less", "LessEqual"}
_RISES = {"Element", "Select", "AsVector", "ToDense", "AsFloat", "Cast", "Add", "Subtract"}
_FALLS = {"Negate", "OneMinus"}
_OF_ONE, _OF_SEVERAL = {*_RISES, *_FALLS, "Sigmoid"}, {*_RISES, "Softmax"}
#: Functions that are off by some units of the last place; scores are this many apart for them.
_ROUNDED, _UNITS = {"Sigmoid", "Softmax"}, 1024


@deferrable
def until_sure(label: Flow, *fetches: Flow) -> Flow:
    """The label, for which values are fetched one by one until no more of them can change it.

    It is a class of trees or of a linear model, or a score compared with a number. Without fetches
    they are all that it reads. Numbers of linear models need `fetch(..., within=(low, high))`.
    """
    decision = _SureLabel(label)
    inside = [item for item in label.nodes() if item.op.name == "Fetch"]
    order = [flow.node for flow in fetches] or inside
    stages = [decision.without(order[number:]) for number in range(len(order))]
    if not any(stages) or not set(order) <= set(inside):
        raise ParameterError.here(
            "no class is sure before these are fetched: the scores have no bounds without them",
            found=", ".join(item.op.remark() or item.op.name for item in order) or "no fetch",
            hint="a linear model needs fetch(..., within=(0, 100)), and columns no step mixes",
        )
    for stage in filter(None, reversed(stages)):
        label = first_match([stage], label)
    return label


class _SureLabel:
    """A label, the sums of trees or of a linear model, and the operators between them."""

    def __init__(self, label: Flow) -> None:
        ops, item = list[Any](), next(iter(label.outputs.values()))
        while item.op.name not in _SUMS and len(item.inputs) == 1:
            (source,) = item.inputs
            apart = source.op.name == "Concat" and len(source.inputs) == width_of(source.type)
            if item.op.name == "Element" and apart:
                item = source.inputs[item.op.fields()["column"]]
                item = node(ours("Element")(0), [item]) if isinstance(item.type, Vector) else item
            else:
                ops.insert(0, item.op)
                item = source
        at = next((n for n, op in enumerate(ops) if op.name in {"ArgMax", *_COMPARES}), -1)
        known = _OF_SEVERAL if at >= 0 and ops[at].name == "ArgMax" else _OF_ONE
        floats = [op for op in ops[: max(at, 0)] if getattr(op, "dtype", FLOATS[0]) in FLOATS]
        fine = at >= 0 and item.op.name in _SUMS and sum(op.name in known for op in floats) == at
        mixed = any(i.op.mixes_rows() and i.op.name != "Fetch" for i in label.nodes())
        if len(label.outputs) != 1 or not fine or mixed:
            found = (f"{name}: {i.type} from {i.op.name}" for name, i in label.outputs.items())
            raise ParameterError.here(
                "only a class, by trees or a linear model, is sure before all is fetched",
                found=", ".join(found)[:160],
                hint='until_sure(model(...)["label"]); probabilities and values need all columns',
            )
        self._sums, self._ahead, self._behind = item, ops[:at], ops[at:]

    def without(self, unknown: Sequence[Node]) -> tuple[Flow, Flow] | None:
        """If the label is sure without these fetches, and the label then; None if it never is."""
        op: Any = self._sums.op
        features, dtype = _Features(self._sums.inputs[0], unknown), _dtype(self._sums)
        bounds = _of_trees if op.name == "Trees" else _of_linear
        ends = None if features.rows() is None else bounds(op, features, dtype)
        if ends is None:
            return None
        (low, high), close = ends, _UNITS * float(np.finfo(dtype).eps)
        finite = (high - low).sum() < 1e30
        for each in self._ahead:
            if each.name != "Softmax":
                low, high = each(low), each(high)
            if each.name in _FALLS:
                low, high = high, low
            if each.name in _ROUNDED:
                low, high = low - close, high + close
        decides = self._behind[0]
        if decides.name == "ArgMax":
            sure = (high >= low.max()).cast("float64").sum() < 1.5
        else:
            sure = decides(low).cast("int64") == decides(high).cast("int64")
        for each in self._behind:
            low = each(low)
        return sure & finite, low


def _of_trees(op: Trees, features: _Features, _: str) -> tuple[Flow, Flow]:
    """The bounds of the sums of trees."""
    made, count = op.bounds(features.unknown)(features.flow), 2 * len(op.base)
    return made.select(range(0, count, 2)), made.select(range(1, count, 2))


def _of_linear(op: Linear, features: _Features, dtype: str) -> tuple[Flow, Flow] | None:
    """The bounds of the sums of a linear model: as those of trees, wider than any rounding."""
    weights = op.weights.array.astype(np.float64)
    bias, ends = op.bias.array if len(op.bias) else 0.0, features.ends(weights)
    if ends is None:
        return None
    known = np.where(features.unknown, 0.0, weights).astype(op.weights.dtype)
    sizes = features.flow.abs().linear(np.abs(known), (np.abs(bias) + ends[2]).astype(dtype))
    margin = sizes * (4.0 * (weights.shape[1] + 4) * float(np.finfo(dtype).eps))
    low, high = (features.flow.linear(known, (bias + end).astype(dtype)) for end in ends[:2])
    return low - margin, high + margin


class _Features:
    """The features of a model, some of which are made of fetches that are not known yet."""

    def __init__(self, root: Node, unknown: Sequence[Node]) -> None:
        #: Every raw column as a source of its own; what it is a column of, and which.
        self._columns: list[tuple[Node, Node, int]] = []
        (self._root,) = rebuild([root], self._apart)
        sources = {part: None for part, _, _ in self._columns}
        order = [*sources, *(item for item in topological([self._root]) if item not in sources)]
        self._categories = categories_of(order, made_of(order))
        hidden = [item in unknown for _, item, _ in self._columns]
        numbers, known = np.arange(len(hidden)), len(hidden)
        #: The column that is not known of which each column of a value is made.
        self._made = made_of(order, np.where(hidden, numbers, known))
        #: Of each feature, true if it is not known.
        self.unknown = ~np.isin(self._made[self._root], [known, NO_COLUMN])
        self._bases = list[Any]()
        for number, (part, item, at) in enumerate(self._columns):
            op: Any = item.op
            ends = op.ends(at) if op.name == "Fetch" and len(op.within) else []
            plain = "" if _dtype(part) == "string" else 0
            self._bases.append([*self._categories.get(number, ends), plain][0])

        def change(old: Node, inputs: tuple[Node, ...]) -> Node:
            if old not in unknown:
                return node(old.op, inputs)
            own = [n for n, (_, item, _) in enumerate(self._columns) if item is old]
            return _constant(old.type, [self._bases[n] for n in own], inputs[0])

        self.flow = Flow({"features": rebuild([root], change)[0]})

    def _apart(self, item: Node, inputs: tuple[Node, ...]) -> Node:
        """A node, or an input or a fetch by its columns."""
        if not isinstance(item.op, Source) and item.op.name != "Fetch":
            return node(item.op, inputs)
        kind, kinds = item.type, [item.type]
        if isinstance(kind, Vector):
            kinds = [Scalar(kind.dtype)] * kind.width
        elif isinstance(kind, Record):
            kinds = [each for _, each in kind.fields]
        parts = [node(Source(f"{item.digest}.{at}", each), ()) for at, each in enumerate(kinds)]
        self._columns += [(part, item, at) for at, part in enumerate(parts)]
        return _together(kind, parts)

    def rows(self, number: int = -1, values: Sequence[Any] = (0,)) -> Floats | None:
        """The features, where a column has these values and the others any; None if refused."""
        columns = {}
        for place, (part, _, _) in enumerate(self._columns):
            dtype = _dtype(part)
            made = np.empty(len(values), object if dtype == "string" else dtype)
            made[:] = values if place == number else self._bases[place]
            columns[part.op.fields()["label"]] = made
        try:
            made = evaluate([self._root], columns)[self._root]
        except FlourError:
            return None
        return np.asarray(densify(made), np.float64)

    # --- how far a weighted sum may go -------------------------------------------------------

    def ends(self, weights: Floats) -> Floats | None:
        """The least and the largest sum of what is not known, and of magnitudes; None: no bound."""
        made, found = self._made[self._root], np.zeros((3, len(weights)))
        if np.any(weights[:, made == SEVERAL]):
            return None
        for number in np.unique(made[self.unknown & weights.any(axis=0)]).tolist():
            own, values = made == number, self._values(number)
            features = self.rows(number, values) if values else None
            if features is None:
                return None
            sums = features[:, own] @ weights[:, own].T
            sizes = np.abs(features[:, own]) @ np.abs(weights[:, own]).T
            found += [sums.min(axis=0), sums.max(axis=0), sizes.max(axis=0)]
        return found if np.all(np.isfinite(found)) else None

    def _values(self, number: int) -> list[Any]:
        """Values of a column of which some have the extremes of each weighted sum; [] for none."""
        part, item, at = self._columns[number]
        op: Any = item.op
        behind = [n for n, made in self._made.items() if n.inputs and number in made]
        if _dtype(part) == "bool":
            return [False, True]
        if _dtype(part) == "string":
            texts = [n for n in behind if any(_dtype(source) == "string" for source in n.inputs)]
            fine = all(n.op.name == "CategoriseText" or _is_steady(n.op) for n in texts)
            others = ("\0 no category", None, np.nan)
            taken = [each for each in others if self.rows(number, [each]) is not None]
            return [*self._categories.get(number, ()), *taken] if fine else []
        steady = all(_is_steady(n.op) for n in behind) and not op.spare
        return list(op.ends(at)) if steady and len(op.within) else []


def _together(kind: Type, parts: Sequence[Node]) -> Node:
    """A value of this type by its columns."""
    if isinstance(kind, Record):
        return node(ours("Bundle")(kind.names), parts)
    return node(ours("Concat")(), parts) if isinstance(kind, Vector) else parts[0]


def _constant(kind: Type, values: Sequence[Any], like: Node) -> Node:
    """These columns in every row."""
    if (dtype := getattr(kind, "dtype", "string")) != "string":
        fill = ours("Fill")(np.array(values, dtype), scalar=not isinstance(kind, Vector))
        return node(fill, [like])
    first = node(ours("Fill")(np.zeros(1, np.int64), scalar=True), [like])
    return _together(kind, [node(ours("TakeText")([value]), [first]) for value in values])


def _is_steady(op: Op) -> bool:
    """True if a column never falls with its input, or never rises; a missing value is apart."""
    named = op.name in ("Field", "Pick", "Narrow", "Bundle", "Multiply", "Divide", "Negate")
    named = (
        named
        or op.name.startswith("Require")
        or (op.name == "Impute" and np.isnan(getattr(op, "marker", 0.0)))
    )
    fine = named or op.monotone or op.moves or op.same_values
    return fine and getattr(op, "dtype", "") != "bool"


def _dtype(item: Node) -> str:
    return str(getattr(item.type, "dtype", "string"))
