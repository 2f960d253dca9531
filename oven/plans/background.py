"""Compile later: a plan answers from its definition until its native code is there."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from objectstore.system import at_fork
from oven.compiler import cache, estimate, machine, written

T = TypeVar("T")
#: Where code that is in no cache is compiled: here, on another thread, on these threads, or (None)
#: as BY_DEFAULT has it.
Background = bool | Executor | None

_lock = threading.Lock()
_shared: list[ThreadPoolExecutor] = []
#: What waits for the thread below, in its order.
_waiting: dict[Pending[Any], None] = {}


def shared() -> Executor:
    """The one thread of this process that compiles in the background."""
    with _lock:
        if not _shared:
            _shared.append(ThreadPoolExecutor(1, thread_name_prefix="pretzel-compile"))
        return _shared[0]


def _after_fork() -> None:
    """The worker thread does not survive a fork; start a new one for the queued work."""
    _shared.clear()
    if _lock.locked():  # by a thread that this process does not have after a fork
        _lock.release()
    for each in list(_waiting):
        each.start(shared())


at_fork(after_in_child=_after_fork)


#: Whether code that is in no cache is compiled on another thread unless a caller says otherwise.
BY_DEFAULT = [True]


class _Never(Executor):
    """Does nothing of what it is given."""

    def submit(self, call: Callable[..., Any], /, *_: object, **__: object) -> Future[Any]:
        """A future that is never done."""
        return Future()


#: As `background`: code that is in a cache is used, and none is compiled, for those who only look.
NEVER = _Never()


class Needed(NamedTuple):
    """A function that has to be compiled: its cache key, its name, and what makes its source."""

    key: str
    name: str
    make: Callable[[], str]

    @classmethod
    def of(cls, source: str, name: str) -> Needed:
        """The function of this name in a source."""
        return cls(cache.key(source), name, lambda: source)

    @classmethod
    def of_function(cls, function: Callable[..., object]) -> Needed:
        """A function of ours."""
        make = partial(written.text, function)
        return cls(cache.function_key(function), function.__name__, make)


def at_hand(needed: Sequence[Needed]) -> bool:
    """True if all of this is in a cache or pack; each that is gets loaded."""
    there = [cache.find(each.key, each.name) is not None for each in needed]
    return all(there)


class Pending(Generic[T]):
    """Something that is made now, or on another thread while others go without it."""

    def __init__(
        self,
        make: Callable[[], T],
        background: Background,
        needed: Callable[[], Sequence[Needed]] = tuple,
        *,
        held: bool = False,
    ) -> None:
        """Call `make`: here, on another thread, or there if the code `needed` is in no cache.

        With `held`, another thread is not asked before `begin` or `wait`.
        """
        self._made: T | None = None
        self._held: bool | Executor = False
        self._future: Future[T] | None = None
        #: What is still to be done, and the code for it; let go with the plan that it is for.
        self._task: tuple[Callable[[], T], Callable[[], Sequence[Needed]]] | None = None
        if background is None or background is NEVER:
            later = BY_DEFAULT[0] if background is None else background
            background = later if later and not at_hand(needed()) else False
        if background is False:
            self._made = make()
        else:
            self._task, self._future, self._held = (make, needed), Future(), background
            if not held:
                self._start()

    def begin(self) -> None:
        """Have it made, if it was held: by a thread that runs once the caller lets go of the GIL.

        `Thread.start` would hand the GIL to that thread, and get it back milliseconds later.
        """
        if self._held is True:
            _waiting[self] = None  # from now on: a child process would start it
            _thread.start_new_thread(self._start, ())
        else:
            self._start()

    def _start(self) -> None:
        with _lock:
            where, self._held = self._held, False
        if where:
            try:
                self.start(shared() if where is True else where)
            except RuntimeError:  # as the interpreter ends, executors take nothing more
                return

    def start(self, where: Executor) -> None:
        """Have it made there: once, and again in a forked process, which has not got the thread."""
        self._held = False
        if where in _shared:
            _waiting[self] = None
        where.submit(self._work)

    def _work(self) -> None:
        task, future = self._task, self._future
        assert task is not None, "it is done once"
        assert future is not None, "it is kept only when this is done"
        made, problem = None, None
        try:
            made = task[0]()
        except BaseException as error:  # noqa: BLE001 (it is raised to who waits)
            problem = error
        _waiting.pop(self, None)
        self._task = task = None
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(cast("T", made))

    @property
    def here(self) -> T | None:
        """The result, or None before it is there; an error in making it is raised here."""
        if self._made is None:
            # The local: another thread may be here too, and lets the future go.
            future = self._future
            if future is not None and future.done():
                self._keep(future.result())
        return self._made

    @property
    def done(self) -> bool:
        """True if it was made, or could not be."""
        future = self._future
        return future is None or future.done()

    def check(self) -> None:
        """Raise the error that there was in making it, if any."""
        _ = self.here

    @property
    def seconds_left(self) -> float:
        """About how long it will still take, with what is made before it; 0 once it is there."""
        task, queue = self._task, list(_waiting)
        if task is None or not machine.is_there():
            return 0.0
        ahead = queue[: queue.index(self)] if self in queue else []
        tasks = [*(each._task for each in ahead), task]  # noqa: SLF001 (this is the class)
        needed = {one.key: one for each in tasks if each is not None for one in each[1]()}
        missing = [one.make() for key, one in needed.items() if not cache.here(key)]
        return max(estimate.seconds(missing), _SOON)

    def when_done(self, call: Callable[[], object]) -> None:
        """Have this called once it is made or could not be: now, or on its thread."""
        future = self._future
        if future is None:
            call()
        else:
            future.add_done_callback(lambda _: call())

    def wait(self, timeout: float | None = None) -> T:
        """The result as soon as it is there; TimeoutError if that takes too long."""
        future = self._future
        if self._made is None and future is not None:
            self._start()
            self._keep(future.result(timeout))
        assert self._made is not None, "made, or still being made"
        return self._made

    def _keep(self, made: T) -> None:
        self._made = made
        self._future = None


#: What is not there yet takes this long at least: code that is compiled is still to be linked.
_SOON = 0.01
