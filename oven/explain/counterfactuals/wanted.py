"""The wanted answer: what the plan's outputs have to be, and margins that lead there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError, TypeMismatch, nearest
from flour.core.types import FLOATS, Scalar
from oven.plans.plan import Plan

Numbers = NDArray[np.float64]
_PAIR = "a pair (low, high) of numbers, either of which may be None"


class Wanted:
    """A label, or a range of a number."""

    def __init__(self, plan: Plan, want: object) -> None:
        kinds = plan.outputs
        numbers = [n for n, k in kinds.items() if isinstance(k, Scalar) and k.dtype in FLOATS]
        self.is_label = isinstance(kinds.get("label"), Scalar)
        if not (self.is_label or numbers):
            raise TypeMismatch("no output is a label or a number", found=", ".join(kinds))
        self.output = "label" if self.is_label else numbers[0]
        #: The output whose numbers lead to the wanted one, if there is one.
        scores = [name for name in ("scores", "probabilities") * self.is_label if name in kinds]
        scores = [name for name in scores if getattr(kinds[name], "dtype", "") in FLOATS]
        self.score = next(iter(scores), "" if self.is_label else self.output)
        self.told = (self.output, *scores[:1])
        self.classes = list(plan.classes or ()) if self.is_label else []
        self.want = self._label(want) if self.is_label else want
        self.low, self.high = (0.0, 0.0) if self.is_label else bounds(want, "want")
        if self.high - self.low == math.inf and self.low == -self.high:
            bounds(None, "want")

    def _label(self, want: object) -> Any:
        """The label itself, which may be given as its text."""
        several = isinstance(want, np.ndarray)
        alike = [each for each in self.classes if not several and each == want]
        alike += [each for each in self.classes if str(each) == str(want)]
        if alike or not self.classes:
            return [*alike, want][0]
        raise ParameterError(
            "the wanted answer is no label of this model",
            where="want",
            found=repr(want)[:80],
            hint=nearest(want, self.classes) or f"labels are {self.classes[:8]}",
        )

    def met(self, outputs: Mapping[str, Any]) -> NDArray[np.bool_]:
        """A mask of the rows that have the wanted answer."""
        held = outputs[self.output]
        if self.is_label:
            return np.asarray(held == self.want) & np.ones(len(held), bool)
        return np.asarray((held >= self.low) & (held <= self.high))

    def margins(self, outputs: Mapping[str, Any]) -> Numbers:
        """Numbers that all are positive where the answer is the wanted one; a row for each row."""
        score = np.asarray(outputs[self.score], np.float64) if self.score else np.zeros(0)
        if not self.is_label:
            ends = [(score, self.low), (-score, -self.high)]
            return np.stack([side - end for side, end in ends if math.isfinite(end)], axis=1)
        place = self.classes.index(self.want) if self.want in self.classes else -1
        score = score.reshape(len(outputs[self.output]), -1)
        if score.shape[1] == 1 and len(self.classes) == 2:
            return score if place else -score
        if place < 0 or score.shape[1] != len(self.classes):
            return np.zeros((len(score), 0))
        return score[:, [place]] - np.delete(score, place, axis=1)


def bounds(pair: object, where: str) -> tuple[float, float]:
    """A pair of numbers as bounds; None is without one."""
    try:
        low, high = (None if each is None else float(each) for each in pair)  # type: ignore[attr-defined]  # as is checked
    except (TypeError, ValueError, OverflowError):
        low, high = 1.0, 0.0
    made = (-math.inf if low is None else low, math.inf if high is None else high)
    if made[0] <= made[1]:
        return made
    raise ParameterError("these are no bounds", where=where, found=repr(pair)[:80], hint=_PAIR)
