"""What rows take to compute, as a watch finds out in the background: by block, and by stage.

What the machine took for all rows is `pretzel_compute_seconds_total`, and its energy beside it;
this says how they divide.
"""

from __future__ import annotations

from time import thread_time
from typing import Any

from oven import Plan
from oven.explain.steps import label
from oven.explain.timing import staged

#: One block in so many runs stage by stage, which takes longer.
_STAGED = 16


class StageCosts:
    """Times the blocks of a plan."""

    def __init__(self) -> None:
        self._blocks = 0
        self._seconds: dict[str, float] = {}

    def run(self, plan: Plan, block: object) -> tuple[dict[str, Any], float]:
        """The answers to a block, and the seconds of processor time that they took."""
        if self._blocks % _STAGED == 0:
            for number, each in enumerate(staged(plan, block)[2]):
                name = label(number, each.stage)
                self._seconds[name] = self._seconds.get(name, 0.0) + each.ended - each.began
        self._blocks += 1
        start = thread_time()
        answers = plan.run(block)
        return answers, thread_time() - start

    @property
    def shares(self) -> dict[str, float]:
        """The part of each stage in what rows take to compute."""
        seconds = self._seconds.copy()
        total = sum(seconds.values())
        return {name: each / total for name, each in seconds.items()} if total else {}
