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

from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from oven.compiler import cache, machine, written
from oven.compiler.words import *
from oven.errors import NoCompiler

if TYPE_CHECKING:
    from llvmlite import ir

    from oven.compiler.lowering import Intrinsic

# The words of records, by their names.
Record = IntEnum(
    "Record",
    "DRIVER PROGRAM DESK STEPS WORDS SCRATCH ROOM LEAST MOST HELPERS DEADLINE"
    " WORK ELAPSED RANGES CAME REACHED",
    start=0,
)
Run = IntEnum("Run", "NEXT OPEN OUTCOME IO ROWS OF SPENT TAKEN", start=0)
Desk = IntEnum(
    "Desk",
    "CALLERS CORES SLOTS TAKE CPU ELAPSING GETTIME POST WAIT NANOSLEEP MALLOC RELEASE",
    start=0,
)
Slot = IntEnum("Slot", "JOB ASLEEP MEMORY CAPACITY STOPPED NUMBER", start=0)
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
_TABLE_BYTES = 8 * MOST_WORDS + 48


def now(desk: int, which: int) -> int:
    """The time of one of the desk's clocks, in nanoseconds."""
    clock = stack_words(2)
    c_call_2(ld_int64(desk, Desk.GETTIME), ld_int64(desk, which), clock)
    return ld_int64(clock, 0) * 1000000000 + ld_int64(clock, 1)


