"""Columns in memory that is no object of Python's, such as Arrow's and DuckDB's: rows of native
code are made of them, and run, without the interpreter's lock.

    run = open_raw_columns(plan.inputs, plan.steps, outputs)     # None where the plan has no such run
    sources = run.sources([("age", 0, "float64"), ("city", 1, VIEWS)])
    answers = run.arrow(sources, address, rows)

Rows are laid out so many at a time as a stage takes together, so they are written and read in the
nearest cache, and nothing else is copied: strings are read where they are. Only those whose end is
so near that of a page that the page behind it would be looked at, which may not be there, are
copied (native code may read sixteen bytes more than there are).

What is not read so is left to `Plan.run`, which means the same: documents, lists, whole numbers and
bools of which some are missing (unless the plan reads float64), and rows that an operator refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.types import FLOATS, Type, Vector
from oven.codegen.ports import Port
from oven.compiler import machine
from oven.entry.builtin import Style, compiled
from oven.entry.columns_entry import Steps, columns_of
from oven.entry.generator import KINDS, EntryCode, Template, entry_code, numbers_of
from oven.entry.interpreter import address
from oven.entry.parts import PARTS
from oven.entry.row_layout import Rows
from oven.entry.tables import Memory, Output, aligned

#: How columns lie in memory: numbers of one of KINDS; Arrow's bools; strings by offsets, as Arrow's
#: views, or as DuckDB's, which have an address where a view has a buffer and a place in it.
BITS, OFFSETS, LONG_OFFSETS, VIEWS, POINTERS = "bits", "offsets", "long offsets", "views", "pointers"
_FORMS = (*KINDS[:-1], BITS, OFFSETS, LONG_OFFSETS, VIEWS, POINTERS)
#: Memory for strings that have to be copied: there are few, but they may be long.
_SIDE = 1 << 15
_DESCRIBED = 32

#: Memory of a call's own.
_MEMORY = """\
owned = PyMem_RawMalloc(table.MEMORY_BYTES)
if owned == 0:
    {0}
scratch, refused, done = (owned + 63) & -64, 0, 0
columns, blocks, row_bytes = scratch + table.COLUMNS, table.BLOCKS, table.ROW_BYTES
for place in range(table.PORTS):
    st_int64(scratch, 2 * place, scratch + blocks + ldc_int64(table.PORT_TABLE, place))
    st_int64(scratch, 2 * place + 1, row_bytes)
"""
#: All rows, some at a time. `answers` has where each output goes; 0 where it is not wanted.
_BLOCKS = """\
while done < many:
    rows = min(table.BLOCK_ROWS, many - done)
    few, side, left, right = rows, scratch + table.SIDE, 0, 0
    for place in range(table.FIELDS):
        source, column = sources + SOURCE_ROW * place, columns + 32 * place
        data, valid = ld_int64(column, 0), ld_int64(column, 1)
        first, texts = ld_int64(column, 2) + done, ld_int64(column, 3)
        into, form, wanted = scratch + blocks + source.OFFSET, source.FORM, source.KIND
        missing = 0
        if valid != 0:
            for i in range(first >> 3, (first + rows + 7) >> 3):
                missing |= 255 - int64(ld_uint8(valid, i))
        if form >= FORM_OFFSETS:
            $strings
            continue
        if form == wanted:
            long = source.BYTES
            step, here, there = long, into, data + first * long
            $copy_words
        else:
            kind, step = form, source.BYTES
            for i in range(rows):
                here, there = data + (first + i) * step, into + i * row_bytes
                word, value = 0, 0.0
                if kind == FORM_BITS:
                    word = int64(ld_uint8(data, (first + i) >> 3)) >> ((first + i) & 7) & 1
                else:
                    $load_value
                if kind != KIND_FLOAT64 and kind != KIND_FLOAT32:
                    value = float64(word)
                $store_value
        if missing == 0:
            continue
        for i in range(rows):
            if int64(ld_uint8(valid, (first + i) >> 3)) >> ((first + i) & 7) & 1 == 0:
                if wanted == KIND_FLOAT64:
                    st_float64(into + i * row_bytes, 0, math.nan)
                elif wanted == KIND_FLOAT32:
                    st_float32(into + i * row_bytes, 0, float32(math.nan))
                else:
                    refused = 1
    $convert
    for place in range(table.OUTPUTS):
        output = table.OUTPUT_TABLE + OUTPUT_ROW * place
        where = ld_int64(answers, place)
        where = scratch + output.SHELF if where == 0 else where + done * output.BYTES
        st_int64(scratch, 2 * output.COLUMN, where)
        st_int64(scratch, 2 * output.COLUMN + 1, output.BYTES)
    if refused == 0:
        refused = call_stage(table.RUN, table.PROGRAM, scratch, rows, scratch + table.STAGES)
    if refused != 0:
        break
    $ran
    done += rows
