"""Yielding the GIL: native code flags that it waits for the GIL, and its holder lets it go.

A thread that comes back from native code gets the GIL when its holder lets go of it, which a busy
thread does every 5 ms (`sys.setswitchinterval`); a library must not change that for a whole
process. So native code that released the GIL sets a flag when it is done. Functions of ours that
busy threads call often check the flag, and release the GIL until the waiting thread has had it. A
wait of 5 ms per few hundred microseconds of work becomes a wait for the length of one call.

The flags are the bytes of one 64-bit word, one per thread: reading the word checks all threads at
once, and a thread that gets the GIL clears its own flag only. Bytes are assigned in turn. With more
threads than bytes some threads share one; one of these may wait longer, without other harm.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from functools import cache as once
from itertools import count

from oven.compiler import cache, machine
from oven.compiler.words import *

#: Not 0 while a thread that is done with native code, or was woken, waits for the GIL.
WAITING = array("q", [0])
WORD = WAITING.buffer_info()[0]
#: The word's bytes: the first is for threads woken to run a job, the others for threads that are
#: done with native code.
BYTES = memoryview(WAITING).cast("B")
WOKEN = 0
#: A thread that yields sleeps at most this many times, each time as briefly as systems allow: about
#: 60 µs, in which a waiting thread usually takes the GIL and releases it again. `sched_yield`
#: instead would keep a processor busy, and costs a time slice on a busy machine.
TURNS, SHORT = 4, 1e-6


def run_aside(aside: int, io: int, n: int, scratch: int) -> int:
    """Run stages, and set a flag when they are done."""
    made = call_stage(ld_int64(aside, 0), ld_int64(aside, 1), io, n, scratch)
    st_int8(ld_int64(aside, 2), 0, 1)
    return made


@once
def aside() -> Callable[..., int]:
    """The call of stages that releases the GIL, and sets a flag when they are done."""
    return machine.STAGE(cache.function_address(run_aside))


class _Place(threading.local):
    """The byte of this thread."""

    def __init__(self) -> None:
        self.byte = next(_dealt) % (len(BYTES) - 1) + 1


_dealt = count()
#: `PLACE.byte` is the byte of the calling thread.
PLACE = _Place()


def yield_gil() -> None:
    """Release the GIL for the threads that wait for it; to be called when WAITING is not 0.

    Every waiting thread gets it once; a thread that waits again is served by the next call.
    """
    waiting = WAITING[0]
    for _ in range(TURNS):
        time.sleep(SHORT)
        waiting &= WAITING[0]
        if not waiting:
            return
    for index in range(len(BYTES)):  # the thread has ended, or was delayed
        if waiting >> 8 * index & 1:
            BYTES[index] = 0
