"""Run emitted code in Python over memory that knows its borders.

Native code follows addresses without asking. Here the same text runs with every load and store
checked against the memory it was given: parameters, columns, scratch, each in a region of its own
with nothing around it. Reading or writing one byte outside, or writing where only reading is
allowed, is an error; so is a loop that does not end.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import CodeType, FunctionType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from flour.core.sparse import Sparse
from flour.core.types import Vector
from objectstore import Blob
from oven.codegen.stages import Stage, Value, is_text, row_bytes
from oven.codegen.string_cells import TextCells
from oven.plans.plan import Plan
from oven.plans.values import interpret, native_column, output_value
from oven.run.native_run import given as column_of
from oven.run.native_run import lengths, room_bytes, settled, unfilled
from tests.checked_slices import Slices
from tests.checked_tiles import Tiles

SIZES = {
    "float64": 8,
    "float32": 4,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}
MOST_ACCESSES = 300_000
_GAP = 1 << 40


class OutOfBoundsError(AssertionError):
    """Native code would have touched memory that is not its own."""


class UnwrittenError(AssertionError):
    """Native code would have read, or left behind, memory that nobody wrote."""


class EndlessError(AssertionError):
    """Native code would have run for ever, or nearly."""


class Memory:
    """Regions far apart in one address space."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._regions: list[tuple[str, NDArray[np.uint8], NDArray[np.bool] | None]] = []
        self.accesses = 0

    def add(self, name: str, content: NDArray[Any], *, writable: bool = False) -> int:
        """The address at which this memory is from now on; what is writable is yet unwritten."""
        start = (len(self._starts) + 1) * _GAP
        self._starts.append(start)
        flat = content.reshape(-1).view(np.uint8) if content.size else np.empty(0, np.uint8)
        self._regions.append((name, flat, np.zeros(len(flat), bool) if writable else None))
        return start

    def at(self, address: int, size: int, *, write: bool) -> NDArray[np.uint8]:
        """The bytes at an address, if they may be used so."""
        self.accesses += 1
        if self.accesses > MOST_ACCESSES:
            raise EndlessError(f"more than {MOST_ACCESSES} loads and stores")
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            raise OutOfBoundsError(f"address {address} is before all memory")
        name, flat, written = self._regions[place]
        offset = address - self._starts[place]
        if offset + size > len(flat):
            raise OutOfBoundsError(
                f"bytes {offset}..{offset + size} of {name}, which has {len(flat)}"
            )
        if write and written is None:
            raise OutOfBoundsError(f"a store into {name}, which is read only")
        if written is not None:
            if not write and name != "scratch" and not written[offset : offset + size].all():
                raise UnwrittenError(f"a load of bytes {offset}..{offset + size} of {name}")
            written[offset : offset + size] = True
        return flat[offset : offset + size]

    def check_written(self, address: int) -> None:
        """Raise unless all of this region has been written."""
        name, _, written = self._regions[bisect_right(self._starts, address) - 1]
        if written is not None and not written.all():
            raise UnwrittenError(f"{np.argmin(written)} is the first byte of {name} left unwritten")


class Int64(int):
    """A whole number that wraps around as the machine's do."""

    def __new__(cls, value: Any) -> Int64:
        return int.__new__(cls, (int(value) + 2**63) % 2**64 - 2**63)