PyMem_RawFree(owned)
"""
_STRINGS = """\
if form == FORM_POINTERS or form == FORM_VIEWS:
    for i in range(rows):
        view = data + 16 * (first + i)
        long, where = int64(ld_uint32(view, 0)), view + 4
        if long > 12:
            where = ld_int64(view, 1)
            if form == FORM_VIEWS:
                where = ld_int64(texts, where & LOW_HALF) + (where >> 32)
        $string
elif form == FORM_OFFSETS:
    for i in range(rows):
        where = int64(ld_int32(data, first + i))
        long = int64(ld_int32(data, first + i + 1)) - where
        where += texts
        $string
else:
    for i in range(rows):
        where = ld_int64(data, first + i)
        long = ld_int64(data, first + i + 1) - where
        where += texts
        $string
"""
#: The next string's cell. Many rows may have one string, which is copied once.
_STRING = """\
cell = into + i * row_bytes
if missing != 0:
    if int64(ld_uint8(valid, (first + i) >> 3)) >> ((first + i) & 7) & 1 == 0:
        long = NO_STRING
if long <= 0:
    where = scratch
elif (where + long - 1) & 4095 >= 4080:
    if where != left:
        left, right = where, side
        side += (long + 31) & -16
        if side > scratch + table.SIDE_END:
            refused, side, long, right = 1, right, 0, scratch
        memcpy(right, where, long)
    where = right
st_int64(cell, 0, where)
st_int64(cell, 1, long)
"""
#: Every column of an array of structs, as Arrow's C data interface describes it.
_ARROW = """\
def arrow_columns(table, batch, sources, answers):
    many, before, children = ld_int64(batch, 0), ld_int64(batch, 2), ld_int64(batch, 6)
    $memory(return 1)
    for place in range(table.FIELDS):
        source, column = sources + SOURCE_ROW * place, columns + 32 * place
        child = ld_int64(children, source.PLACE)
        buffers, valid = ld_int64(child, 5), 0
        if ld_int64(child, 1) != 0:
            valid = ld_int64(buffers, 0)
        st_int64(column, 0, ld_int64(buffers, 1))
        st_int64(column, 1, valid)
        st_int64(column, 2, ld_int64(child, 2) + before)
        form, texts = source.FORM, buffers + 16
        if form == FORM_OFFSETS or form == FORM_LONG_OFFSETS:
            texts = ld_int64(buffers, 2)
        st_int64(column, 3, texts)
    $blocks
    return refused
