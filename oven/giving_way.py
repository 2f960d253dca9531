"""The interpreter's lock: native code says when it waits for it, and who has it can give way.

A thread that comes back from native code gets the lock when its holder lets go of it, which a busy
one does every 5 ms (`sys.setswitchinterval`); nobody asks it earlier, and a library must not change
that for a whole process. So native code that let the lock go leaves word that it is done, and those
parts of ours that busy threads call all the time look for it: one who finds it lets go until the
other has what it came for. What was waiting 5 ms for every few hundred microseconds of work then
waits for the length of a call.

The word is one for all threads, and each that gets the lock takes it away: where two wait, the
other one may be found later. That costs it time and nothing else.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from functools import cache as once
from functools import partial

from oven import cache, machine

#: Not 0 while somebody is done with native code and waits for the lock.
WAITING = array("q", [0])
WORD = WAITING.buffer_info()[0]
#: Who gives way sleeps so many times at most, each time for as little as systems have: some 60 us,
#: in which one who is woken for the lock takes it, as a rule, and is done with it. To ask the
#: system to run others instead keeps a processor busy, and on a busy machine costs a turn.
TURNS, SHORT = 4, 1e-6

SOURCE = """\
def run_aside(aside, io, n, scratch):
    made = call_stage(ld_int64(aside, 0), ld_int64(aside, 1), io, n, scratch)
    st_int64(ld_int64(aside, 2), 0, 1)
    return made
"""
NAME = "run_aside"


@once
def aside() -> Callable[..., int]:
    """Calls of stages that let the lock go, and leave word when they are done."""
    return machine.STAGE(_address(SOURCE, NAME))


def give_way() -> None:
    """Let somebody who waits for the interpreter's lock have it; for when WAITING says so."""
    for _ in range(TURNS):
        time.sleep(SHORT)
        if not WAITING[0]:
            return
    WAITING[0] = 0  # whoever it was is not coming, or somebody else was in its way


def _address(source: str, name: str) -> int:
    return cache.machine_code(cache.key(source), name, partial(_build, source, name))


def _build(source: str, name: str, given: str) -> cache.Code:
    from oven import native  # numba is imported only to compile

    return native.compile_source(source.replace(f"def {name}(", f"def {given}(", 1), given)
