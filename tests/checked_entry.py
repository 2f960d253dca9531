"""Run the text of an entry in Python over live objects, each known with its borders.

An entry follows addresses into Python's own objects. Here the same text runs with every load and
store checked: an object's own bytes may be read, a list's items as far as it goes, an array's data
within its bounds, the entry's tables and its memory. C functions are called as they are, under
their names; what they give is known from then on, what was freed is not any more, and any of them
can be made to fail.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oven.compiler import machine
from oven.compiler.intrinsics import vocabulary as every
from oven.entry import tables
from oven.entry.builtin import NativeTable
from oven.entry.generator import EntryCode
from oven.entry.interpreter import address, object_layout
from tests.checked import MOST_ACCESSES, SIZES, EndlessError, Int64, OutOfBoundsError, vocabulary

WORD = ctypes.c_int64


class Region(NamedTuple):
    """Memory that may be used."""

    start: int
    size: int
    name: str
    writable: bool


class LiveMemory:
    """What of the process's memory the entry may use, by address."""

    def __init__(self) -> None:
        self._regions: list[Region] = []
        self._objects: dict[int, list[Region]] = {}
        self._kept: list[NDArray[Any]] = []
        layout = object_layout()
        assert layout is not None, "there are entries"
        self._offsets = layout.offsets
        self.accesses = 0

    def add(self, name: str, content: NDArray[Any], *, writable: bool = False) -> int:
        """Memory for the entry, at its own address."""
        self._kept.append(content)
        return self.allow(name, content.ctypes.data, content.nbytes, writable=writable).start

    def allow(self, name: str, start: int, size: int, *, writable: bool = False) -> Region:
        """These bytes may be used from now on."""
        made = Region(int(start), int(size), name, writable)
        insort(self._regions, made)
        return made

    def forbid(self, region: Region) -> None:
        """And these no longer."""
        self._regions.remove(region)

    def at(self, where: int, size: int, *, write: bool) -> NDArray[np.uint8]:
        """The bytes at an address, if they may be used so."""
        self.accesses += 1
        if self.accesses > MOST_ACCESSES:
            raise EndlessError(f"more than {MOST_ACCESSES} loads and stores")
        self.check(where, size, write=write)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(where))

    def check(self, where: int, size: int, *, write: bool) -> None:
        """Raise unless these bytes may be used so."""
        place = bisect_right(self._regions, (where + 1,))
        for region in reversed(self._regions[:place]):
            if where + size <= region.start + region.size and (region.writable or not write):
                return
        near = self._regions[place - 1] if place else None
        raise OutOfBoundsError(f"{size} bytes at {where:#x}, {write=}; next to it is {near}")

    # --- objects -----------------------------------------------------------------------------

    def see(self, item: Any, *, writable: bool = False) -> None:
        """An object may be read, and what can be reached from it."""
        if id(item) in self._objects:
            return
        kind = type(item)
        size = object.__basicsize__
        if isinstance(item, tuple):
            size = tuple.__basicsize__ + 8 * len(item)
        elif kind in {list, str, float, np.ndarray, NativeTable} or isinstance(item, _SCALARS):
            size = kind.__basicsize__
        self._objects[id(item)] = [self.allow(f"{kind.__name__}", id(item), size)]
        if isinstance(item, np.ndarray):
            self._see_array(item, writable=writable)
        elif isinstance(item, list | tuple):
            self._see_items(item, writable=writable)
        elif isinstance(item, dict):
            for each in (*item.keys(), *item.values()):
                self.see(each)

    def _see_items(self, items: Any, *, writable: bool) -> None:
        if isinstance(items, list):
            start = self._pointer(items, "LIST_ITEMS")
            found = self.allow("items", start, 8 * len(items), writable=writable)
            self._objects[id(items)].append(found)
        for each in items:
            self.see(each, writable=writable)

    def _see_array(self, item: NDArray[Any], *, writable: bool) -> None:
        low, high = np.lib.array_utils.byte_bounds(item)
        for name in ("ARRAY_SHAPE", "ARRAY_STRIDES"):
            start = self._pointer(item, name)
            self._objects[id(item)].append(self.allow(name, start, 8 * item.ndim))
        if item.size:
            self._objects[id(item)].append(self.allow("data", low, high - low, writable=writable))
        self.see(item.dtype)
        if item.dtype == object:
            for each in np.ravel(item):
                self.see(each)

    def _pointer(self, item: Any, name: str) -> int:
        return int(WORD.from_address(id(item) + 8 * self._offsets[name].place).value)

    def drop(self, where: int) -> None:
        """One reference less; of an object that nobody else has, nothing may be read any more."""
        count = ctypes.c_int32.from_address(where + 4 * self._offsets["REFERENCES"].place).value
        for region in self._objects.pop(where, []) if count == 1 else ():
            self.forbid(region)