def _wrapping(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def operation(self: Int64, *others: Any) -> Any:
        found = plain(self, *others)
        return Int64(found) if isinstance(found, int) else found

    return operation


for _name in (
    *("add", "sub", "mul", "and", "or", "xor", "lshift", "rshift", "floordiv", "mod"),
    *("radd", "rsub", "rmul", "rand", "ror", "rxor", "rlshift", "rrshift", "rfloordiv", "rmod"),
    *("neg", "abs", "invert"),
):
    setattr(Int64, f"__{_name}__", _wrapping(f"__{_name}__"))


def _value(found: Any, dtype: str) -> Any:
    """A loaded number as emitted code computes with it."""
    return Int64(found) if dtype != "uint64" and dtype[0] in "iu" else found


def _load(memory: Memory, dtype: str) -> Callable[[Any, Any], Any]:
    size = SIZES[dtype]

    def load(base: Any, index: Any) -> Any:
        found = memory.at(int(base) + int(index) * size, size, write=False)
        return _value(found.view(dtype)[0], dtype)

    return load


def _store(memory: Memory, dtype: str) -> Callable[[Any, Any, Any], None]:
    size = SIZES[dtype]

    def store(base: Any, index: Any, value: Any) -> None:
        where = memory.at(int(base) + int(index) * size, size, write=True)
        where.view(dtype)[0] = _narrowed(value, dtype)

    return store


def _narrowed(value: Any, dtype: str) -> Any:
    """The value in a dtype as hardware converts: no errors, whole numbers wrap."""
    kind = np.dtype(dtype)
    if kind.kind in "fb":
        return kind.type(value)
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        value = -(2**63)
    wrapped = int(value) % 2 ** (8 * kind.itemsize)
    if kind.kind == "i" and wrapped >= 2 ** (8 * kind.itemsize - 1):
        wrapped -= 2 ** (8 * kind.itemsize)
    return kind.type(wrapped)


def _vectors(memory: Memory, dtype: str, lanes: int) -> dict[str, Any]:
    """The words for vectors of neighbouring numbers: each is an array here."""
    size = SIZES[dtype]

    def load(base: Any, index: Any) -> Any:
        found = memory.at(int(base) + int(index) * size, lanes * size, write=False)
        return found.view(dtype).copy()

    def store(base: Any, index: Any, value: Any, count: Any) -> None:
        wanted = min(max(int(count), 0), lanes)
        if wanted:
            where = memory.at(int(base) + int(index) * size, wanted * size, write=True)
            where.view(dtype)[:] = value[:wanted]

    return {
        f"vset_{dtype}": lambda value: np.full(lanes, value, dtype),
        f"vld_{dtype}": load,
        f"vst_{dtype}": store,
        f"vadd_{dtype}": lambda a, b: a + b,
        f"vadd_product_{dtype}": lambda total, a, b: total + a * b,
        f"vadd_product_exact_{dtype}": lambda total, a, b: total + a * b,
        f"lanes_{dtype}": lanes,
    }


def _walks(memory: Memory) -> dict[str, Any]:
    """The words that walk eight trees, or one tree for eight rows."""

    def walk(places: Any, nodes: Any, slots: Any, codes: Any, sets: Any, offsets: Any) -> None:
        word, double = _load(memory, "int64"), _load(memory, "float64")
        for lane in range(8):
            at = int(word(places, lane))
            shift = int(word(offsets, lane)) if offsets is not None else 0
            while (second := int(word(nodes, at + 1))) >> 32:
                slot = ((second >> 32) & (2**30 - 1)) + shift
                passed = double(slots, slot) <= double(nodes, at)
                if second >> 62:
                    span, code = int(word(nodes, at)), int(word(codes, slot))
                    place = (span & (2**32 - 1)) + min(code >> 5, span >> 32)
                    passed = (int(_load(memory, "uint32")(sets, place)) >> (code & 31)) & 1
                at = (second & (2**32 - 1)) + (0 if passed else 2)
            _store(memory, "int64")(places, lane, at)

    def small(places: Any, nodes: Any, slots: Any, bits: Any, offsets: Any = None) -> None:
        word, half, single = (_load(memory, kind) for kind in ("int64", "int32", "float32"))
        for lane in range(8):
            at = int(word(places, lane))
            shift = int(word(offsets, lane)) if offsets is not None else 0
            while slot := (second := int(half(nodes, 2 * at + 1)) % 2**32) >> int(bits):
                passed = single(slots, slot + shift) <= single(nodes, 2 * at)
                at = second % (1 << int(bits)) + (0 if passed else 1)
            _store(memory, "int64")(places, lane, at)

    return {
        "walk8_small": small,
        "walk8_small_apart": small,
        "walk8": lambda p, n, s: walk(p, n, s, None, None, None),
        "walk8_apart": lambda p, n, s, o: walk(p, n, s, None, None, o),
        "walk8_sets": lambda p, n, s, c, w: walk(p, n, s, c, w, None),
        "walk8_sets_apart": walk,
    }


def _slots(memory: Memory) -> dict[str, Any]:
    """The words of dictionaries: a group of slots at once, and memory on the stack."""

    def seek(slots: Any, slot: Any, tag: Any) -> Any:
        group = memory.at(int(slots) + 8 * int(slot), 64, write=False).view(np.uint64)
        return Int64(min(int(entry) ^ (int(tag) << 32) for entry in group))

    def stack(count: Any) -> Any:
        return Int64(memory.add("stack", np.zeros(count, np.int64), writable=True))

    def first(mask: Any) -> Any:
        return Int64((int(mask) & -int(mask)).bit_length() - 1)

    made = {"seek_slots": seek, "stack_words": stack, "first_bit_uint64": first}
    made["count_bits"] = lambda word: Int64((int(word) & 2**64 - 1).bit_count())

    def within(where: Any, low: Any, span: Any) -> Any:
        found = memory.at(int(where), 64, write=False) - np.uint8(int(low)) <= int(span)
        return Int64(int(np.packbits(found, bitorder="little").view("<i8")[0]))

    def odd(where: Any) -> Any:
        found = memory.at(int(where), 64, write=False) & 1
        return Int64(int(np.packbits(found, bitorder="little").view("<i8")[0]))

    def kinds(where: Any, table: Any) -> Any:
        entries = memory.at(int(table), 128, write=False)
        found = entries[memory.at(int(where), 64, write=False) & 127] & 1
        return Int64(int(np.packbits(found, bitorder="little").view("<i8")[0]))

    def small(where: Any, made: Any, fold: Any) -> Any:
        found = memory.at(int(where), 64, write=False).copy()
        capital = (found >= ord("A")) & (found <= ord("Z"))
        memory.at(int(made), 64, write=True)[:] = found | capital * np.uint8(int(fold) & 255)
        return Int64(int(np.packbits(found >> 7, bitorder="little").view("<i8")[0]))

    made |= {"bytes_within": within, "odd_bytes": odd, "copy_small": small}
    made["kinds_of_bytes"] = kinds
    # Nothing is read where it asks.
    made["choose"] = lambda condition, yes, no: yes if condition else no
    return {**made, "fetch": lambda _: None}


class _Math:
    """`math` without its errors: infinity and NaN come back, as from the C library."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name, None) or getattr(math, name)


def vocabulary(memory: Memory, names: Iterable[str] | None = None) -> dict[str, Any]:
    """The names emitted code may use, over this memory: all of them, or those that it does use."""
    from oven.compiler.intrinsics import vocabulary as every

    words = every.vocabulary()
    made: dict[str, Any] = {}
    for dtype in SIZES:
        made[f"ld_{dtype}"] = made[f"ldc_{dtype}"] = _load(memory, dtype)
        made[f"st_{dtype}"] = _store(memory, dtype)
        made[dtype] = lambda value, dtype=dtype: _value(_narrowed(value, dtype), dtype)
    for dtype in ("int64", "int32"):
        made[f"peek_{dtype}"] = made[f"ld_{dtype}"]
    made["wrap_add"] = lambda a, b: Int64(int(a) + int(b))
    made["wrap_mul"] = lambda a, b: Int64(int(a) * int(b))
    made["poke_int64"] = made["st_int64"]
    made |= {"min": min, "max": max, "abs": abs, "int": int, "float": float}
    made |= {"range": range, "math": _Math()}
    made["type_of"] = lambda like, value: type(like)(value)
    for dtype in ("float64", "float32"):
        made[f"loose_add_{dtype}"] = lambda a, b: a + b
        made[f"loose_mul_{dtype}"] = lambda a, b: a * b
        if f"lanes_{dtype}" in words:
            made |= _vectors(memory, dtype, cast("int", words[f"lanes_{dtype}"]))
    made |= Slices(memory).words() | Tiles(memory).words() | _walks(memory) | _slots(memory)
    made |= {"exp_alone": np.exp, "log_alone": np.log}
    for name in words.keys() & (words if names is None else names) - made.keys():
        made[name] = _stand_in(name, words[name], made)
    return made


def _stand_in(name: str, found: Any, space: dict[str, Any]) -> Any:
    """The same function in Python: numpy's, or the one that native code is made of."""
    if isinstance(found, int):
        return Int64(found)
    function = getattr(found, "function", found)
    if isinstance(function, FunctionType) and not hasattr(math, name):
        for used in function.__code__.co_names:
            if used not in space and used in function.__globals__:
                space[used] = _stand_in(used, function.__globals__[used], space)
        return FunctionType(function.__code__, space, name)
    return getattr(np, name, None) or getattr(math, name, None)


def run(
    plan: Plan, columns: Mapping[str, Any], rows: int, stages: Sequence[Stage] | None = None
) -> dict[str, Any]:
    """Every output of the plan, its native stages (or those given instead) in checked memory."""
    values: dict[Value, Any] = {}
    for stage in plan.program.stages if stages is None else stages:
        if stage.source:
            given = {v: native_column(v, values, columns) for v in stage.inputs}
            values |= run_stage(stage, given, rows)
        else:
            values |= interpret(stage.nodes[0], values, columns)
    return {
        name: output_value(item, values, columns)
        for name, item in plan.program.optimised.outputs.items()
    }


@cache
def _compiled(source: str, name: str) -> tuple[CodeType, frozenset[str]]:
    """A stage's code, which many stages have in common, and the names it uses."""
    code = compile(source, f"<{name}>", "exec")
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    return code, frozenset(used for part in inner for used in part.co_names)


def run_stage(stage: Stage, given: Mapping[Value, Any], rows: int) -> dict[Value, Any]:
    """What one native stage leaves for these columns."""
    memory = Memory()
    columns = [column_of(given[v], v, stored=stage.stores(v)) for v in stage.inputs]
    sizes = [
        lengths(column, value.type)
        for value, column in zip(stage.inputs, columns, strict=True)
        if isinstance(column, Sparse) or is_text(value.type)
    ]
    each = np.max(sizes, axis=0) if sizes else np.zeros(rows, np.int64)
    io: list[int] = []
    for place, (value, column) in enumerate(zip(stage.inputs, columns, strict=True)):
        io += _entries(f"input {place}", value, column, memory)
    made: dict[Value, Any] = {}
    filled = []
    for place, item in enumerate(stage.outputs):
        made[item] = _empty(item, rows)
        if stage.stores(item):
            room = stage.most[item]
            many = int(np.minimum(each * room.each + room.fixed, room.most).sum())
            made[item] = unfilled(item.type, rows, many)
        entries = _entries(f"output {place}", item, made[item], memory, writable=True)
        filled += [] if stage.stores(item) else entries[:1]
        io += entries
    longest = int(each.max(initial=0))
    size = room_bytes(stage.rooms, longest)
    io += [memory.add("scratch", np.zeros(size, np.uint8), writable=True), longest]
    table = [_entry(slot, memory) for slot in stage.slots]
    code, names = _compiled(stage.source, stage.name)
    space = vocabulary(memory, names)
    exec(code, space)
    addresses = (
        memory.add("parameter table", np.array(table or [0], np.int64)),
        memory.add("columns", np.array(io or [0], np.int64)),
    )
    with np.errstate(all="ignore"):
        refused = space[stage.name](*addresses, rows, 0)
    for address in filled if not refused else ():
        memory.check_written(address)
    return {k: settled(v) if isinstance(v, Sparse) else v for k, v in made.items()}


def _entries(
    name: str, value: Value, column: Any, memory: Memory, *, writable: bool = False
) -> list[int]:
    """A column's entries in the table of columns."""
    if isinstance(column, Sparse):
        parts = (column.indptr, column.indices, column.data)
        first, *others = (memory.add(name, part, writable=writable) for part in parts)
        if writable:
            memory.at(first, 8, write=True)  # the first row begins at 0, and that stands there
        return [first, 8, *others]
    block = _block(column, value, memory) if not writable else column
    return [memory.add(name, block, writable=writable), row_bytes(value.type)]


def _block(found: Any, value: Value, memory: Memory) -> NDArray[Any]:
    if not is_text(value.type):
        return np.ascontiguousarray(found)
    assert isinstance(found, TextCells)
    text = np.frombuffer(found.text, np.uint8)
    start = memory.add("text", text)
    moved = np.array(found, np.int64)
    if found.slices is not None:
        moved[:, 0] += start - text.ctypes.data
        moved[:, 1] += memory.add("slices", found.slices) - found.slices.ctypes.data
    else:
        moved[:, 0::2] += start - text.ctypes.data
    if found.values is not None:
        moved[:, 3] += memory.add("values", found.values) - found.values.ctypes.data
    return moved


def _empty(value: Value, rows: int) -> NDArray[Any]:
    kind = value.type
    shape = (rows, kind.width) if isinstance(kind, Vector) else (rows,)
    return np.zeros(shape, kind.dtype)  # type: ignore[union-attr]  # native columns have a dtype


def _entry(slot: Any, memory: Memory) -> int:
    if slot.parameter is not None:
        assert isinstance(slot.parameter, Blob)
        return memory.add(repr(slot.parameter), slot.parameter.array)
    if slot.scratch is not None:
        return memory.add("scratch", np.zeros(slot.scratch, np.uint8), writable=True)
    if slot.number is not None:
        return int(np.float64(slot.number).view(np.int64))
    return int(slot.size)
