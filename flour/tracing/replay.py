"""A recorded computation, done again with other numbers.

`flour.tracing.traced_array` records steps; here those that are not needed go, and the rest is run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import FlourError


class Step(NamedTuple):
    """A recorded call: the function, the slots of its arguments, and the slot of its result."""

    function: Callable[..., Any]
    places: tuple[int, ...]
    slot: int | None
    #: What the result has to be: its shape and dtype, or the answer to a question.
    shape: tuple[int, ...] | None
    dtype: Any
    answer: bytes | bool | None = None
    #: Equal for equal calls; empty where that cannot be told.
    name: str = ""


class Called(NamedTuple):
    """A function to record, and what is known of its result."""

    function: Callable[..., Any]
    name: str
    #: Its shape and dtype depend on those of the arguments alone.
    sure: bool = False
    #: The function takes arrays of any length; and its result has any length itself.
    any_length: bool = False
    free: bool = False


def called(
    function: Callable[..., Any], what: str, *settings: object, sure: bool = False
) -> Called:
    """The function with a name made of its settings, unless these are arrays."""
    plain = not any(map(_has_array, settings))
    return Called(function, f"{what} {settings!r}" if plain else "", sure)


def _has_array(value: object) -> bool:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        return any(map(_has_array, value))
    return isinstance(value, np.ndarray)


def as_bytes(value: Any) -> bytes:
    """The value as bytes: the step that asks for it."""
    return bytes(value.tobytes())


# --- fewer steps --------------------------------------------------------------------------------


def shortened(
    steps: Sequence[Step],
    results: Sequence[int],
    values: Sequence[Any],
    constants: Collection[int],
    written: Collection[int],
    measured: Collection[int] = (),
) -> tuple[list[Step], list[int]]:
    """The steps that the results need, and the slots of the results.

    `values` is what every slot held, `constants` the slots that are constant, `written` those that
    were written into, and `measured` those whose shapes were asked for.
    """
    touched = [values[slot] for slot in written]
    once, moved = _once(steps, values, _equal_constants(constants, values), touched)
    made = [moved.get(slot, slot) for slot in results]
    asked = {moved.get(slot, slot) for slot in measured} & _unsure(once)
    return _asked_at_once(_needed(once, {*made} | asked), made), made


def _once(
    steps: Sequence[Step],
    values: Sequence[Any],
    moved: dict[int, int],
    touched: Sequence[NDArray[Any]],
) -> tuple[list[Step], dict[int, int]]:
    """The steps without repeated ones, and the slots that other slots are equal to."""
    seen: dict[tuple[Any, ...], int | None] = {}
    kept = list[Step]()
    for step in steps:
        places = tuple(moved.get(place, place) for place in step.places)
        key = (step.name, places, step.answer)
        if not step.name or _is_written(step, values, touched):
            kept.append(step._replace(places=places))
        elif key not in seen:
            seen[key] = step.slot
            kept.append(step._replace(places=places))
        elif step.slot is not None:
            moved[step.slot] = seen[key]  # type: ignore[assignment]  # equal calls both answer
    return kept, moved


def _equal_constants(constants: Collection[int], values: Sequence[Any]) -> dict[int, int]:
    """Constants that are an earlier one's value again."""
    first: dict[tuple[Any, ...], int] = {}
    moved = {}
    for slot in sorted(constants):
        value = values[slot]
        if isinstance(value, np.ndarray):
            key: tuple[Any, ...] = (value.dtype.str, value.shape, value.tobytes())
        elif isinstance(value, bool | int | float):
            key = (type(value), repr(value))
        else:
            continue
        moved[slot] = first.setdefault(key, slot)
    return moved


def _is_written(step: Step, values: Sequence[Any], touched: Sequence[NDArray[Any]]) -> bool:
    """Whether a step reads or returns memory that is written into."""
    slots = [*step.places, *([] if step.slot is None else [step.slot])]
    arrays = [values[slot] for slot in slots if isinstance(values[slot], np.ndarray)]
    return any(np.may_share_memory(one, other) for one in arrays for other in touched)


def _unsure(steps: Sequence[Step]) -> set[int]:
    """The slots whose shapes depend on numbers: their steps check the shape."""
    found = set[int]()
    for step in steps:
        if step.slot is not None and (step.shape is not None or not found.isdisjoint(step.places)):
            found.add(step.slot)
    return found


def _needed(steps: Sequence[Step], results: Collection[int]) -> list[Step]:
    """The steps whose results are read, and those that ask or write."""
    read, kept = {*results}, list[Step]()
    for step in reversed(steps):
        if step.slot is None or step.slot in read:
            read.update(step.places)
            kept.append(step)
    return kept[::-1]