_SCALARS = (np.float64, np.float32, np.int64, np.bool_, np.dtype)


class Calls:
    """The C functions that an entry calls, by their names."""

    def __init__(self, memory: LiveMemory, fails: Callable[[str], bool]) -> None:
        self.memory, self._fails = memory, fails
        self.error: BaseException | None = None
        self.left_bytes = 0
        self.blocks: dict[int, tuple[NDArray[np.uint8], Region]] = {}

    @property
    def left(self) -> int:
        """How many blocks of memory were not freed."""
        return len(self.blocks)

    def leave(self, start: int, size: int) -> None:
        """A block that is left for the next call; it must be one, and as large as is said."""
        assert len(self.blocks.pop(start)[0]) == size
        self.left_bytes = size

    def call(self, name: str, *arguments: Any) -> Any:
        """What this function says to these arguments."""
        given = [each if isinstance(each, float) else int(each) for each in arguments]
        own = getattr(self, f"_{name}", None)
        if self._fails(name):
            self.error = MemoryError() if name.startswith(("PyTuple", "PyArray", "PyFl")) else None
            return Int64(0)
        made = own(*given) if own is not None else self._plain(name, *given)
        return made if isinstance(made, float) else Int64(made)

    def _plain(self, name: str, *given: Any) -> Any:
        kinds = [ctypes.c_double if isinstance(each, float) else WORD for each in given]
        result = ctypes.c_double if name == "PyLong_AsDouble" else WORD
        try:
            return ctypes.PYFUNCTYPE(result, *kinds)(address(name))(*given)
        except BaseException as error:  # noqa: BLE001 (the function's own, which the entry asks for)
            self.error = error
            return -1.0 if result is ctypes.c_double else 0

    def _seen(self, made: int, *, writable: bool = False) -> int:
        if made:
            self.memory.see(ctypes.cast(made, ctypes.py_object).value, writable=writable)
        return made

    def _PyErr_Occurred(self) -> int:  # noqa: N802 (C's names)
        return int(self.error is not None)

    def _PyErr_Clear(self) -> int:  # noqa: N802
        self.error = None
        return 0

    def _PyErr_NoMemory(self) -> int:  # noqa: N802
        self.error = MemoryError()
        return 0

    def _PyEval_SaveThread(self) -> int:  # noqa: N802
        return 1

    def _PyEval_RestoreThread(self, thread: int) -> int:  # noqa: N802
        assert thread == 1
        return 0

    def _PyMem_RawMalloc(self, size: int) -> int:  # noqa: N802
        block = np.zeros(size, np.uint8)
        start = block.ctypes.data
        self.blocks[start] = block, self.memory.allow("block", start, size, writable=True)
        return int(start)

    def _PyMem_RawFree(self, start: int) -> int:  # noqa: N802
        if start == 0:
            return 0
        _, region = self.blocks.pop(start)
        self.memory.forbid(region)
        return 0

    def _memcpy(self, to: int, start: int, size: int) -> int:
        self.memory.check(to, size, write=True)
        self.memory.check(start, size, write=False)
        ctypes.memmove(to, start, size)
        return to

    def _PyUnicode_AsUTF8AndSize(self, item: int, size: int) -> int:  # noqa: N802
        made = self._plain("PyUnicode_AsUTF8AndSize", item, size)
        if made:
            self.memory.allow("UTF-8", made, WORD.from_address(size).value)
        return int(made)

    def _PyTuple_New(self, count: int) -> int:  # noqa: N802
        made = self._plain("PyTuple_New", count)
        self.memory._objects[made] = [
            self.memory.allow("answers", made, tuple.__basicsize__ + 8 * count)
        ]
        return int(made)

    def _PyArray_Empty(self, *given: int) -> int:  # noqa: N802
        return self._seen(self._plain("PyArray_Empty", *given), writable=True)

    def _PyDict_GetItemWithError(self, table: int, key: int) -> int:  # noqa: N802
        return self._seen(self._plain("PyDict_GetItemWithError", table, key))

    def _PyDict_Next(self, item: int, *places: int) -> int:  # noqa: N802
        more = self._plain("PyDict_Next", item, *places)
        for place in places[1:] if more else ():
            self._seen(WORD.from_address(place).value)
        return int(more)

    def _Py_DecRef(self, item: int) -> int:  # noqa: N802
        self.memory.drop(item)
        return int(self._plain("Py_DecRef", item))


