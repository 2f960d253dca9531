"""The answers of a champion and its challenger to the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Answers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers, or errors, to the same rows: the champion's is what the challenger's should be.

    Versions are named as "name@version". Seconds are those of the calls, without waiting; None
    where nobody has looked at the clock.
    """

    champion: str
    challenger: str
    rows: object
    expected: Answers | Exception
    found: Answers | Exception
    champion_seconds: float | None
    challenger_seconds: float | None


class PairSink(Protocol):
    """A consumer of pairs, such as a comparison."""

    def add(self, pair: Pair) -> None:
        """Take a pair in; called by executors, several at once."""


def bits(value: object) -> object:
    """A value as its type, shape and bits, for comparisons."""
    if isinstance(value, np.ndarray):
        content = value.tolist() if value.dtype == object else value.tobytes()
        return value.dtype, value.shape, content
    return type(value), value.hex() if isinstance(value, float) else value
