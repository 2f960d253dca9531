"""The way into a plan on the caller's thread: its entry, and how large a batch may take it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from flour.data.batch import DOCUMENT, Batch, BatchReader, Form

Outputs = tuple[Any, ...]
#: Of SAMPLE calls by the entry one is timed, and of INLINE_SAMPLE other calls; powers of two.
SAMPLE = 64
#: A call by machine code that takes less time than a look at the clock is timed once in so many,
#: the first ones too where its code says so: a look among a hundred calls would be what the slowest
#: of them are known by.
RARE = 1024
INLINE_SAMPLE = 8
UNTIMED = SAMPLE - 1
#: Calls by the entry that take longer than this release the GIL, so that two threads compute at
#: once. Shorter ones would spend as long on getting it back.
RELEASE_SECONDS = 20e-6
_ROW = Form.ROW


class Counter:
    """Counts from any number of threads without a lock: `next` on it is one step of C code."""

    __slots__ = ("calls", "tick")

    def __init__(self) -> None:
        self.calls = count(1)
        self.tick = self.calls.__next__

    @property
    def value(self) -> int:
        """The number of times `tick` was called."""
        return int(repr(self.calls)[6:-1]) - 1  # "count(12)": looking must not count


class OutputsEntry:
    """Some outputs of a version, and the call that computes them.

    runtime.service.native_predict reads the slots where CPython keeps them.
    """

    __slots__ = ("function", "outputs", "places")

    def __init__(
        self,
        function: Callable[[object], Outputs] | None,
        outputs: tuple[str, ...],
        among: Sequence[str],
    ) -> None:
        #: It answers with `among`; None while batches have to go another way.
        self.function, self.outputs = function, outputs
        self.places = np.array([among.index(name) for name in outputs], np.int64)

    def answers(self, values: Outputs) -> dict[str, Any]:
        """These outputs by name, of what the call has answered."""
        return {name: values[at] for name, at in zip(self.outputs, self.places)}  # noqa: B905


class InlineEntry(OutputsEntry):
    """The part of a version that calls by the entry read, in Python and in machine code.

    As a part it is the whole: its call is the plan's entry.
    """

    __slots__ = (
        *("calls", "inline_characters", "inline_rows", "named", "parts", "rest", "text", "tick"),
        *("vector", "watched"),
    )

    def __init__(self, reader: BatchReader, outputs: tuple[str, ...], counter: Counter) -> None:
        super().__init__(None, outputs, outputs)
        #: Parts that were asked for, by their outputs: a tuple of names, or one name.
        self.parts: dict[tuple[str, ...] | str, OutputsEntry] = {}
        self.calls, self.tick = counter.calls, counter.tick
        self.vector, self.text, self.named = reader.vector, reader.text, reader.by_column
        #: How many rows, and how many characters of documents, may take the entry.
        self.inline_rows = self.inline_characters = 0
        #: Calls are looked at whose number has none of these bits: one in SAMPLE, or in RARE where
        #: they take little time, or more if a watch wants to see more of them.
        self.rest = UNTIMED
        #: True if a watch has to be told of every refused call.
        self.watched = False

    def takes(self, batch: Batch) -> bool:
        """True if the batch is small enough to go straight to the entry."""
        kind = batch.kind
        if kind is _ROW or kind is Form.DOCUMENT:
            return True
        if kind is Form.ARRAYS or kind is Form.ROWS:
            return batch.rows <= max(self.inline_rows, 1)
        return kind is Form.DOCUMENTS and (batch.rows == 1 or self._takes_documents(batch))

    def _takes_documents(self, batch: Batch) -> bool:
        most = self.inline_characters
        return DOCUMENT * batch.rows <= most and 0 < batch.characters <= most
