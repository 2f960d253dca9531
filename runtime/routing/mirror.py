"""The memory that machine code reads to answer as a champion and note requests for a shadow.

A route of a champion with a shadow of everything needs no look at the row, so `Runtime.predict`
answers without Python: see runtime.service.native_predict. It appends a copy of the row, and one of
the answers, to the list of the mirror; who asks the shadow takes them from there, some at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol

import numpy as np

from runtime.routing.pairs import Answers
from runtime.routing.route import Route

#: Requests that wait for a shadow; more are shed.
WAITING = 4096
_NO_OPTIONS: Mapping[str, Any] = {}


class Mirrored(NamedTuple):
    """A request that the champion has answered."""

    route: Route
    rows: Any
    options: Mapping[str, Any]
    expected: Answers | Exception
    seconds: float | None
    """The champion's time; None if it was not measured."""
    found: Answers | None = None
    """The shadow's answers, if it was asked with the champion."""


class Answering(Protocol):
    """A version of a model, which counts its calls."""

    counts: Any
    entry: Any


class Mirror:
    """A route with a shadow of everything, as machine code takes it.

    `version` answers: the champion, or where both are `joined` a program of both, whose outputs are
    the champion's `names` and then the `others` of the shadow. `waiting` has each row with its
    outputs behind it, numbers as their bytes; it is None where nobody compares what was computed
    together.
    """

    __slots__ = (
        *("_told", "joined", "most", "names", "others", "route"),
        *("shed", "trial", "version", "waiting"),
    )

    def __init__(
        self, route: Route, version: Answering, names: tuple[str, ...], others: tuple[str, ...] = ()
    ) -> None:
        """Make the mirror of a route whose requests this version answers."""
        self.route, self.version, self.names, self.others = route, version, names, others
        self.joined = bool(others)
        #: Takes rows until it is known whether both should be joined.
        self.trial: Callable[[Sequence[Mirrored]], bool] | None = None
        self.waiting: list[Any] | None = []
        #: How many entries `waiting` may have.
        self.most = WAITING * (1 + len(names) + len(others))
        #: A step of it for each request that found the list full.
        self.shed, self._told = count(1), (1, 0)
        self.news()

    def take(self, most: int) -> list[Mirrored]:
        """Some of the requests that wait, the oldest first; called by one thread."""
        waiting, stride = self.waiting or [], 1 + len(self.names) + len(self.others)
        taken = waiting[: stride * most]
        del waiting[: len(taken)]
        some = [
            self._mirrored(_row(taken[at]), *map(_public, taken[at + 1 : at + stride]))
            for at in range(0, len(taken), stride)
        ]
        trial, self.trial = self.trial, None  # its end may look here again
        if trial is not None and not (some and trial(some)):
            self.trial = trial
        return some

    @property
    def left(self) -> int:
        """The number of waiting requests."""
        return len(self.waiting or ()) // (1 + len(self.names) + len(self.others))

    def note(self, rows: object, outputs: Iterable[object]) -> None:
        """Note copies of rows and outputs, as machine code does."""
        if self.waiting is not None and len(self.waiting) < self.most:
            self.waiting.extend((rows, *outputs))

    def _mirrored(self, rows: object, *outputs: object) -> Mirrored:
        many = len(self.names)
        expected = dict(zip(self.names, outputs, strict=False))
        found = dict(zip(self.others, outputs[many:], strict=True)) if self.joined else None
        return Mirrored(self.route, rows, _NO_OPTIONS, expected, None, found)

    def news(self) -> dict[str, int]:
        """The requests shed, and asked with the champion, since the last call of this."""
        shed = int(repr(self.shed)[6:-1])  # "count(12)": looking must not count
        asked = self.version.counts.inline.value if self.joined else 0
        before, self._told = self._told, (shed, asked)
        return {"shed": shed - before[0], "asked": asked - before[1]}


def _row(value: object) -> object:
    """A row as it came: machine code keeps a list of floats as bytes, and takes no other bytes."""
    return np.frombuffer(value, np.float64).tolist() if type(value) is bytes else value


def _public(value: object) -> object:
    """An answer as callers see it: machine code keeps the numbers of a vector as bytes."""
    return np.frombuffer(value, np.float64) if type(value) is bytes else value