"""
#: For who writes an entry over other memory: see runtime.bulk.duckdb_code.
RAW_PARTS = {
    **PARTS,
    "memory": _MEMORY,
    "blocks": _BLOCKS,
    "strings": _STRINGS,
    "string": _STRING,
    "ran": "",
}
ARROW_COLUMNS = Template("arrow_columns", _ARROW, RAW_PARTS)
_STYLE = Style(b"", b"", 0, 4)


class _Target(NamedTuple):
    """Where a column goes in a row, and as what: one of KINDS."""

    kind: str
    offset: int


class RawColumns:
    """A plan that is native code over plain columns, ready to run on memory by address."""

    def __init__(self, found: Rows, targets: Mapping[str, _Target]) -> None:
        self._targets = targets
        #: The outputs: what native code leaves, and the strings that it numbers.
        self.outputs: tuple[Output, ...] = found.outputs
        self._run = found.run
        #: Which of what native code leaves each output is.
        self.places = [found.run.outputs.index(output.node) for output in found.outputs]
        self._words, self._kept = _words(found, len(targets))
        self._arrow = _code(ARROW_COLUMNS)
        self._arrow_table = self.table(ARROW_COLUMNS, {})

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(self._targets)

    def table(self, template: Template, more: Mapping[str, int]) -> NDArray[np.int64]:
        """The table of an entry that is made of RAW_PARTS, with more words of its own."""
        code = entry_code(template)
        assert code is not None, "checked when this was opened"
        known = {**self._words, **more}
        found = [known[n] if n in known else address(n) for n in code.words]
        return np.array(found, np.int64)

    def sources(self, columns: Iterable[tuple[str, int, str]]) -> NDArray[np.int64] | None:
        """How to read these columns (name, place, one of the forms); None if one cannot be read."""
        rows = {}
        for name, place, form in columns:
            target = self._targets.get(name)
            if target is None:
                continue
            if name in rows or not _is_read(form, target.kind):
                return None
            size = np.dtype(form).itemsize if form in KINDS else 0
            words = {"PLACE": place, "FORM": _FORMS.index(form), "BYTES": size}
            words |= {"OFFSET": target.offset, "KIND": KINDS.index(target.kind)}
            rows[name] = numbers_of(words, "source")
        return np.array([*rows.values()], np.int64) if len(rows) == len(self._targets) else None

    def arrow(
        self, sources: NDArray[np.int64], batch: int, rows: int
    ) -> list[NDArray[np.generic]] | None:
        """What native code leaves for an ArrowArray at an address; None where it refuses rows."""
        made = [self._run.blank(item, rows) for item in self._run.outputs]
        answers = np.array([each.ctypes.data for each in made], np.int64)
        places = (self._arrow_table.ctypes.data, batch, sources.ctypes.data, answers.ctypes.data)
        return None if self._arrow(*places) else made


def _is_read(form: str, kind: str) -> bool:
    """Whether a column of this form holds what a row has, or what becomes that without rounding."""
    if kind == "string":
        return _FORMS.index(form) > _FORMS.index(BITS)
    own = "bool" if form == BITS else form
    if own not in KINDS:
        return False
    if kind == "float64":  # int64 is rounded as numpy rounds it
        return own != "uint64"
    return own == kind or (kind not in FLOATS and np.can_cast(own, kind))


def open_raw_columns(
    inputs: Mapping[str, Type], steps: Steps, outputs: Sequence[Node]
) -> RawColumns | None:
    """The run of a plan over memory by address; None where it needs Python or reads documents."""
    if not machine.is_there() or entry_code(ARROW_COLUMNS) is None:
        return None
    found = columns_of(inputs, steps, outputs, {})
    if found is None or found.run.rooms or found.run.stored:
        return None
    targets = _targets(inputs, found)
    return None if targets is None else RawColumns(found, targets)


def _targets(inputs: Mapping[str, Type], found: Rows) -> dict[str, _Target] | None:
    """Where each column goes; None where one is no plain column."""
    made: dict[str, _Target] = {}
    (kind, *more) = inputs.values()
    if isinstance(kind, Vector) and not more:
        if kind.dtype not in FLOATS:
            return None
        size, (start,) = np.dtype(kind.dtype).itemsize, found.ports
        return {str(n): _Target(kind.dtype, start + n * size) for n in range(kind.width)}
    for name, (reading, offset, needed) in found.fields.items():
        if not needed:
            continue
        if reading.width != 1 or reading.read not in {"STRING", "NUMBER"}:
            return None
        sub = found.kinds[name]
        if isinstance(sub, Vector):
            return None
        dtype = getattr(sub, "dtype", "")
        made[name] = _Target(dtype, offset)
    return made


def _words(found: Rows, fields: int) -> tuple[dict[str, int], tuple[object, ...]]:
    """What the table says of a plan, and what has to be kept for it."""
    run = found.run
    memory, block = Memory.of(run, 0), run.form.tile
    columns = memory.size
    blocks = columns + aligned(_DESCRIBED * fields)
    end = blocks + aligned(block * found.row_bytes)
    outputs = []
    for place, item in enumerate(run.outputs):
        size = run.blank(item, 1).nbytes
        words = {"COLUMN": len(run.inputs) + place, "BYTES": size, "SHELF": end}
        outputs.append(numbers_of(words, "output"))
        end += aligned(block * size)
    tables = {
        "OUTPUT_TABLE": outputs,
        "PORT_TABLE": [*found.ports],
        "CONVERSION_TABLE": [
            [source, KINDS.index(dtype), place, KINDS.index(other)]
            for source, dtype, place, other in found.conversions
        ],
    }
    arrays = {name: np.array(rows, np.int64) for name, rows in tables.items()}
    made = {name: array.ctypes.data for name, array in arrays.items()}
    made |= {"STAGES": memory.stages, "COLUMNS": columns, "BLOCKS": blocks, "SIDE": end}
    made |= {"SIDE_END": end + _SIDE, "MEMORY_BYTES": end + _SIDE + 128, "BLOCK_ROWS": block}
    made |= {"ROW_BYTES": found.row_bytes, "FIELDS": fields, "PORTS": len(found.ports)}
    made |= {"OUTPUTS": len(outputs), "CONVERSIONS": len(found.conversions), "FALLBACK": 0}
    made |= {"RUN": run.addresses[0], "PROGRAM": run.addresses[1]}
    return made, (run, *arrays.values())


@cache
def _code(template: Template) -> machine.STAGE:
    return machine.STAGE(raw_address(template))


def raw_address(template: Template) -> int:
    """Where the machine code of an entry of four words is."""
    code: EntryCode | None = entry_code(template)
    assert code is not None, "checked when raw columns were opened"
    return compiled(code, _STYLE)
