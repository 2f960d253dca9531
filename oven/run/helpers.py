"""Threads that help callers with their blocks: they wait in native code, for all of a process.

    desk.start(threads, cores, user)    before the first call that is to be helped
    desk.stop(user)                     their end: when nobody wants them any more, and at exit

What passes between the threads is in oven.compiler.shared_rows. There are helpers where the C
library has semaphores in memory (Linux); elsewhere, and where a thread cannot be started, callers
compute alone, with the same code.
"""

from __future__ import annotations

import atexit
import ctypes
import threading
import time
from array import array
from collections.abc import Callable
from functools import cache
from typing import NamedTuple
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from objectstore import system
from objectstore.system import at_fork
from oven.compiler import machine, shared_rows
from oven.run.run_signature import aligned

#: Helpers that a process has at most.
MOST_HELPERS = 63
_WORD = 8
_FUNCTIONS = {
    "GETTIME": "clock_gettime",
    "POST": "sem_post",
    "WAIT": "sem_wait",
    "NANOSLEEP": "nanosleep",
    "MALLOC": "malloc",
    "RELEASE": "free",
}
#: A deadline that never comes, in seconds.
_FOREVER = 9e9
#: How long the end waits for a helper that computes.
_END_SECONDS = 10.0
_WORK = shared_rows.Record.WORK


class Division(NamedTuple):
    """The division of a block: the number of helpers, and the rows of a range."""

    helpers: int
    least: int
    most: int
    #: When the caller gives up, by the monotonic clock.
    deadline: float | None = None


class Told(NamedTuple):
    """The cost of a shared call: processor time of all threads, and the time that has passed."""

    work: float
    elapsed: float
    #: How many ranges there were, and how many helpers came.
    ranges: int
    came: int


