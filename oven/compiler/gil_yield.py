"""The interpreter's lock: native code says when it waits for it, and who has it can give way.

A thread that comes back from native code gets the lock when its holder lets go of it, which a busy
one does every 5 ms (`sys.setswitchinterval`); nobody asks it earlier, and a library must not change
that for a whole process. So native code that let the lock go leaves word that it is done, and those
parts of ours that busy threads call all the time look for it: one who finds it lets go until the
other has what it came for. What was waiting 5 ms for every few hundred microseconds of work then
waits for the length of a call.

Each thread has a byte of one word, so that a look at the word finds anybody, and one who gets the
lock takes back what it said and nothing that another one has said meanwhile. Bytes are dealt out in
turn: of more threads than there are bytes some share one, and of these one may be found later. That
costs it time and nothing else.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from functools import cache as once
from functools import partial
from itertools import count

from oven.compiler import cache, machine

#: Not 0 while somebody is done with native code, or was woken, and waits for the lock.
WAITING = array("q", [0])
WORD = WAITING.buffer_info()[0]
#: The word's bytes: the first is for threads that were woken for work, the others for those that
#: are done with some.
BYTES = memoryview(WAITING).cast("B")
WOKEN = 0
#: Who gives way sleeps so many times at most, each time for as little as systems have: some 60 us,
#: in which one who is woken for the lock takes it, as a rule, and is done with it. To ask the
#: system to run others instead keeps a processor busy, and on a busy machine costs a turn.
TURNS, SHORT = 4, 1e-6

SOURCE = """\
def run_aside(aside, io, n, scratch):
    made = call_stage(ld_int64(aside, 0), ld_int64(aside, 1), io, n, scratch)
    st_int8(ld_int64(aside, 2), 0, 1)
    return made
"""
NAME = "run_aside"


@once
def aside() -> Callable[..., int]:
    """Calls of stages that let the lock go, and leave word when they are done."""
    return machine.STAGE(_address(SOURCE, NAME))


class _Place(threading.local):
    """Which byte is this thread's."""

    def __init__(self) -> None:
        self.byte = next(_dealt) % (len(BYTES) - 1) + 1


_dealt = count()
#: `PLACE.byte` is the byte of the calling thread.
PLACE = _Place()


def yield_gil() -> None:
    """Let those who wait for the interpreter's lock have it; for when WAITING says so.

    All of them, but nobody for a second time: who has had it and waits again is for the next call.
    """
    waiting = WAITING[0]
    for _ in range(TURNS):
        time.sleep(SHORT)
        waiting &= WAITING[0]
        if not waiting:
            return
    for place in range(len(BYTES)):  # whoever it was is not coming, or somebody was in its way
        if waiting >> 8 * place & 1:
            BYTES[place] = 0


def _address(source: str, name: str) -> int:
    return cache.machine_code(cache.key(source), name, partial(_build, source, name))


def _build(source: str, name: str, given: str) -> cache.Code:
    from oven.compiler import native  # numba is imported only to compile

    return native.compile_source(source.replace(f"def {name}(", f"def {given}(", 1), given)
