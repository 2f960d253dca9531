"""Decision trees written as nested dicts, as the table of nodes that the operator of trees has.

    {"column": 2, "at_most": 0.5, "left": 1.0, "right": {"column": 0, ...}}

A node sends a row to the left where its column is at most the number, else to the right. NaN goes
to the side that `missing` names, by default to the right. A leaf is a number, or a list of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flour.core.errors import ParameterError, nearest
from flour.core.provenance import here

_KEYS = ("column", "at_most", "left", "right", "missing")
_HINT = "{'column': 0, 'at_most': 1.5, 'left': 0.0, 'right': 1.0}; a leaf is a number or a list"
_SIDES = {None: 0, "left": 1, "right": 2}
_COLUMNS = {
    "feature": np.int32,
    "threshold": np.float64,
    "left": np.int32,
    "right": np.int32,
    "missing": np.uint8,
}


def tree_table(trees: object) -> dict[str, Any]:
    """The parameters of `Trees` for these trees: their nodes, roots and the values of leaves."""
    if not isinstance(trees, Sequence) or isinstance(trees, str) or not trees:
        raise _wrong("an ensemble is a list of trees", "trees", trees)
    nodes: list[tuple[Any, ...]] = []
    leaves: list[list[float]] = []
    roots = []
    for number, tree in enumerate(trees):
        roots.append(len(nodes))
        _grow(tree, f"trees[{number}]", nodes, leaves)
    widths = {len(leaf) for leaf in leaves}
    if len(widths) > 1:
        raise _wrong("every leaf has the same number of values", "trees", sorted(widths))
    columns = zip(*nodes, strict=True)
    table = {k: np.array(c, t) for (k, t), c in zip(_COLUMNS.items(), columns, strict=True)}
    return {**table, "roots": np.array(roots, np.int32), "value": np.array(leaves, np.float64)}


def _grow(node: object, where: str, nodes: list[tuple[Any, ...]], leaves: list[list[float]]) -> int:
    """Append a node and all below it, parents first; the number of its row."""
    place = len(nodes)
    if not isinstance(node, Mapping):
        nodes.append((-1, 0.0, len(leaves), 0, 0))
        try:
            values = np.atleast_1d(np.asarray(node, np.float64))
        except (TypeError, ValueError):
            values = np.empty((0, 0))
        if values.ndim != 1 or not values.size:
            raise _wrong("a node is a dict, a leaf a number or a list of numbers", where, node)
        leaves.append([float(value) for value in values])
        return place
    for key in node:
        if key not in _KEYS:
            raise _wrong(f"a node has no {key!r}", where, list(node), nearest(key, _KEYS))
    absent = [key for key in _KEYS[:-1] if key not in node]
    if absent:
        raise _wrong(f"a node needs {', '.join(map(repr, absent))}", where, list(node))
    whole = isinstance(node["column"], int | np.integer) and node["column"] >= 0
    if not whole or not isinstance(node["at_most"], int | float | np.number):
        raise _wrong("a node compares the column of a number with a number", where, dict(node))
    if node.get("missing") not in _SIDES:
        raise _wrong("missing values go 'left' or 'right'", where, node["missing"])
    nodes.append(())
    below = [_grow(node[s], f"{where}.{s}", nodes, leaves) for s in ("left", "right")]
    side = _SIDES[node.get("missing")]
    nodes[place] = (node["column"], float(node["at_most"]), *below, side)
    return place


def _wrong(what: str, where: str, found: object, hint: str | None = None) -> ParameterError:
    place = f"{here()}, {where}"
    return ParameterError(what, where=place, found=repr(found)[:120], hint=hint or _HINT)
