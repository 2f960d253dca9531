"""The wanted answer: checked by the plan's own outputs, and as margins of its score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError, TypeMismatch, nearest
from flour.core.node import topological
from flour.core.reference import apply_op
from flour.core.types import FLOATS, Scalar, Vector
from oven.explain.attribution.terms import score_of, width_of
from oven.explain.attribution.tree_tables import Numbers
from oven.plans.plan import Plan

_PAIR = "want is a pair (low, high) of numbers, either of which may be None"


class Wanted:
    """A label, or a range of a number."""

    def __init__(self, plan: Plan, want: object) -> None:
        kinds = plan.outputs
        labels = [n for n, kind in kinds.items() if n == "label" and isinstance(kind, Scalar)]
        numbers = [n for n, k in kinds.items() if isinstance(k, Scalar) and k.dtype in FLOATS]
        if not (labels or numbers):
            raise TypeMismatch("no output is a label or a number", found=", ".join(kinds))
        self.is_label = bool(labels)
        #: The output that is checked, and the one whose score leads there.
        self.output = (labels or numbers)[0]
        scores = [n for n in ("scores", "probabilities") if n in kinds] if labels else numbers
        self.score = scores[0] if scores else ""
        self.told = tuple(dict.fromkeys((self.output, *scores)))
        self.low, self.high = -math.inf, math.inf
        if self.is_label:
            self.classes = plan.classes or _labels(plan)
            self.want = self._label(want)
        else:
            self.want = want
            self.low, self.high = bounds(want, "want", _PAIR)

    def _label(self, want: object) -> Any:
        """The label itself, which may be given as its text."""
        for alike in (lambda label: label == want, lambda label: str(label) == str(want)):
            for label in self.classes:
                if bool(np.all(alike(label))):
                    return label
        if not self.classes:
            return want
        raise ParameterError(
            "the wanted answer is no label of this model",
            where="want",
            found=repr(want)[:80],
            hint=nearest(want, self.classes) or "one of " + ", ".join(map(repr, self.classes[:8])),
        )

    def met(self, outputs: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Whether each row has the wanted answer."""
        held = outputs[self.output]
        if self.is_label:
            return np.array([each == self.want for each in held], bool)
        return (held >= self.low) & (held <= self.high)

    def margins(self, plan: Plan) -> tuple[Numbers, Numbers] | None:
        """Sums of scores that all are positive where the answer is the wanted one, if known.

        A row of weights for each sum, and what is added to it.
        """
        if not self.score:
            return None
        asked = plan.flow.outputs[self.score]
        score = score_of(asked)
        width = width_of(score.type)
        if not self.is_label:
            if width > 1:
                return None
            low, high = (self._unrestated(plan, each) for each in (self.low, self.high))
            made = [(1.0, -low)] * math.isfinite(low) + [(-1.0, high)] * math.isfinite(high)
            return np.array([[sign] for sign, _ in made]), np.array([add for _, add in made])
        if self.want not in self.classes:
            return None
        place = list(self.classes).index(self.want)
        if width == 1 and len(self.classes) == 2:
            return np.array([[1.0 if place else -1.0]]), np.zeros(1)
        if width != len(self.classes):
            return None
        weights = np.delete(-np.eye(width), place, axis=0)
        weights[:, place] = 1.0
        return weights, np.zeros(width - 1)

    def _unrestated(self, plan: Plan, number: float) -> float:
        """The raw score of a number that a link (which never falls) makes of it."""
        asked = plan.flow.outputs[self.score]
        score = score_of(asked)
        if asked is score or not math.isfinite(number):
            return number
        low, high = -1e9, 1e9
        for _ in range(100):
            middle = (low + high) / 2
            held = np.full((1, 1) if isinstance(score.type, Vector) else 1, middle)
            known: dict[Any, Any] = {score: held}
            for item in topological([asked]):
                if item not in known and item.inputs and all(i in known for i in item.inputs):
                    with np.errstate(all="ignore"):
                        known[item] = apply_op(item, [known[i] for i in item.inputs])
            low, high = (low, middle) if np.all(known[asked] >= number) else (middle, high)
        return high


def _labels(plan: Plan) -> Sequence[Any]:
    """The labels that the plan's last step looks up, if it does."""
    table = plan.flow.outputs["label"].op.fields().get("table")
    values = getattr(table, "to_list", None) or getattr(getattr(table, "array", None), "tolist", list)
    return tuple(values())


def bounds(pair: object, where: str, hint: str) -> tuple[float, float]:
    """A pair of numbers as bounds; None is without one."""
    try:
        low, high = pair  # type: ignore[misc]  # checked by this
        low = -math.inf if low is None else float(low)
        high = math.inf if high is None else float(high)
        if low <= high:
            return low, high
    except (TypeError, ValueError):
        pass
    raise ParameterError("these are no bounds", where=where, found=repr(pair)[:80], hint=hint)