class Desk:
    """A place where callers leave their runs, and the helpers that look there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[int, threading.Thread] = {}
        #: Who wants helpers, and how many there can be: fewer where the system starts no more.
        self._users: WeakSet[object] = WeakSet()
        self._most = MOST_HELPERS
        size = shared_rows.DESK_WORDS + MOST_HELPERS * shared_rows.SLOT_WORDS
        self._library = library = system.c_library()
        allocate = library.calloc
        allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
        #: Never freed: a helper may look at it as long as the process lives.
        self.address = aligned(int(allocate(size + _WORD, _WORD)))
        self._words = (ctypes.c_int64 * size).from_address(self.address)
        #: How many callers compute now, in its first item: helpers leave them their cores, between
        #: two ranges.
        self.callers = (ctypes.c_int64 * 1).from_address(
            self.address + _WORD * shared_rows.Desk.CALLERS
        )

    @property
    def works(self) -> bool:
        """True if there can be helpers here."""
        if self._words[shared_rows.Desk.TAKE]:
            return True
        with self._lock:
            if not system.LINUX or system.function("sem_init") is None:
                return False
            words = self._words
            for name, symbol in _FUNCTIONS.items():
                function = getattr(self._library, symbol)
                words[shared_rows.Desk[name]] = ctypes.cast(function, ctypes.c_void_p).value or 0
            words[shared_rows.Desk.CPU] = time.CLOCK_THREAD_CPUTIME_ID
            words[shared_rows.Desk.ELAPSING] = time.CLOCK_MONOTONIC
            for number in range(MOST_HELPERS):
                words[self._slot(number) + shared_rows.Slot.JOB] = shared_rows.ABSENT
                words[self._slot(number) + shared_rows.Slot.NUMBER] = number
            words[shared_rows.Desk.TAKE] = shared_rows.address("take_ranges")
            return True

    @property
    def helpers(self) -> int:
        """Their number."""
        return len(self._threads)

    @property
    def memory_bytes(self) -> int:
        """The memory that helpers keep to work in."""
        slots = map(self._slot, range(self._words[shared_rows.Desk.SLOTS]))
        return sum(self._words[slot + shared_rows.Slot.CAPACITY] for slot in slots)

    def start(self, threads: int, cores: int, user: object) -> int:
        """Start at least `threads` helpers for `user`; return how many run."""
        if not self.works:
            return 0
        with self._lock:
            self._users.add(user)
            self._words[shared_rows.Desk.CORES] = cores
            self._reap(0.0)
            for number in range(min(threads, self._most)):
                self._words[self._slot(number) + shared_rows.Slot.STOPPED] = 0
                if number not in self._threads and not self._start(number):
                    self._most = number  # it would be asked again with every call
                    break
            return len(self._threads)

    def stop(self, user: object = None) -> bool:
        """End the helpers where nobody else wants them: callers finish alone; whether all ended."""
        with self._lock:
            if user is None:
                self._users.clear()
            else:
                self._users.discard(user)
            if self._users:
                return True
            for number in self._threads:
                slot = self._slot(number)
                self._words[slot + shared_rows.Slot.STOPPED] = 1
                self._library.sem_post(ctypes.c_void_p(self._semaphore(slot)))
            self._reap(_END_SECONDS)
            self._most = MOST_HELPERS
            return not self._threads

    def forked(self) -> None:
        """A child process has none of these threads, and may have got a locked lock."""
        self._lock = threading.Lock()
        self._threads.clear()
        for slot in map(self._slot, range(MOST_HELPERS)):
            self._words[slot + shared_rows.Slot.JOB] = shared_rows.ABSENT
            self._words[slot + shared_rows.Slot.MEMORY] = self._words[
                slot + shared_rows.Slot.CAPACITY
            ] = 0
        self.callers[0] = 0

    def _reap(self, seconds: float) -> None:
        """Forget helpers that have ended, or do within so many seconds."""
        until = time.monotonic() + seconds
        for number, thread in [*self._threads.items()]:
            if seconds:
                thread.join(max(0.0, until - time.monotonic()))
            if not thread.is_alive():
                del self._threads[number]

    def _start(self, number: int) -> bool:
        slot = self._slot(number)
        if self._library.sem_init(ctypes.c_void_p(self._semaphore(slot)), 0, 0):
            return False
        self._words[slot + shared_rows.Slot.ASLEEP] = 0
        arguments = (self.address + _WORD * slot, self.address, 0, 0)
        thread = threading.Thread(
            target=_serve(), args=arguments, name=f"pretzel-helper-{number}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads for this process
            return False
        self._threads[number] = thread
        self._words[shared_rows.Desk.SLOTS] = max(self._words[shared_rows.Desk.SLOTS], number + 1)
        return True

    def _slot(self, number: int) -> int:
        return shared_rows.DESK_WORDS + number * shared_rows.SLOT_WORDS

    def _semaphore(self, slot: int) -> int:
        return self.address + _WORD * (slot + shared_rows.SEMAPHORE)


class SharedCall:
    """The record of one call whose rows its caller and helpers compute."""

    def __init__(
        self,
        program: tuple[int, int],
        steps: NDArray[np.int64],
        sizes: tuple[int, int],
        division: Division,
    ) -> None:
        """A call of this driver and program; by `steps` the words of its columns grow with a row.

        The sizes are those of the memory to work in, and of the room for documents.
        """
        helpers, least, most, deadline = division
        until = 0 if deadline is None else max(1, int(min(deadline, _FOREVER) * 1e9))
        own = (*program, desk.address, steps.ctypes.data, len(steps), *sizes)
        told = [0] * (len(shared_rows.Record) - _WORK)
        self._steps, self._record = steps, array("q", (*own, least, most, helpers, until, *told))
        #: The code that runs it, and its record: what the driver and its program are otherwise.
        self.addresses = (shared_rows.address("share_rows"), self._record.buffer_info()[0])

    def told(self) -> Told:
        """Its cost."""
        work, elapsed, ranges, came, _ = self._record[_WORK:]
        return Told(work * 1e-9, elapsed * 1e-9, ranges, came)

    @property
    def reached(self) -> int:
        """The number of rows begun when the deadline passed."""
        return self._record[-1]


desk = Desk()
atexit.register(desk.stop)
at_fork(after_in_child=desk.forked)


@cache
def _serve() -> Callable[..., int]:
    return machine.STAGE(shared_rows.address("serve_rows"))
