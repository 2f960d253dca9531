"""Raw columns as a score reads them: along lines, by thresholds, by categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from flour.core.node import Node, topological
from flour.core.types import FLOATS, Text, Type
from flour.ops.categorise import Categorise, CategoriseText
from flour.ops.elementwise import Cast
from flour.ops.impute import Impute
from flour.ops.source import Field, Pick
from flour.ops.trees.trees import Trees
from oven.explain.attribution.explainer import Explainer
from oven.explain.attribution.terms import Weighted, made_of, width_of
from oven.plans.plan import Plan

#: How a score reads a column: not at all, as documents, as one of few values, as a sum with other
#: columns that rises or falls along a line, by thresholds of trees, or in another way.
Reading = Literal["never", "text", "finite", "line", "cells", "other"]


class ReadColumns:
    """How an explained score reads each raw column."""

    def __init__(self, plan: Plan, explainer: Explainer | None) -> None:
        order = topological(plan.flow.outputs.values())
        names, self.made = made_of(order)
        self.number = {name: i for i, name in enumerate(names)}
        self.explainer = explainer
        self._known: dict[str, Reading] = {}
        #: The known categories of each column.
        self.categories: dict[str, list[Any]] = {}
        for item in order:
            if isinstance(item.op, Categorise | CategoriseText):
                self._add(item, names)
        terms = None if explainer is None else explainer.terms
        #: A sum of terms that read one column each; trees alone.
        self.is_sum = terms is not None and not (terms.inexact or terms.trees)
        self.is_trees = terms is not None and bool(terms.trees) and not terms.linear
        if terms is not None and terms.columns != names:
            self.is_sum = self.is_trees = False
        self._lines = made_of(order, _is_line)[1]
        self._monotone = made_of(order, lambda item: _is_line(item) or item.op.monotone)[1]

    def _add(self, item: Node, names: Sequence[str]) -> None:
        op: Any = item.op
        starts, made = op.starts.array, self.made[item.inputs[0]]
        held = op.texts.to_list() if isinstance(op, CategoriseText) else op.values.array.tolist()
        for j, column in enumerate(made.tolist()):
            if column >= 0:
                known = self.categories.setdefault(names[column], [])
                known += [v for v in held[starts[j] : starts[j + 1]] if v not in known]

    def reading(self, name: str, kind: Type, dtype: np.dtype[Any] | None) -> Reading:
        """How the score reads a column of this type."""
        if name not in self._known:
            self._known[name] = self._reading(name, kind, dtype)
        return self._known[name]

    def _reading(self, name: str, kind: Type, dtype: np.dtype[Any] | None) -> Reading:
        if isinstance(kind, Text):
            return "text"
        if dtype is None or dtype.kind == "b":
            return "finite"
        if self.is_sum:
            return self._in_sum(name)
        return self._in_trees(name) if self.is_trees else "other"

    def _in_sum(self, name: str) -> Reading:
        number = self.number[name]
        found = [(term, term.made == number) for term in self._terms("linear")]
        found = [(term, own) for term, own in found if own.any()]
        if all(np.all(self._lines[term.node][own] == number) for term, own in found):
            return "line" if found else "never"
        return "finite" if name in self.categories else "other"

    def _in_trees(self, name: str) -> Reading:
        number = self.number[name]
        if name in self.categories:
            return "finite"
        found = False
        for term in self._terms("trees"):
            op: Any = term.node.op
            own = np.flatnonzero(term.made == number)
            nodes = np.isin(op.feature.array, own)
            found |= bool(nodes.any())
            if len(op.words) and np.any(np.asarray(op.category.array)[nodes] >= 0):
                longest = int(np.asarray(op.length.array)[nodes].max())
                self.categories[name] = list(range(min(32 * longest, 1024)))
                return "finite"
            if op.zeros or np.any(self._monotone[term.node.inputs[0]][own] != number):
                return "other"
        return "cells" if found else "never"

    def _terms(self, which: str) -> Sequence[Weighted]:
        assert self.explainer is not None
        found: Sequence[Weighted] = getattr(self.explainer.terms, which)
        return found


def _is_line(item: Node) -> bool:
    """True if each number of the value rises or falls along a line with those it is made of."""
    op = item.op
    if isinstance(op, Cast):
        return op.fields()["dtype"] in FLOATS
    if op.moves or op.same_values or isinstance(op, Field | Impute | Pick):
        return True
    if isinstance(op, Trees):
        return False
    kinds = [source.type for source in item.inputs]
    return bool(kinds) and op.pull(np.ones((1, width_of(item.type))), *kinds) is not None
