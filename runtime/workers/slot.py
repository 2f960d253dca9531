"""A slot for a worker: starts its process, watches it, and replaces it when it ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from flour.core.errors import FlourError
from objectstore import system
from runtime.errors import ChannelClosed
from runtime.workers.channel import Channel
from runtime.workers.fleet import Fleet
from runtime.workers.judging import Member

#: Seconds between checks of a worker; without an answer it gets no connections; it is killed.
BEAT_SECONDS, QUIET_SECONDS, HUNG_SECONDS = 1.0, 3.0, 30.0
#: A worker that lived shorter than this is restarted after a pause, which doubles each time.
SHORT_LIFE, FIRST_PAUSE, LONGEST_PAUSE = 10.0, 0.1, 10.0

#: The worker's program: a new interpreter with the same module path as this one.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from runtime.workers.process import main; main(*map(int, sys.argv[2:]))"
)


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """Something that happened to a worker, for a log."""

    kind: str
    """started, ready, ended or behind."""
    worker: int
    process: int
    reason: str = ""


class Backoff:
    """The pause before the next process of a worker: longer after each that lived shortly."""

    def __init__(self) -> None:
        """No process has ended yet."""
        self._pause = FIRST_PAUSE

    def after(self, lived: float) -> float:
        """Return the pause after a process that lived for so many seconds."""
        doubled = min(self._pause * 2, LONGEST_PAUSE)
        self._pause = FIRST_PAUSE if lived > SHORT_LIFE else doubled
        return self._pause


Handler = Callable[["WorkerSlot", str, Any], Any]


class WorkerSlot:
    """One worker number: its current process, and the next one when that has ended."""

    def __init__(
        self,
        number: int,
        fleet: Fleet,
        listeners: Sequence[socket.socket],
        begin: dict[str, Any],
        *,
        handle: Handler,
        on_event: Callable[[WorkerEvent], object],
        on_change: Callable[[], object],
    ) -> None:
        """`on_change` is called when `ready` has changed."""
        self.number, self._fleet, self._listeners = number, fleet, listeners
        self._on_change = on_change
        self._begin = begin | {"worker": number}
        self._handle, self._on_event = handle, on_event
        self.ready = threading.Event()
        """True if it takes requests."""
        self.ended = 0
        """The number of its processes that have ended."""
        self.channel: Channel | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._backoff = Backoff()
        self._trouble = ""
        self.leaving = False
        """True if it takes no more connections, and ends when it has answered its requests."""
        self._thread = threading.Thread(target=self._run, name=f"pretzel-slot-{number}")
        self._thread.daemon = True

    def start(self) -> None:
        """Start a process, and another one whenever it ends, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Let the process finish its requests and end, without a successor. Does not wait."""
        self._stopping.set()
        channel, process = self.channel, self.process
        if channel is not None:
            channel.ask("stop")
        if process is not None and not self.ready.is_set():  # it may not read that for seconds
            process.terminate()

    def join(self, seconds: float) -> None:
        """Wait for the end of the process; kill it after `seconds`."""
        self._thread.join(seconds)
        process = self.process
        if self._thread.is_alive() and process is not None:
            process.kill()
            self._thread.join(HUNG_SECONDS)

    # --- lives -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                reason = self._run_process()
            except OSError as problem:  # out of processes or descriptors: try again later
                reason = problem.strerror or str(problem)
            if self._stopping.is_set():
                return
            pause = self._backoff.after(time.monotonic() - began)
            self.ended += 1
            number = 0 if self.process is None else self.process.pid
            after = f"{reason}; the next one comes in {pause:.1f} s"
            self._on_event(WorkerEvent("ended", self.number, number, after))
            self._stopping.wait(pause)

    def _run_process(self) -> str:
        """Start a process and watch it to its end; returns how it ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            inherited = theirs.fileno(), *(each.fileno() for each in self._listeners)
            module_path = json.dumps([each or os.getcwd() for each in sys.path])  # noqa: PTH109 (a string)
            self.process = process = subprocess.Popen(  # noqa: S603 (our own program)
                [sys.executable, "-c", _PROGRAM, module_path, *map(str, inherited)],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._on_event(WorkerEvent("started", self.number, process.pid))
        self._trouble, self.leaving = "", False
        self.channel = channel = Channel(ours, partial(self._handle, self), lambda: None)
        channel.start(f"worker-{self.number}")
        member = Member(self.number, channel)
        try:
            begun = self._fleet.join(member, self._begin)
            begun.add_done_callback(partial(self._loaded, member, process))
            how = _ended(self._watch(process, member))
            return f"{how}: {self._trouble}" if self._trouble else how
        finally:
            self.set_ready(ready=False)
            self._fleet.leave(member)
            channel.close()

    def _loaded(self, member: Member, process: subprocess.Popen[bytes], done: Future[Any]) -> None:
        """The process has loaded all models; open it, after the changes sent meanwhile."""
        problem = done.exception()
        if problem is not None:
            if not isinstance(problem, ChannelClosed):
                self._trouble = str(problem)
                process.terminate()
            return
        opened = self._fleet.open(member)
        opened.add_done_callback(partial(self._opened, member, process))
        if self._stopping.is_set() and self.channel is not None:
            self.channel.ask("stop")

    def set_ready(self, *, ready: bool) -> None:
        """Note whether it takes requests."""
        if ready != self.ready.is_set():
            (self.ready.set if ready else self.ready.clear)()
            self._on_change()

    def _opened(self, member: Member, process: subprocess.Popen[bytes], done: Future[Any]) -> None:
        if done.exception() is None and not self._stopping.is_set():
            member.opened = True
            self.set_ready(ready=True)
            self._on_event(WorkerEvent("ready", self.number, process.pid))

    # --- watching ----------------------------------------------------------------------------

    def _watch(self, process: subprocess.Popen[bytes], member: Member) -> int:
        asked, answer = time.monotonic(), member.line.ask("state")
        told: str | None = ""
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(BEAT_SECONDS)
            if not answer.done():
                self._unanswered(process, time.monotonic() - asked)
                continue
            self._answered(member, answer)
            behind = self._missed_changes(member, answer)
            if behind and behind != told:
                self._on_event(WorkerEvent("behind", self.number, process.pid, behind))
            told = told if behind is None else behind
            asked, answer = time.monotonic(), member.line.ask("state")

    def _unanswered(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """It does not answer: give its connections to others, and later kill it."""
        if seconds > QUIET_SECONDS:
            self.set_ready(ready=False)
        if seconds > HUNG_SECONDS:
            process.kill()

    def _answered(self, member: Member, answer: Future[Any]) -> None:
        """It answers: mark it ready, as it may not have answered before."""
        leaving = self.leaving or self._stopping.is_set()
        if answer.exception() is None and member.opened and not leaving:
            self.set_ready(ready=True)

    def _missed_changes(self, member: Member, answer: Future[Any]) -> str | None:
        """The changes that a worker has failed to follow, which are sent again; empty if none.

        None where that is not known yet.
        """
        try:
            state = answer.result()
        except FlourError:  # it ends
            return None
        last = member.last
        if not member.serving or last is None or not last.done():
            return None
        failed: dict[str, str] = state["failed"]
        if not failed and last.exception() is None:
            return ""
        self._fleet.again(member)
        return "; ".join(f"{key}: {why}" for key, why in failed.items()) or "it missed a change"


def _ended(code: int) -> str:
    how = f"it was ended by {system.signal_name(-code)}"
    return how if code < 0 else f"it ended with code {code}"
