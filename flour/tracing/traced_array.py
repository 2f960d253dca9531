"""Numbers that remember how they were computed, so that other numbers can be put in their place.

    trace = Trace()
    weights = trace.leaf(np.float32([1, 2]))
    if np.all(weights > 0):             # a question: what follows holds only for this answer
        doubled = weights * 2
    again = trace.recorded([doubled])
    again([np.float32([3, 4])])         # [array([6, 8])]; None where the answer is another

Code that knows nothing of it computes with a `TracedArray` as with an array. Whatever depends on
values is either one of numpy's functions, which is written down, or a question, whose answer is:
whoever looks at the numbers themselves in whatever way gets them, and the formula holds for these
numbers only. What a formula cannot do is an error, and then there is nothing to put other numbers
into.
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
from objectstore import Blob
from objectstore.blob import DTYPES
from objectstore.digest import combine

#: A trace of more steps would take longer than what it stands for.
MOST_STEPS = 2000
#: Functions of numpy's whose answers depend on shapes and dtypes alone.
_BY_KIND = frozenset({np.result_type, np.shape, np.ndim, np.size, np.zeros_like, np.ones_like})
#: The same answers sooner.
_SHORT: dict[Any, Callable[..., Any]] = {
    np.all: partial(np.logical_and.reduce, axis=None),
    np.any: partial(np.logical_or.reduce, axis=None),
}
#: Whose answers' shapes depend on the arguments' shapes, where those are the formulas.
_SURE = frozenset({np.concatenate, np.transpose, np.square, np.sum, np.stack, np.vstack})
#: Asked first by whoever wants the values, which `__array__` hands out.
_BUFFERS = frozenset({"__array_interface__", "__array_struct__"})
_METHODS = frozenset(
    "all any astype copy flatten max mean min prod ravel repeat reshape sum transpose".split()  # noqa: SIM905 (shorter)
)


class NoFormulaError(Exception):
    """What was asked of a formula has no place in a trace."""


class ArrayTrace:
    """What has been computed from some arrays, in order."""

    def __init__(self) -> None:
        #: The value of each slot.
        self._values: list[Any] = []
        self._leaves: list[int] = []
        self._known: set[int] = set()
        self._steps: list[Step] = []
        self._blobs: dict[tuple[int, str], Blob] = {}
        self._refused: list[str] = []
        self._written: list[int] = []
        #: Slots of rows that may be longer or shorter with other numbers.
        self._free: set[int] = set()
        self._common: set[int] = set()
        #: Slots whose shapes somebody asked for.
        self._measured: set[int] = set()
        #: Parameters of two traces are never the same, whatever they hold.
        self._name = f"formula {token_hex(16)}"

    @property
    def broken(self) -> bool:
        """Whether something was asked that has no place here, whoever caught the error."""
        return bool(self._refused)

    def refuse(self, what: str) -> NoReturn:
        """Give up."""
        self._refused.append(what)
        raise NoFormulaError(what)

    def leaf(self, array: NDArray[Any], *, free: bool = False, common: bool = False) -> TracedArray:
        """Numbers others can be put in place of; where they are `free`, more or fewer, too.

        Those that models often have in `common` are looked at once as long as they are.
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
        """What a slot holds here, for who asks how large it is."""
        if slot in self._free:
            self.refuse("the length of what may have any")
        self._measured.add(slot)
        return self._values[slot]

    def value(self, slot: int) -> Any:
        """What a slot holds here."""
        return self._values[slot]

    def _slot(self, value: object) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _constant(self, value: object) -> int:
        """A slot for what is the same whatever the numbers are."""
        slot = self._slot(value.copy() if isinstance(value, np.ndarray) else value)
        self._known.add(slot)
        return slot

    def call(self, made: Called, *args: object) -> Any:
        """The answer to these arguments, written down."""
        lists = [len(arg) if isinstance(arg, list | tuple) else None for arg in args]
        if any(_has_formula(arg) for arg in args if isinstance(arg, list | tuple)):
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
        if _has_formula(key):
            self.refuse("places that depend on numbers")
        if target in self._free or (isinstance(value, TracedArray) and value.free):
            self.refuse("a row of any length is written")
        given = value.slot_of(self) if isinstance(value, TracedArray) else self._constant(value)
        places = (target, self._constant(key), given)
        operator.setitem(*(self._values[place] for place in places))
        self._written.append(target)
        self._steps.append(Step(operator.setitem, places, None, None, None))

    def pin(self, slot: int) -> Any:
        """The value itself, which from now on is the only one it may have."""
        value = self._values[slot]
        answer = np.asarray(value).tobytes()
        self._steps.append(Step(as_bytes, (slot,), None, None, None, answer, "bytes"))
        return value

    def blob(self, formula: TracedArray, dtype: Any) -> Blob:
        """The formula as a parameter; of two with equal content here, both are the first."""
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
        """What makes these again of other numbers in place of the leaves."""
        slots = [item.slot_of(self) for item in wanted]
        steps, results = shortened(
            self._steps, slots, self._values, self._known, self._written, self._measured
        )
        read = {place for step in steps for place in step.places} | {*results}
        values = [
            value if slot in self._known and slot in read else None
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
    """What is known of a formula's memory."""

    writeable: bool


class TracedArray(NDArrayOperatorsMixin):
    """An array, for code that computes with one."""

    __slots__ = ("_slot", "_trace", "fixed")
    __hash__ = None  # type: ignore[assignment]  # its value may not be looked at in secret

    def __init__(self, trace: ArrayTrace, slot: int) -> None:
        self._trace, self._slot = trace, slot
        #: Nobody may write to it.
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

    # --- what does not depend on values ----------------------------------------------------------

    def here(self) -> NDArray[Any]:
        """Its value where it was written down, for who compares it and decides nothing by it."""
        found: NDArray[Any] = self._value
        return found

    @property
    def trace(self) -> ArrayTrace:
        """Where it is written down what is done with it."""
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
    def shape(self) -> tuple[int, ...]:
        """As an array's."""
        return tuple(self._sized.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """As an array's."""
        found: np.dtype[Any] = self._value.dtype
        return found

    @property
    def size(self) -> int:
        """As an array's."""
        return int(self._sized.size)

    @property
    def ndim(self) -> int:
        """As an array's."""
        return int(self._value.ndim)

    @property
    def nbytes(self) -> int:
        """As an array's."""
        return int(self._sized.nbytes)

    @property
    def flags(self) -> Flags:
        """What is asked of an array's."""
        return Flags(not self.fixed)

    def __len__(self) -> int:
        return len(self._sized)

    # --- what is written down ------------------------------------------------------------------

    def __array_ufunc__(
        self, function: np.ufunc, method: str, *inputs: object, **options: object
    ) -> Any:
        if "out" in options or any(map(_has_formula, options.values())):
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
        if any(map(_has_formula, options.values())):
            self._trace.refuse("a formula by name")
        if function in _SHORT and len(args) == 1 and not options:
            return self._trace.call(Called(_SHORT[function], function.__name__, sure=True), *args)
        made = partial(function, **options) if options else function
        name, sure = f"numpy {function.__name__}", function in _SURE
        return self._trace.call(called(made, name, options, sure=sure), *args)

    def _plain(self, arg: object) -> Any:
        return arg._sized if isinstance(arg, TracedArray) else arg  # noqa: SLF001 (its own class)

    def __getattr__(self, name: str) -> Any:
        if name == "T":
            return self._trace.call(Called(np.transpose, "T", sure=True), self)
        if name in _BUFFERS or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        if name not in _METHODS:
            self._trace.refuse(f"an array's {name}")

        def method(*args: object, **options: object) -> Any:
            if any(map(_has_formula, (*args, *options.values()))):
                self._trace.refuse("a formula as an argument")
            made = operator.methodcaller(name, *args, **options)
            found = called(made, f"method {name}", args, options, sure=name != "repeat")
            return self._trace.call(found, self)

        return method

    def __getitem__(self, key: object) -> Any:
        if isinstance(key, TracedArray):
            return self._trace.call(Called(operator.getitem, "getitem"), self, key)
        if _has_formula(key):
            self._trace.refuse("places that depend on numbers")
        return self._trace.call(called(operator.itemgetter(key), "item", key, sure=True), self)

    def __setitem__(self, key: object, value: object) -> None:
        if self.fixed:
            self._trace.refuse("a parameter is written to")
        self._trace.set_item(self._slot, key, value)

    def __blob__(self, dtype: object) -> Blob:
        return self._trace.blob(self, dtype)

    # --- what looks at values ------------------------------------------------------------------

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
        self._trace.refuse("a formula is no data")

    def __repr__(self) -> str:
        return f"Formula({self.dtype}{list(self._value.shape)})"


def as_array(values: Any, dtype: Any = None) -> Any:
    """`np.asarray`, which leaves a traced array as it is instead of looking at its values."""
    if not isinstance(values, TracedArray):
        return np.asarray(values, dtype)
    return values if dtype in (None, values.dtype) else values.astype(dtype)


def noted(made: Called, *args: object) -> Any:
    """A function's answer, one step where an argument is a formula: what is in it is not seen."""
    first = next((arg for arg in args if isinstance(arg, TracedArray)), None)
    return made.function(*args) if first is None else first.trace.call(made, *args)


def _has_formula(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_formula, value))
    return isinstance(value, TracedArray)


def _nested(function: Callable[..., Any], shape: Sequence[int | None], *flat: object) -> Any:
    """A call whose arguments were lists, which have been put one after the other."""
    rest = iter(flat)
    args = [next(rest) if size is None else [next(rest) for _ in range(size)] for size in shape]
    return function(*args)


def _same_bytes(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return bool(one.shape == other.shape and one.tobytes() == other.tobytes())
