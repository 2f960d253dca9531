"""What a champion and its challenger answered to the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

Answers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers, or errors, to the same rows: the champion's is what the challenger's should be.

    Versions are named as "name@version". Seconds are those of the calls, without waiting.
    """

    champion: str
    challenger: str
    rows: object
    expected: Answers | Exception
    found: Answers | Exception
    champion_seconds: float
    challenger_seconds: float


class Pairs(Protocol):
    """What takes pairs, as a comparison does."""

    def add(self, pair: Pair) -> None:
        """Take a pair in; called by executors, several at once."""
        ...
