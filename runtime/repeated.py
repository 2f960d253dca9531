"""Failures that a thread may meet again and again, and that its log is not to be filled with."""

from __future__ import annotations

from collections import Counter


class Repeated:
    """Counts failures by kind, and says which of them to log: the 1st, 2nd, 4th, 8th and so on."""

    def __init__(self) -> None:
        self._times: Counter[object] = Counter()

    def is_due(self, kind: object = None) -> bool:
        """Count one more of this kind; true if it is one to log."""
        self._times[kind] += 1
        return self._times[kind] & (self._times[kind] - 1) == 0

    def is_over(self, kind: object = None) -> None:
        """Forget a kind that no longer fails: its next failure is the first."""
        self._times.pop(kind, None)
