"""At which step two programs first differ, by the definitions of their operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from flour.core.node import Node
from flour.core.op import Columns
from flour.core.reference import evaluate
from flour.core.sparse import densify
from flour.data.coerce import coerce
from flour.language.flow import Flow


class Step(NamedTuple):
    """A node by its operator, and its number among the nodes of that operator."""

    name: str
    number: int


def first_difference(champion: Flow, challenger: Flow, rows: object) -> str | None:
    """The first step, in the champion's order, whose values differ; None where none does.

    Steps of the two are told by their operators and order. A step that only one has is passed over,
    as what follows it differs if it matters.
    """
    one, other = _values(champion, rows), _values(challenger, rows)
    for step, (where, value) in one.items():
        if step in other and not _equal(value, other[step][1]):
            theirs = _short(other[step][1])
            return f"{where}: {_short(value)} and {theirs}"
    missing = [step.name for step in (*one, *other) if step not in one or step not in other]
    return f"only one has {', '.join(dict.fromkeys(missing))}" if missing else None


def _values(flow: Flow, rows: object) -> dict[Step, tuple[str, Columns]]:
    columns, _ = coerce(flow.inputs(), rows)
    origins, seen = flow.origins(), Counter[str]()
    made: dict[Step, tuple[str, Columns]] = {}
    for node, value in evaluate(flow.outputs.values(), columns).items():
        name = node.op.name
        seen[name] += 1
        made[Step(name, seen[name])] = _where(node, origins), value
    return made


def _where(node: Node, origins: Mapping[Node, Any]) -> str:
    steps = [each.step for each in origins.get(node, ()) if each.step]
    return f"{node.op.name} of {steps[0]}" if steps else node.op.name


def _equal(one: Columns, other: Columns) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        same = one.keys() == other.keys()
        return same and all(_equal(part, other[name]) for name, part in one.items())
    left, right = np.asarray(densify(one)), np.asarray(densify(other))
    if left.shape != right.shape:
        return False
    if left.dtype.kind == right.dtype.kind == "f":
        return bool(np.array_equal(left, right, equal_nan=True))
    return bool(np.all(left == right))


def _short(value: Columns) -> str:
    return str(densify(value))[:120]
