"""Arrays that record what is computed from them, so that it can be done with other numbers.

    trace = ArrayTrace()
    weights = trace.leaf(np.float32([1, 2]))
    if np.all(weights > 0):             # a question: what follows holds only for this answer
        doubled = weights * 2
    again = trace.recorded([doubled])
    again([np.float32([3, 4])])         # [array([6, 8])]; None where the answer is another

Code computes with a `TracedArray` as with an array. A numpy function of it is recorded as a step. A
truth value, a number or a list made of it is recorded as a question, with its answer: the recording
holds for numbers with the same answers only. What cannot be recorded is an error, and there is no
recording then.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from secrets import token_hex
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from flour.tracing.replay import Called, Recorded, Step, as_bytes, called, shortened
from objectstore import DTYPES, Blob, combine

#: A trace of more steps would take longer than what it stands for.
MOST_STEPS = 2000
#: Functions whose results depend on shapes and dtypes alone.
_BY_KIND = frozenset({np.result_type, np.shape, np.ndim, np.size, np.zeros_like, np.ones_like})
#: Faster functions with the same results.
_SHORT: dict[Any, Callable[..., Any]] = {
    np.all: partial(np.logical_and.reduce, axis=None),
    np.any: partial(np.logical_or.reduce, axis=None),
}
#: Functions for which the shapes of traced arguments decide the shape of the result.
_SURE = frozenset({np.concatenate, np.transpose, np.square, np.sum, np.stack, np.vstack})
#: Attributes that say how large an array is, and those that do not.
_SIZES, _KINDS = frozenset({"shape", "size", "nbytes"}), frozenset({"dtype", "ndim"})
#: numpy looks for these before it calls `__array__`.
_BUFFERS = frozenset({"__array_interface__", "__array_struct__"})
_METHODS = frozenset(
    "all any astype copy flatten max mean min prod ravel repeat reshape sum transpose".split()  # noqa: SIM905 (shorter)
)


class NoFormulaError(Exception):
    """An operation that cannot be recorded."""


class ArrayTrace:
    """The steps of a computation from some arrays, in order."""

    def __init__(self) -> None:
        #: The value of each slot.
        self._values: list[Any] = []
        self._leaves: list[int] = []
        self._constants: set[int] = set()
        self._steps: list[Step] = []
        self._blobs: dict[tuple[int, str], Blob] = {}
        self._refused: list[str] = []
        self._written: list[int] = []
        #: Slots of arrays of any length: with other numbers they may be longer or shorter.
        self._free: set[int] = set()
        self._common: set[int] = set()
        #: Slots whose shapes were asked for.
        self._measured: set[int] = set()
        #: Parameters of two traces are never the same, whatever they hold.
        self._name = f"formula {token_hex(16)}"

    @property
    def broken(self) -> bool:
        """Whether an operation could not be recorded, also if its error was caught."""
        return bool(self._refused)

    def refuse(self, what: str) -> NoReturn:
        """Say that an operation cannot be recorded; the trace is broken then."""
        self._refused.append(what)
        raise NoFormulaError(what)

    def leaf(self, array: NDArray[Any], *, free: bool = False, common: bool = False) -> TracedArray:
        """Numbers that others can take the place of; as many others as there are, unless `free`.

        Results of those that models often have in `common` are kept for the next model.
        """
        self._leaves.append(slot := self._slot(array))
        if free:
            self._free.add(slot)
        if common:
            self._common.add(slot)
        return TracedArray(self, slot)

    def free(self, slot: int) -> bool:
        """Whether a slot is a row that may be longer or shorter with other numbers."""
        return slot in self._free

    def sized(self, slot: int) -> Any:
        """The value of a slot, of which only the size is asked."""
        if slot in self._free:
            self.refuse("the length of what may have any")
        self._measured.add(slot)
        return self._values[slot]

    def value(self, slot: int) -> Any:
        """The value of a slot."""
        return self._values[slot]

    def _slot(self, value: object) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _constant(self, value: object) -> int:
        """A slot for a constant."""
        slot = self._slot(value.copy() if isinstance(value, np.ndarray) else value)
        self._constants.add(slot)
        return slot

    def call(self, made: Called, *args: object) -> Any:
        """The result of a call, which is recorded."""
        lists = [len(arg) if isinstance(arg, list | tuple) else None for arg in args]
        if any(_has_traced(arg) for arg in args if isinstance(arg, list | tuple)):
            each = (arg if isinstance(arg, list | tuple) else [arg] for arg in args)
            nested = partial(_nested, made.function, lists)
            name = f"{made.name} {lists}" if made.name else ""
            flat = [part for parts in each for part in parts]
            return self.call(Called(nested, name, made.sure), *flat)
        places = tuple(
            arg.slot_of(self) if isinstance(arg, TracedArray) else self._constant(arg)
            for arg in args
        )
        if not made.any_length and not self._free.isdisjoint(places):
            self.refuse("a row of any length")
        return self._noted(made, places, made.function(*(self._values[p] for p in places)))

    def _noted(self, of: Called, places: tuple[int, ...], made: object) -> Any:
        if len(self._steps) >= MOST_STEPS:
            self.refuse("too many steps")
        if isinstance(made, bool):
            self._steps.append(Step(of.function, places, None, None, None, made, of.name))
            return made
        if not isinstance(made, np.ndarray | np.generic):
            self.refuse(f"an answer of type {type(made).__name__}")
        if made.dtype.kind not in "biuf":
            self.refuse(f"an answer of dtype {made.dtype}")
        slot = self._slot(made)
        if of.free:
            if made.ndim != 1:
                self.refuse("rows of any length")
            self._free.add(slot)
        shape, dtype = (None, None) if of.sure or of.free else (made.shape, made.dtype)
        self._steps.append(Step(of.function, places, slot, shape, dtype, None, of.name))
        return TracedArray(self, slot)

    def set_item(self, target: int, key: object, value: object) -> None:
        """Write into an array: steps are made again in order, so views of it see the same."""
        if _has_traced(key):
            self.refuse("places that depend on numbers")
        if target in self._free or (isinstance(value, TracedArray) and value.free):
            self.refuse("a row of any length is written")
        given = value.slot_of(self) if isinstance(value, TracedArray) else self._constant(value)
        places = (target, self._constant(key), given)
        operator.setitem(*(self._values[place] for place in places))
        self._written.append(target)
        self._steps.append(Step(operator.setitem, places, None, None, None))

    def pin(self, slot: int) -> Any:
        """The value itself: the recording holds for this value only."""
        value = self._values[slot]
        answer = np.asarray(value).tobytes()
        self._steps.append(Step(as_bytes, (slot,), None, None, None, answer, "bytes"))
        return value

    def blob(self, formula: TracedArray, dtype: Any) -> Blob:
        """A traced array as a parameter; of two with equal content, both are the first."""
        kind = formula.dtype if dtype is None else np.dtype(dtype)
        if kind.str not in DTYPES:
            self.refuse(f"a parameter of {kind}")
        known = self._blobs.get((formula.slot, kind.str))
        if known is not None:
            return known
        copy = called(partial(np.array, dtype=kind, order="C"), "blob", kind.str, sure=True)
        made = self.call(copy._replace(any_length=True, free=formula.free), formula)
        for other in dict.fromkeys(self._blobs.values()):
            array: Any = other.array
            alike = made.free or array.free or array.shape == made.shape
            same = Called(_same_bytes, "same", any_length=True)
            if alike and array.dtype == made.dtype and self.call(same, array, made):
                self._blobs[formula.slot, kind.str] = other
                return other
        made.fixed = True
        blob = Blob(made, combine(self._name, str(made.slot)))
        self._blobs[formula.slot, kind.str] = blob
        return blob

    def recorded(self, wanted: Sequence[TracedArray]) -> Recorded:
        """The computation of these arrays, for other numbers in place of the leaves."""
        slots = [item.slot_of(self) for item in wanted]
        steps, results = shortened(
            self._steps, slots, self._values, self._constants, self._written, self._measured
        )
        read = {place for step in steps for place in step.places} | {*results}
        values = [
            value if slot in self._constants and slot in read else None
            for slot, value in enumerate(self._values)
        ]
        kinds = [(self._values[slot].shape, self._values[slot].dtype) for slot in self._leaves]
        free = [slot in self._free for slot in self._leaves]
        leaves = [
            (None if some else shape, dtype)
            for some, (shape, dtype) in zip(free, kinds, strict=True)
        ]
        return Recorded(values, self._leaves, leaves, steps, results, self._common)


class Flags(NamedTuple):
    """What is asked of the flags of an array."""

    writeable: bool


class TracedArray(NDArrayOperatorsMixin):
    """An array, for code that computes with one."""

    __slots__ = ("_slot", "_trace", "fixed")
    __hash__ = None  # type: ignore[assignment]  # as an array; its value would not be recorded

    def __init__(self, trace: ArrayTrace, slot: int) -> None:
        self._trace, self._slot = trace, slot
        #: Whether it is read-only.
        self.fixed = False

    @property
    def slot(self) -> int:
        """Its place in the trace."""
        return self._slot

    def slot_of(self, trace: ArrayTrace) -> int:
        """Its place in this trace, which has to be its own."""
        if trace is not self._trace:
            self._trace.refuse("numbers of two traces meet")
        return self._slot

    # --- shapes and dtypes ----------------------------------------------------------------------

    def here(self) -> NDArray[Any]:
        """Its value in the recorded run, to compare; nothing may be decided by it."""
        found: NDArray[Any] = self._value
        return found

    @property
    def trace(self) -> ArrayTrace:
        """The trace that records it."""
        return self._trace

    @property
    def free(self) -> bool:
        """Whether with other numbers it may be longer or shorter."""
        return self._trace.free(self._slot)

    @property
    def _value(self) -> Any:
        return self._trace.value(self._slot)

    @property
    def _sized(self) -> Any:
        return self._trace.sized(self._slot)

    @property
    def flags(self) -> Flags:
        """What is asked of an array's."""
        return Flags(not self.fixed)

    def __len__(self) -> int:
        return len(self._sized)

    # --- steps --------------------------------------------------------------------------------

    def __array_ufunc__(
        self, function: np.ufunc, method: str, *inputs: object, **options: object
    ) -> Any:
        if "out" in options or any(map(_has_traced, options.values())):
            self._trace.refuse("an operation in place")
        whole: Any = function if method == "__call__" else getattr(function, method)
        made = partial(whole, **options) if options else whole
        name = f"{function.__name__} {method}"
        return self._trace.call(called(made, name, options, sure=True), *inputs)

    def __array_function__(
        self, function: Callable[..., Any], kinds: object, args: Any, options: Any
    ) -> Any:
        if function in _BY_KIND:
            return function(*map(self._plain, args), **options)
        if any(map(_has_traced, options.values())):
            self._trace.refuse("a traced array by name")
        if function in _SHORT and len(args) == 1 and not options:
            return self._trace.call(Called(_SHORT[function], function.__name__, sure=True), *args)
        made = partial(function, **options) if options else function
        name, sure = f"numpy {function.__name__}", function in _SURE
        return self._trace.call(called(made, name, options, sure=sure), *args)

    def _plain(self, arg: object) -> Any:
        return arg._sized if isinstance(arg, TracedArray) else arg  # noqa: SLF001 (its own class)

    def __getattr__(self, name: str) -> Any:
        if name in _SIZES:
            return getattr(self._sized, name)
        if name in _KINDS:
            return getattr(self._value, name)
        if name == "T":
            return self._trace.call(Called(np.transpose, "T", sure=True), self)
        if name in _BUFFERS or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        if name not in _METHODS:
            self._trace.refuse(f"an array's {name}")

        def method(*args: object, **options: object) -> Any:
            if any(map(_has_traced, (*args, *options.values()))):
                self._trace.refuse("a traced array as an argument")
            made = operator.methodcaller(name, *args, **options)
            found = called(made, f"method {name}", args, options, sure=name != "repeat")
            return self._trace.call(found, self)

        return method

    def __getitem__(self, key: object) -> Any:
        if isinstance(key, TracedArray):
            return self._trace.call(Called(operator.getitem, "getitem"), self, key)
        if _has_traced(key):
            self._trace.refuse("places that depend on numbers")
        return self._trace.call(called(operator.itemgetter(key), "item", key, sure=True), self)

    def __setitem__(self, key: object, value: object) -> None:
        if self.fixed:
            self._trace.refuse("a parameter is written to")
        self._trace.set_item(self._slot, key, value)

    def __blob__(self, dtype: object) -> Blob:
        return self._trace.blob(self, dtype)

    # --- questions -----------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._trace.pin(self._slot))

    def __float__(self) -> float:
        return float(self._trace.pin(self._slot))

    def __int__(self) -> int:
        return int(self._trace.pin(self._slot))

    def __index__(self) -> int:
        return operator.index(self._trace.pin(self._slot))

    def __iter__(self) -> Iterator[Any]:
        if self.ndim > 1:
            return (self[row] for row in range(len(self)))
        return iter(self._trace.pin(self._slot).copy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 (numpy's protocol)
        return np.array(self._trace.pin(self._slot), dtype=dtype)

    def tolist(self) -> Any:
        """As an array's."""
        return self._trace.pin(self._slot).tolist()

    def item(self) -> Any:
        """As an array's."""
        return self._trace.pin(self._slot).item()

    def __reduce__(self) -> NoReturn:
        self._trace.refuse("a traced array is no data")

    def __repr__(self) -> str:
        return f"TracedArray({self.dtype}{list(self._value.shape)})"


def as_array(values: Any, dtype: Any = None) -> Any:
    """`np.asarray`, which leaves a traced array as it is instead of looking at its values."""
    if not isinstance(values, TracedArray):
        return np.asarray(values, dtype)
    return values if dtype in (None, values.dtype) else values.astype(dtype)


def noted(made: Called, *args: Any) -> Any:
    """A function's result; recorded as one step, whatever it does inside, for traced arguments."""
    first = next((arg for arg in args if isinstance(arg, TracedArray)), None)
    return made.function(*args) if first is None else first.trace.call(made, *args)


def _has_traced(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_traced, value))
    return isinstance(value, TracedArray)


def _nested(function: Callable[..., Any], shape: Sequence[int | None], *flat: Any) -> Any:
    """A call with lists as arguments, whose elements are given one after the other."""
    rest = iter(flat)
    args = [next(rest) if size is None else [next(rest) for _ in range(size)] for size in shape]
    return function(*args)


def _same_bytes(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return bool(one.shape == other.shape and one.tobytes() == other.tobytes())