def take_ranges(run: int, table: int, scratch: int, helper: int) -> int:
    """Compute ranges of a run's rows until none is left; how many they were."""
    record, io, rows = (ld_int64(run, Run.OF), ld_int64(run, Run.IO), ld_int64(run, Run.ROWS))
    driver, program = ld_int64(record, Record.DRIVER), ld_int64(record, Record.PROGRAM)
    desk, steps, words = (
        ld_int64(record, Record.DESK),
        ld_int64(record, Record.STEPS),
        ld_int64(record, Record.WORDS),
    )
    least, most = (max(ld_int64(record, Record.LEAST), 1), max(ld_int64(record, Record.MOST), 1))
    deadline, parts = (ld_int64(record, Record.DEADLINE), 2 + 2 * ld_int64(record, Record.HELPERS))
    room = ld_int64(record, Record.ROOM)
    began = now(desk, Desk.CPU)
    taken = 0
    while True:
        start = atomic_load(run, Run.NEXT)
        if start >= rows:
            break
        if helper >= 0 and helper + atomic_load(desk, Desk.CALLERS) >= ld_int64(desk, Desk.CORES):
            break
        if deadline != 0 and now(desk, Desk.ELAPSING) >= deadline:
            st_int64(record, Record.REACHED, start)
            atomic_store(run, Run.OUTCOME, LATE)
            atomic_store(run, Run.NEXT, rows)
            break
        size = max((rows - start) // parts, least)
        if size >= 40:
            size = (size + 63) & -64
        elif size >= 16:
            size = (size + 7) & -8
        size = min(size, most, rows - start)
        if atomic_swap(run, Run.NEXT, start, start + size) != start:
            continue
        taken += 1
        for word in range(words):
            st_int64(table, word, ld_int64(io, word) + start * ld_int64(steps, word))
        if helper >= 0 and room != 0:
            st_int64(table, words - 2, scratch + ((ld_int64(record, Record.SCRATCH) + 63) & -64))
        if call_stage(driver, program, table, size, scratch) != 0:
            atomic_store(run, Run.OUTCOME, REFUSED)
            atomic_store(run, Run.NEXT, rows)
    atomic_add(run, Run.SPENT, now(desk, Desk.CPU) - began)
    atomic_add(run, Run.TAKEN, taken)
    return taken


def share_rows(record: int, io: int, n: int, scratch: int) -> int:
    """Compute a run's rows with helpers: DONE, REFUSED or LATE."""
    desk, helpers = ld_int64(record, Record.DESK), ld_int64(record, Record.HELPERS)
    run, table, clock = stack_words(8), stack_words(MOST_WORDS), stack_words(2)
    began = now(desk, Desk.ELAPSING)
    for word in range(8):
        st_int64(run, word, 0)
    st_int64(run, Run.IO, io)
    st_int64(run, Run.ROWS, n)
    st_int64(run, Run.OF, record)
    slots, asked = ld_int64(desk, Desk.SLOTS), 0
    for place in range(slots):
        if asked >= helpers:
            break
        slot = desk + 8 * DESK_WORDS + 8 * SLOT_WORDS * place
        atomic_add(run, Run.OPEN, 1)
        if atomic_swap(slot, Slot.JOB, FREE, run) == FREE:
            asked += 1
            if atomic_swap(slot, Slot.ASLEEP, 1, 0) == 1:
                c_call_1(ld_int64(desk, Desk.POST), slot + 8 * SEMAPHORE)
        else:
            atomic_add(run, Run.OPEN, -1)
    call_stage(ld_int64(desk, Desk.TAKE), run, table, scratch, -1)
    came = asked
    for place in range(slots):
        slot = desk + 8 * DESK_WORDS + 8 * SLOT_WORDS * place
        if asked > 0 and atomic_swap(slot, Slot.JOB, run, FREE) == run:
            atomic_add(run, Run.OPEN, -1)
            came -= 1
    until = 0
    while atomic_load(run, Run.OPEN) > 0:
        at = now(desk, Desk.ELAPSING)
        if until == 0:
            until = at + MOMENT
        if at > until:
            st_int64(clock, 0, 0)
            st_int64(clock, 1, MOMENT)
            c_call_2(ld_int64(desk, Desk.NANOSLEEP), clock, 0)
    st_int64(record, Record.ELAPSED, now(desk, Desk.ELAPSING) - began)
    st_int64(record, Record.WORK, atomic_load(run, Run.SPENT))
    st_int64(record, Record.RANGES, atomic_load(run, Run.TAKEN))
    st_int64(record, Record.CAME, came)
    return atomic_load(run, Run.OUTCOME)


def serve_rows(slot: int, desk: int, unused: int, nothing: int) -> int:
    """Help with the runs that come to a slot, until it is stopped."""
    until, ended = 0, 0
    atomic_store(slot, Slot.JOB, FREE)
    while ended == 0:
        run = atomic_load(slot, Slot.JOB)
        if run != FREE:
            if atomic_swap(slot, Slot.JOB, run, BUSY) == run:
                record = ld_int64(run, Run.OF)
                need = (
                    ld_int64(record, Record.SCRATCH)
                    + ld_int64(record, Record.ROOM)
                    + _TABLE_BYTES
                    + 256
                )
                memory = ld_int64(slot, Slot.MEMORY)
                if need > ld_int64(slot, Slot.CAPACITY):
                    c_call_1(ld_int64(desk, Desk.RELEASE), memory)
                    memory = c_call_1(ld_int64(desk, Desk.MALLOC), need)
                    st_int64(slot, Slot.MEMORY, memory)
                    st_int64(slot, Slot.CAPACITY, need if memory != 0 else 0)
                if memory != 0:
                    table = (memory + 63) & -64
                    number = ld_int64(slot, Slot.NUMBER)
                    call_stage(ld_int64(desk, Desk.TAKE), run, table, table + _TABLE_BYTES, number)
                atomic_store(slot, Slot.JOB, FREE)
                atomic_add(run, Run.OPEN, -1)
                until = 0
        elif atomic_load(slot, Slot.STOPPED) != 0:
            if atomic_swap(slot, Slot.JOB, FREE, ABSENT) == FREE:
                ended = 1
        else:
            at = now(desk, Desk.ELAPSING)
            if until == 0:
                until = at + SPIN
            if at > until:
                atomic_store(slot, Slot.ASLEEP, 1)
                if atomic_load(slot, Slot.JOB) == FREE and atomic_load(slot, Slot.STOPPED) == 0:
                    c_call_1(ld_int64(desk, Desk.WAIT), slot + 8 * SEMAPHORE)
                atomic_store(slot, Slot.ASLEEP, 0)
                until = 0
    c_call_1(ld_int64(desk, Desk.RELEASE), ld_int64(slot, Slot.MEMORY))
    st_int64(slot, Slot.MEMORY, 0)
    st_int64(slot, Slot.CAPACITY, 0)
    return 0


#: The functions by their names.
FUNCTIONS: dict[str, Callable[..., int]] = {
    each.__name__: each for each in (take_ranges, share_rows, serve_rows)
}


def address(name: str) -> int:
    """The address of one of these functions."""
    return cache.machine_code(key(name), name, partial(_build, name))


def compiled() -> bool:
    """True if all of them are there; False where there is no compiler for what no cache has."""
    with suppress(NoCompiler):
        return all(map(address, FUNCTIONS))
    return False


@lru_cache
def key(name: str) -> str:
    """The key of its code, which depends on the words below, too: they are in the same file."""
    return cache.function_key(FUNCTIONS[name])


def _build(name: str, symbol: str) -> machine.MachineCode:
    """Its code. Only these functions wait for other threads, so no others know the words below."""
    import llvmlite.binding as llvm

    from oven.compiler import native, source_check
    from oven.compiler.intrinsics.vocabulary import vocabulary
    from oven.compiler.kinds import INT64

    text = written.text(FUNCTIONS[name]).replace(f"def {name}(", f"def {symbol}(", 1)
    words = {**vocabulary(), **atomics()}
    source_check.vet(text, symbol, words)
    module, definition = native.opened(text, words)
    module.llvm.triple = machine.triple()
    module.llvm.data_layout = str(machine.target_machine().target_data)
    function, _ = module.write(definition, symbol, (INT64,) * 4)
    made = native.optimised(llvm.parse_assembly(str(module.llvm)))
    code = bytes(machine.target_machine().emit_object(made))
    return machine.MachineCode(function.name, code, str(made), text)


def atomics() -> dict[str, Intrinsic]:
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
