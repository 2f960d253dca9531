"""One request on its way through a graph: its values, each for the rows that want it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.op import Columns
from flour.core.reference import apply_op
from flour.core.rows import take_rows
from flour.core.source import Source
from runtime.graph.cutting import GraphCut, Path, Step

Rows = NDArray[np.intp]


class Values:
    """The values of a request so far, by node, and the rows of each path."""

    def __init__(self, graph: GraphCut, columns: Mapping[str, Columns], rows: int) -> None:
        self._graph, self._columns, self.rows = graph, columns, rows
        self._values: dict[Node, Columns] = {}
        #: The rows of each path; None for all of them.
        self._rows: dict[Path, Rows | None] = {(): None}
        self._chosen: dict[Node, NDArray[np.intp]] = {}

    def give(self, item: Node, value: Columns) -> None:
        """A value, for the rows of its node's path."""
        self._values[item] = value

    def count(self, path: Path) -> int:
        """The number of rows that go this way."""
        rows = self.rows_of(path)
        return self.rows if rows is None else len(rows)

    def rows_of(self, path: Path) -> Rows | None:
        """The numbers of the rows that go this way, ascending; None for all."""
        if path not in self._rows:
            choice, branch = path[-1]
            before = self.rows_of(path[:-1])
            here = np.flatnonzero(self._choice(choice) == branch)
            whole = before is None and len(here) == self.rows
            self._rows[path] = None if whole else here if before is None else before[here]
        return self._rows[path]

    def _choice(self, item: Node) -> NDArray[np.intp]:
        """The branch that each row of a choice takes."""
        if item not in self._chosen:
            path, conditions = self._graph.paths[item], len(item.inputs) // 2
            made = np.full(self.count(path), conditions)
            for place in reversed(range(conditions)):
                made[self.at(item.inputs[place], path)] = place
            self._chosen[item] = made
        return self._chosen[item]

    def at(self, item: Node, path: Path) -> Columns:
        """A value for the rows of a path."""
        value, own = self._value(item)
        if own == path:
            return value
        wanted, there = self.rows_of(path), self.rows_of(own)
        if wanted is None or wanted is there:
            return value
        return take_rows(value, wanted if there is None else np.searchsorted(there, wanted))

    def _value(self, item: Node) -> tuple[Columns, Path]:
        if item in self._values:
            return self._values[item], self._graph.paths[item]
        if isinstance(item.op, Source):
            return self._columns[item.op.label], ()
        path = self._graph.paths[item]
        return apply_op(item, [self.at(source, path) for source in item.inputs]), path

    def choose(self, step: Step) -> Columns:
        """Result of a choice: the rows of all its branches, in their order."""
        (item,) = step.nodes
        conditions, path = len(item.inputs) // 2, step.path
        guard = self._graph.guards[item]
        chosen = self._choice(guard)
        made: Any = None
        for branch, source in enumerate(item.inputs[conditions:]):
            here = np.flatnonzero(chosen == branch)
            if not len(here):
                continue
            value = self.at(source, (*path, (guard, branch)))
            if len(here) == len(chosen):
                return np.asarray(value).astype(_dtype(item), copy=False)
            if made is None:
                made = _empty(len(chosen), item)
            made[here] = value
        return made if made is not None else _empty(0, item)


def _dtype(item: Node) -> Any:
    dtype = str(getattr(item.type, "dtype", "string"))
    return object if dtype == "string" else np.dtype(dtype)


def _empty(rows: int, item: Node) -> Columns:
    width = getattr(item.type, "width", None)
    return np.empty(rows if width is None else (rows, width), _dtype(item))
