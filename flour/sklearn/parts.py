"""Fitted estimators taken apart: the attributes that adapters read of earlier ones.

The first estimator of a structure is imported as usual; the second is imported once more with a
recorder (see flour.tracing.fitted), which tells what is read of it. From then on these attributes
are read of each estimator with the same classes inside: numbers, and constants, which are part of
the key.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

from numpy.typing import NDArray

from flour.core.bounded import Bounded
from flour.language.adapters import Fitted, registered
from flour.language.flow import Flow
from flour.tracing.fitted import Parts, Reading, Recorder, copied, outline
from flour.tracing.traced_array import ArrayTrace

#: Structures whose readings are kept, readings of each, and constants that plans share.
MOST_STRUCTURES = 256
MOST_READINGS = 4
MOST_CONSTANTS = 1024

#: The program of an estimator; with a trace, of one that is being recorded.
Import = Callable[[Fitted, ArrayTrace | None], Flow]


class Structure:
    """Estimators with the same classes inside, imported with the same options."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        #: What was read in these ways of those that were recorded: others like them fit.
        self.recorded: Bounded[tuple[Reading, tuple[Any, ...]], None] = Bounded(MOST_CONSTANTS)
        #: Something is read that cannot be told apart from others of its kind.
        self.unreadable = False


class StoredEstimator:
    """An estimator as the attributes that its adapters read."""

    def __init__(
        self, reading: Reading, values: list[Any], numbers: list[NDArray[Any]], read: Import
    ) -> None:
        self._reading, self._values, self._read = reading, values, read
        self._numbers = numbers

    def flow(self) -> Flow:
        """The program, imported now."""
        return self._read(self._reading.restored(self._values, self._numbers), None)


class EstimatorParts:
    """A fitted estimator taken apart."""

    named = True

    def __init__(
        self, estimator: object, structure: Structure, key: Hashable, read: Import
    ) -> None:
        self._estimator, self._structure, self._key, self._read = estimator, structure, key, read
        #: Which of the structure's readings fits, and what it says.
        self._reading: Reading | None = None
        self._parts = Parts((), [])
        for reading in structure.readings:
            parts = reading.of(estimator)
            if parts is not None:
                self._reading, self._parts = reading, parts
                # Others may fit as well: what they read besides is there, too.
                if (reading, parts.constants) in structure.recorded:
                    break

    @property
    def key(self) -> Hashable:
        """The classes inside, what is read of them, and all of that but the numbers."""
        return self._key, self._reading, self._parts.constants

    def numbers(self) -> list[NDArray[Any]] | None:
        """The fitted numbers that are read; None where it is not known which are."""
        return None if self._reading is None else self._parts.numbers

    def traced(self, trace: ArrayTrace) -> Flow:
        """The program with traced arrays for the numbers; writes down what is read."""
        recorder = Recorder(self._estimator, trace)
        try:
            flow = self._read(recorder.root, trace)
        finally:
            self._structure.unreadable |= recorder.unreadable
        reading = recorder.reading()
        parts = reading.of(self._estimator)
        if parts is None:
            recorder.refuse("what has changed since")
        with _lock:
            every = self._structure.readings
            if reading not in every:
                every.append(reading)
            self._structure.unreadable |= len(every) > MOST_READINGS
            self._reading, self._parts = every[every.index(reading)], parts
            self._structure.recorded[self._reading, parts.constants] = None
        return flow

    def stored(self) -> StoredEstimator:
        """Its numbers, and the constants, which plans of equal ones share."""
        reading = self._reading
        assert reading is not None, "a template was made of its numbers"
        values = constants.get(self.key)
        if values is None:
            constants[self.key] = values = reading.values(self._estimator)
        return StoredEstimator(reading, values, [*map(copied, self._parts.numbers)], self._read)


def take_apart(estimator: object, ways: Hashable, read: Import) -> EstimatorParts | None:
    """An estimator's structure and numbers; None for what is not one of a few objects.

    `ways` is all that matters to how it is imported, besides what `read` is given.
    """
    classes = outline(estimator)
    if not classes:
        return None
    key = classes, ways, registered()
    structure = structures.first(key, Structure())
    return None if structure.unreadable else EstimatorParts(estimator, structure, key, read)


structures: Bounded[Hashable, Structure] = Bounded(MOST_STRUCTURES)
constants: Bounded[Hashable, list[Any]] = Bounded(MOST_CONSTANTS)
_lock = threading.Lock()
