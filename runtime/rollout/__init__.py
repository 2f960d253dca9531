"""Rollouts: a challenger gets more of the requests step by step, and all or none in the end.

runtime.rollout("fraud", to="fraud@4", steps=(5, 20, 50, 100), dwell="10 min",
                require=("errors < 0.1 %", "p99 < 5 ms", "agreement > 98 %"))
"""

from __future__ import annotations

from runtime.rollout.criteria import Criterion, UnitSum, read_criteria
from runtime.rollout.evidence import lower, upper
from runtime.rollout.judging import STEP_SECONDS, judged, report, resume, rollout
from runtime.rollout.outcomes import REPORTERS, Evidence, OutcomeCounts
from runtime.rollout.rollout import OVER, Event, Rollout
from runtime.rollout.terms import RolloutTerms

__all__ = [
    "OVER",
    "REPORTERS",
    "STEP_SECONDS",
    "Criterion",
    "Event",
    "Evidence",
    "OutcomeCounts",
    "Rollout",
    "RolloutTerms",
    "UnitSum",
    "judged",
    "lower",
    "read_criteria",
    "report",
    "resume",
    "rollout",
    "upper",
]