def run(
    entry: Any, argument: Any, fails: Callable[[str], bool] = lambda _: False, spare: int = 0
) -> tuple[Any, Calls]:
    """What the entry answers in checked memory, and what it called; its errors are raised.

    `spare` is the size of the block of memory that an earlier call has left.
    """
    table = entry.__self__
    code, memory = table.code, LiveMemory()
    words = dict(zip(code.words, map(int, table), strict=True))
    for each in table.kept:
        if isinstance(each, np.ndarray) and each.dtype == np.uint8:
            size = words["SHARED_BYTES" if "SHARED_BYTES" in words else "SCRATCH_BYTES"]
            memory.allow("shared scratch", each.ctypes.data, size, writable=True)
            memory._objects[id(each)] = []
        else:
            memory.see(each, writable=isinstance(each, list))
    kinds: list[Any] = [*SIZES, object]
    for each in (table, argument, *map(np.dtype, kinds)):
        memory.see(each)
    for name in ("Py_None", "Py_True", "Py_False"):
        memory.see(ctypes.cast(address(name), ctypes.py_object).value)
    calls = Calls(memory, fails)
    memory.allow("spare", tables.SPARE.ctypes.data, tables.SPARE.nbytes, writable=True)
    kept_aside = tables.SPARE.copy()
    tables.SPARE[:] = (calls._PyMem_RawMalloc(spare), spare) if spare else (0, 0)
    try:
        space = _space(memory, calls, words)
        return _answers(code, space, id(table), id(argument), calls), calls
    finally:
        if int(tables.SPARE[0]) in calls.blocks:
            calls.leave(*map(int, tables.SPARE))
            tables.SPARE[:] = 0
        if not tables.SPARE.any():  # machine code that the entry calls leaves memory too
            tables.SPARE[:] = kept_aside


def _space(memory: LiveMemory, calls: Calls, words: Mapping[str, int]) -> dict[str, Any]:
    """The vocabulary of entries, over this memory and these functions."""
    names = {*every.vocabulary()} - {"stack_words"}
    space = vocabulary(memory, names)  # type: ignore[arg-type]  # all that words need of it
    return {**space, **_calls(calls, words)}


def _answers(
    code: EntryCode, space: dict[str, Any], entry: int, argument: int, calls: Calls
) -> Any:
    exec(compile(code.text, f"<{code.name}>", "exec"), space)
    with np.errstate(all="ignore"):
        made = int(space[code.name](Int64(entry), Int64(argument)))
    if made == 0:
        assert calls.error is not None, "no answer without an error"
        raise calls.error
    answers = ctypes.cast(made, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(answers))
    return answers


def _calls(calls: Calls, words: Mapping[str, int]) -> dict[str, Callable[..., Any]]:
    """The words of the vocabulary that call addresses."""
    names = {where: name for name, where in words.items() if name.startswith(("Py", "mem"))}

    def call(function: int, *arguments: Any) -> Any:
        return calls.call(names[int(function)], *arguments)

    def stage(function: int, *arguments: int) -> Int64:
        return Int64(machine.BRIEF(int(function))(*map(int, arguments)))

    made: dict[str, Callable[..., Any]] = {f"c_call_{count}": call for count in range(5)}
    return made | {"c_call_float": call, "c_call_to_float": call, "call_stage": stage}