def _asked_at_once(steps: Sequence[Step], results: Sequence[int]) -> list[Step]:
    """The steps, with each truth value and the question about it made one step."""
    uses: dict[int, int] = dict.fromkeys(results, 2)
    sure = {step.slot for step in steps if step.shape is None}
    for step in steps:
        for place in step.places:
            uses[place] = uses.get(place, 0) + 1
    asked = {
        step.places[0]: step.answer != b"\0"
        for step in steps
        if step.function is as_bytes
        and step.answer in {b"\0", b"\1"}
        and step.places[0] in sure
        and uses[step.places[0]] == 1
    }
    made = []
    for step in steps:
        if step.function is as_bytes and step.places[0] in asked:
            continue
        if step.slot in asked:
            step = step._replace(slot=None, answer=asked[step.slot])  # noqa: PLW2901 (as it is)
        made.append(step)
    return made


_Packed = tuple[Any, int, tuple[int, ...], int | None, Any, Any, bytes | bool | None]
#: Results of leaves that models have in common are kept for so many values of the leaves.
MOST_COMMON = 4

# --- running ------------------------------------------------------------------------------------


class Recorded:
    """A recorded computation, to be done with other numbers."""

    def __init__(
        self,
        values: list[Any],
        leaves: Sequence[int],
        kinds: Sequence[tuple[tuple[int, ...] | None, np.dtype[Any]]],
        steps: Sequence[Step],
        results: Sequence[int],
        common: Collection[int] = (),
    ) -> None:
        self._values, self._leaves, self._kinds = values, tuple(leaves), tuple(kinds)
        self._results = tuple(results)
        #: Which of the leaves models often have in common.
        self._common = tuple(n for n, slot in enumerate(leaves) if slot in common)
        first, rest = _apart(steps, [slot for slot in leaves if slot not in common])
        self._first, self._steps = [*map(_packed, first)], [*map(_packed, rest)]
        #: Their latest values, and the results; None where a question was answered otherwise.
        self._latest: list[tuple[list[NDArray[Any]], dict[int, Any] | None]] = []

    def __len__(self) -> int:
        return len(self._first) + len(self._steps)

    def __call__(self, leaves: Sequence[NDArray[Any]]) -> list[NDArray[Any]] | None:
        """The results for these leaves; None where a question is answered otherwise."""
        values = self._values.copy()
        for slot, (shape, dtype), leaf in zip(self._leaves, self._kinds, leaves, strict=True):
            # One of any length has no shape here.
            same = leaf.ndim == 1 if shape is None else leaf.shape == shape
            if not same or leaf.dtype != dtype:
                return None
            values[slot] = leaf
        try:
            with np.errstate(all="ignore"):
                made = self._common_results(leaves, values) if self._first else {}
                if made is None:
                    return None
                for slot, value in made.items():
                    values[slot] = value
                fits = _run(self._steps, values)
                return [values[slot] for slot in self._results] if fits else None
        except (ArithmeticError, IndexError, ValueError, np.linalg.LinAlgError, FlourError):
            return None  # importing the model in full says what is wrong

    def _common_results(
        self, leaves: Sequence[NDArray[Any]], values: list[Any]
    ) -> dict[int, Any] | None:
        """The results of the leaves that models have in common."""
        here = [leaves[place] for place in self._common]
        for others, made in self._latest:
            if all(one is other for one, other in zip(here, others, strict=True)):
                return made
        fits = _run(self._first, values)
        made = {step[3]: values[step[3]] for step in self._first if step[3] is not None}
        found = made if fits else None
        self._latest = [(here, found), *self._latest[: MOST_COMMON - 1]]
        return found


def _apart(steps: Sequence[Step], others: Sequence[int]) -> tuple[list[Step], list[Step]]:
    """The steps that need none of the other leaves, and the rest."""
    if any(step.slot is None and step.answer is None for step in steps):
        return [], [*steps]  # an array is written into
    needing, first, rest = {*others}, list[Step](), list[Step]()
    for step in steps:
        if needing.isdisjoint(step.places):
            first.append(step)
        else:
            rest.append(step)
            needing |= set() if step.slot is None else {step.slot}
    return first, rest


def _packed(step: Step) -> _Packed:
    return (step.function, step.places[0], step.places[1:], *step[2:6])


def _run(steps: Sequence[_Packed], values: list[Any]) -> bool:
    """Fill the slots; whether every question is answered as it was."""
    for function, first, more, slot, shape, dtype, answer in steps:
        if more:
            made = function(values[first], *[values[place] for place in more])
        else:
            made = function(values[first])
        if slot is not None:
            if shape is not None and (made.shape != shape or made.dtype != dtype):
                return False
            values[slot] = made
        elif answer is not None and made != answer:
            return False
    return True
