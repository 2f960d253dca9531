"""Estimates of compile times, from the length of source and the measurements so far.

What a character costs depends on what it calls: code over texts is mostly intrinsics, which are
compiled along. The first guess is that of a processor of 2.6 GHz, and counts as much as the
measurements of so many seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Seconds a character, measured over the models of scripts/build_packs.py: 11e-6 to 75e-6 where
#: there are numbers, 180e-6 to 250e-6 where there are texts, 12e-6 to 23e-6 in entries.
NUMBERS, TEXTS, ENTRIES = 40e-6, 210e-6, 18e-6
GUESS_SECONDS = 0.5
TEXT = re.compile(r"\b(?:text|wrap)_")
#: An entry's first argument is the object that Python calls.
_ENTRY = re.compile(r"\bdef \w+\(self,")

#: What was expected to be compiled so far, and what it took.
_expected, _taken = [GUESS_SECONDS], [GUESS_SECONDS]


def seconds(sources: Iterable[str]) -> float:
    """Seconds that these take, one after the other."""
    return sum(map(_guess, sources)) * _taken[0] / _expected[0]


def learn(source: str, taken: float) -> None:
    """Compiling this source has taken so many seconds."""
    _expected[0] += _guess(source)
    _taken[0] += taken


def _guess(source: str) -> float:
    each = ENTRIES if _ENTRY.search(source) else TEXTS if TEXT.search(source) else NUMBERS
    return len(source) * each
