"""Native code by which several threads compute one block of rows, without Python in between.

A caller hands its run to helpers that wait in native code, takes ranges of rows itself until none
is left, takes the run back from helpers that have not come, and waits for the ranges of those that
have. All of it is done by words in memory: to ask for help is a store, and a system call where the
helper sleeps; to take a range is a compare-and-swap. None needs the interpreter's lock.

    caller    share_rows(record, io, n, scratch)     in the place of the driver's run_stages
    both      take_ranges(run, table, scratch, helper)
    helper    serve_rows(slot, desk, _, _)           until it is stopped

`record` is a call's: what runs, by how much each word of `io` grows with a row, and in ranges of
how many rows. `run` lies on the caller's stack; `desk` is the process', with a `slot` for each
helper. A slot's JOB is FREE, BUSY or ABSENT, or the address of a run that waits there. A helper
looks at its slot for SPIN nanoseconds after a run, as the next one often comes soon, and then
sleeps.
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from flour.core.parsing import parse_source
from objectstore import combine
from oven.compiler import cache, machine
from oven.errors import NoCompiler

if TYPE_CHECKING:
    from llvmlite import ir

    from oven.compiler.lowering import Intrinsic

#: Words of the records, by the names that the sources use.
RECORD = ("DRIVER", "PROGRAM", "DESK", "STEPS", "WORDS", "SCRATCH", "ROOM")
DIVIDED = ("LEAST", "MOST", "HELPERS", "DEADLINE")
TOLD = ("WORK", "ELAPSED", "RANGES", "CAME", "REACHED")
_RUN = ("NEXT", "OPEN", "OUTCOME", "IO", "ROWS", "OF", "SPENT", "TAKEN")
DESK = ("CALLERS", "CORES", "SLOTS", "TAKE", "CPU", "ELAPSING")
CALLED = ("GETTIME", "POST", "WAIT", "NANOSLEEP", "MALLOC", "RELEASE")
SLOT = ("JOB", "ASLEEP", "MEMORY", "CAPACITY", "STOPPED", "NUMBER")
SLOT_WORDS, SEMAPHORE = 16, 8
DESK_WORDS = 16
FREE, BUSY, ABSENT = 0, 1, -1
#: A run of more words than this in its table of columns is not shared.
MOST_WORDS = 130
#: What a shared run answers: all rows are done, one was refused, or the deadline has passed.
DONE, REFUSED, LATE = range(3)
#: How long a helper looks for another run before it sleeps, and a caller for the last ranges of
#: its helpers before it sleeps for moments, in nanoseconds.
SPIN, MOMENT = 50_000, 20_000

PLACES = {
    **{
        name: place
        for names in ((*RECORD, *DIVIDED, *TOLD), _RUN, (*DESK, *CALLED), SLOT)
        for place, name in enumerate(names)
    },
    "SLOT_BYTES": 8 * SLOT_WORDS,
    "DESK_BYTES": 8 * DESK_WORDS,
    "SEMAPHORE": 8 * SEMAPHORE,
    "FREE": FREE,
    "BUSY": BUSY,
    "ABSENT": ABSENT,
    "REFUSED": REFUSED,
    "LATE": LATE,
    "TABLE_WORDS": MOST_WORDS,
    "TABLE_BYTES": 8 * MOST_WORDS + 48,
    "SPIN": SPIN,
    "MOMENT": MOMENT,
}

_TAKE = """\
def take_ranges(run, table, scratch, helper):
    record, io, rows = ld_int64(run, OF), ld_int64(run, IO), ld_int64(run, ROWS)
    driver, program = ld_int64(record, DRIVER), ld_int64(record, PROGRAM)
    desk, steps, words = ld_int64(record, DESK), ld_int64(record, STEPS), ld_int64(record, WORDS)
    least, most = max(ld_int64(record, LEAST), 1), max(ld_int64(record, MOST), 1)
    deadline, parts = ld_int64(record, DEADLINE), 2 + 2 * ld_int64(record, HELPERS)
    room = ld_int64(record, ROOM)
    clock = stack_words(2)
    c_call_2(ld_int64(desk, GETTIME), ld_int64(desk, CPU), clock)
    began = ld_int64(clock, 0) * 1000000000 + ld_int64(clock, 1)
    taken = 0
    while True:
        start = atomic_load(run, NEXT)
        if start >= rows:
            break
        if helper >= 0 and helper + atomic_load(desk, CALLERS) >= ld_int64(desk, CORES):
            break
        if deadline != 0:
            c_call_2(ld_int64(desk, GETTIME), ld_int64(desk, ELAPSING), clock)
            if ld_int64(clock, 0) * 1000000000 + ld_int64(clock, 1) >= deadline:
                st_int64(record, REACHED, start)
                atomic_store(run, OUTCOME, LATE)
                atomic_store(run, NEXT, rows)
                break
        size = max((rows - start) // parts, least)
        if size >= 40:
            size = (size + 63) & -64
        elif size >= 16:
            size = (size + 7) & -8
        size = min(min(size, most), rows - start)
        if atomic_swap(run, NEXT, start, start + size) != start:
            continue
        taken += 1
        for word in range(words):
            st_int64(table, word, ld_int64(io, word) + start * ld_int64(steps, word))
        if helper >= 0 and room != 0:
            st_int64(table, words - 2, scratch + ((ld_int64(record, SCRATCH) + 63) & -64))
        if call_stage(driver, program, table, size, scratch) != 0:
            atomic_store(run, OUTCOME, REFUSED)
            atomic_store(run, NEXT, rows)
    c_call_2(ld_int64(desk, GETTIME), ld_int64(desk, CPU), clock)
    ended = ld_int64(clock, 0) * 1000000000 + ld_int64(clock, 1)
    atomic_add(run, SPENT, ended - began)
    atomic_add(run, TAKEN, taken)
    return taken
"""

_SHARE = """\
def share_rows(record, io, n, scratch):
    desk, helpers = ld_int64(record, DESK), ld_int64(record, HELPERS)
    run, table, clock = stack_words(8), stack_words(TABLE_WORDS), stack_words(2)
    gettime, elapsing = ld_int64(desk, GETTIME), ld_int64(desk, ELAPSING)
    c_call_2(gettime, elapsing, clock)
    began = ld_int64(clock, 0) * 1000000000 + ld_int64(clock, 1)
    for word in range(8):
        st_int64(run, word, 0)
    st_int64(run, IO, io)
    st_int64(run, ROWS, n)
    st_int64(run, OF, record)
    slots, asked = ld_int64(desk, SLOTS), 0
    for place in range(slots):
        if asked >= helpers:
            break
        slot = desk + DESK_BYTES + SLOT_BYTES * place
        atomic_add(run, OPEN, 1)
        if atomic_swap(slot, JOB, FREE, run) == FREE:
            asked += 1
            if atomic_swap(slot, ASLEEP, 1, 0) == 1:
                c_call_1(ld_int64(desk, POST), slot + SEMAPHORE)
        else:
            atomic_add(run, OPEN, -1)
    call_stage(ld_int64(desk, TAKE), run, table, scratch, -1)
    came = asked
    for place in range(slots):
        slot = desk + DESK_BYTES + SLOT_BYTES * place
        if asked > 0 and atomic_swap(slot, JOB, run, FREE) == run:
            atomic_add(run, OPEN, -1)
            came -= 1
    until = 0
    while atomic_load(run, OPEN) > 0:
        c_call_2(gettime, elapsing, clock)
        now = ld_int64(clock, 0) * 1000000000 + ld_int64(clock, 1)
        if until == 0:
            until = now + MOMENT
        if now > until:
            st_int64(clock, 0, 0)
            st_int64(clock, 1, MOMENT)
            c_call_2(ld_int64(desk, NANOSLEEP), clock, 0)
    c_call_2(gettime, elapsing, clock)
    ended = ld_int64(clock, 0) * 1000000000 + ld_int64(clock, 1)
    st_int64(record, ELAPSED, ended - began)
    st_int64(record, WORK, atomic_load(run, SPENT))
    st_int64(record, RANGES, atomic_load(run, TAKEN))
    st_int64(record, CAME, came)
    return atomic_load(run, OUTCOME)
"""

_SERVE = """\
def serve_rows(slot, desk, unused, nothing):
    clock, until, ended = stack_words(2), 0, 0
    gettime, elapsing = ld_int64(desk, GETTIME), ld_int64(desk, ELAPSING)
    atomic_store(slot, JOB, FREE)
    while ended == 0:
        run = atomic_load(slot, JOB)
        if run != FREE:
            if atomic_swap(slot, JOB, run, BUSY) == run:
                record = ld_int64(run, OF)
                need = ld_int64(record, SCRATCH) + ld_int64(record, ROOM) + TABLE_BYTES + 256
                memory = ld_int64(slot, MEMORY)
                if need > ld_int64(slot, CAPACITY):
                    c_call_1(ld_int64(desk, RELEASE), memory)
                    memory = c_call_1(ld_int64(desk, MALLOC), need)
                    st_int64(slot, MEMORY, memory)
                    st_int64(slot, CAPACITY, need if memory != 0 else 0)
                if memory != 0:
                    table = (memory + 63) & -64
                    number = ld_int64(slot, NUMBER)
                    call_stage(ld_int64(desk, TAKE), run, table, table + TABLE_BYTES, number)
                atomic_store(slot, JOB, FREE)
                atomic_add(run, OPEN, -1)
                until = 0
        elif atomic_load(slot, STOPPED) != 0:
            if atomic_swap(slot, JOB, FREE, ABSENT) == FREE:
                ended = 1
        else:
            c_call_2(gettime, elapsing, clock)
            now = ld_int64(clock, 0) * 1000000000 + ld_int64(clock, 1)
            if until == 0:
                until = now + SPIN
            if now > until:
                atomic_store(slot, ASLEEP, 1)
                if atomic_load(slot, JOB) == FREE and atomic_load(slot, STOPPED) == 0:
                    c_call_1(ld_int64(desk, WAIT), slot + SEMAPHORE)
                atomic_store(slot, ASLEEP, 0)
                until = 0
    c_call_1(ld_int64(desk, RELEASE), ld_int64(slot, MEMORY))
    st_int64(slot, MEMORY, 0)
    st_int64(slot, CAPACITY, 0)
    return 0
"""
#: The sources by the names of their functions, with numbers in the places of words' names.
SOURCES = {
    name: re.sub(r"\b[A-Z_]{2,}\b", lambda match: str(PLACES[match[0]]), text)
    for name, text in (("take_ranges", _TAKE), ("share_rows", _SHARE), ("serve_rows", _SERVE))
}


def address(name: str) -> int:
    """The address of one of these functions."""
    return cache.machine_code(key(name), name, partial(_build, SOURCES[name], name))


def compiled() -> bool:
    """True if all of them are there; False where there is no compiler for what no cache has."""
    with suppress(NoCompiler):
        return all(map(address, SOURCES))
    return False


@lru_cache
def key(name: str) -> str:
    """The key of its code, which depends on the words below, too."""
    return combine(cache.compilers(), Path(__file__).read_bytes(), name)


def _build(source: str, name: str, symbol: str) -> machine.MachineCode:
    """Its code. Only these functions wait for other threads, so no others know the words below."""
    import llvmlite.binding as llvm

    from oven.compiler import native, source_check
    from oven.compiler.intrinsics.vocabulary import vocabulary
    from oven.compiler.kinds import INT64
    from oven.compiler.lowering import Module

    text = source.replace(f"def {name}(", f"def {symbol}(", 1)
    words = {**vocabulary(), **_atomics()}
    source_check.vet(text, symbol, words)
    (definition,) = parse_source(text).body
    assert isinstance(definition, ast.FunctionDef)
    module = Module(words)
    module.llvm.triple = machine.triple()
    module.llvm.data_layout = str(machine.target_machine().target_data)
    function, _ = module.write(definition, symbol, (INT64,) * 4)
    made = native.optimised(llvm.parse_assembly(str(module.llvm)))
    code = bytes(machine.target_machine().emit_object(made))
    return machine.MachineCode(function.name, code, str(made), text)


def _atomics() -> dict[str, Intrinsic]:
    """Words that read and write one word in memory at once, in the order in which they stand."""
    from oven.compiler.intrinsics.base import Values
    from oven.compiler.intrinsics.builder import Builder, typed
    from oven.compiler.kinds import INT64, NOTHING, WORD

    order = "seq_cst"

    def load(b: Builder, args: Values) -> ir.Value:
        return b.load_atomic(b.place(args, WORD), order, 8)

    def store(b: Builder, args: Values) -> None:
        *where, value = args
        b.store_atomic(value, b.place(where, WORD), order, 8)

    def add(b: Builder, args: Values) -> ir.Value:
        *where, value = args
        return b.atomic_rmw("add", b.place(where, WORD), value, order)

    def swap(b: Builder, args: Values) -> ir.Value:
        *where, old, new = args
        return b.extract_value(b.cmpxchg(b.place(where, WORD), old, new, order), 0)

    return {
        "atomic_load": typed((INT64,) * 2, INT64, load),
        "atomic_store": typed((INT64,) * 3, NOTHING, store),
        "atomic_add": typed((INT64,) * 3, INT64, add),
        "atomic_swap": typed((INT64,) * 4, INT64, swap),
    }
