"""The process that holds the port and the folder, and keeps so many workers at work.

It answers no request itself. Models are imported and verified here, once; workers get the files of
plans. Its channels are inherited pairs of sockets, so there is no file that others could open, and
a worker whose supervisor is gone, however it went, finds its end closed.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, Self

from flour.core.errors import FlourError
from runtime.http.guards import Tokens
from runtime.http.interfaces import ModelState
from runtime.http.server import listen
from runtime.http.settings import ServerSettings
from runtime.workers.channel import Channel
from runtime.workers.errors import NoWorker
from runtime.workers.fleet import Fleet
from runtime.workers.options import Options
from runtime.workers.slot import Slot, WorkerEvent

#: A change that somebody asked for is answered when all have followed, or after so long.
STEP_SECONDS = 30.0
#: Beyond what requests get to be finished, workers have so long to end.
_END_SECONDS = 5.0
#: Workers know the folder's index as it was so long ago, or less.
_SHOW_SECONDS = 1.0
#: No worker has come up, and so many have ended: none will.
_FRUITLESS = 3


class Folder(Protocol):
    """As much of a repository as is asked for by workers."""

    def index(self) -> Sequence[ModelState]:
        """Every version that is known."""
        ...

    def load(self, name: str) -> object:
        """Load or reload a model."""
        ...

    def unload(self, name: str) -> object:
        """Take a model out."""
        ...


class Supervisor:
    """So many workers on one port, in step with one folder."""

    def __init__(
        self,
        count: int,
        fleet: Fleet,
        folder: Folder,
        options: Options | None = None,
        *,
        on_event: Callable[[WorkerEvent], object] | None = None,
    ) -> None:
        """Nothing is started yet. `on_event` is told what happens to workers, on any thread."""
        self.options = options or Options()
        self.fleet, self.folder, self.count = fleet, folder, count
        self._on_event = on_event or (lambda _: None)
        self._listeners: list[socket.socket] = []
        self._minding: dict[int, tuple[Slot, Channel]] = {}
        self._sharing = threading.Lock()
        self._slots: list[Slot] = []
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="pretzel-asked")
        self._showing, self._changed = threading.Lock(), threading.Event()
        self._stopped = False

    # --- where it is -------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port that is served."""
        return int(self._listeners[0].getsockname()[1]) if self._listeners else 0

    @property
    def url(self) -> str:
        """Where clients find it."""
        host = self.options.settings.host
        shown = "127.0.0.1" if host in {"", "0.0.0.0", "::"} else host  # noqa: S104 (shown, not bound)
        return f"http://[{shown}]:{self.port}" if ":" in shown else f"http://{shown}:{self.port}"

    def processes(self) -> tuple[int, ...]:
        """The workers that take requests, by their process."""
        return tuple(
            slot.process.pid
            for slot in self._slots
            if slot.ready.is_set() and slot.process is not None
        )

    # --- running -----------------------------------------------------------------------------

    def start(self) -> Self:
        """Listen, start the workers, and wait until all of them take requests."""
        settings = self.options.settings
        Tokens(settings.tokens or None)  # what is wrong with it is said here, and once
        self._listeners = listen_often(settings, self.count)
        self.show()
        threading.Thread(target=self._keep_showing, name="pretzel-shows", daemon=True).start()
        begin = {"options": self.options.to_json(), "workers": self.count}
        for number in range(self.count):
            slot = Slot(
                number,
                self.fleet,
                self._listeners,
                begin,
                handle=self._asked,
                on_event=self._on_event,
                on_change=self._share_out,
            )
            self._slots.append(slot)
        for slot in self._slots:
            slot.start()
        try:
            self._await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def _await_ready(self) -> None:
        """Until all are ready; some that come later are no reason to wait for ever."""
        while not all(slot.ready.is_set() for slot in self._slots):
            if sum(slot.ended for slot in self._slots) >= _FRUITLESS:
                if any(slot.ready.is_set() for slot in self._slots):
                    return
                raise NoWorker(
                    "no worker comes up",
                    where=self.url,
                    found=f"{sum(slot.ended for slot in self._slots)} processes ended",
                    hint="what they wrote to standard error says why",
                )
            time.sleep(0.01)

    def _share_out(self) -> None:
        """Connections of a worker that takes none go to another one that does."""
        with self._sharing:
            ready = [slot for slot in self._slots if slot.ready.is_set()]
            for slot in self._slots:
                now = self._minding.pop(slot.number, None)
                if now is not None and (slot in ready or now[0] not in ready):
                    now[1].ask("accept_no_more", slot.number)
                    now = None
                if now is None and slot not in ready and ready and not self._stopped:
                    other = ready[slot.number % len(ready)]
                    if other.channel is not None:
                        other.channel.ask("accept", slot.number)
                        now = other, other.channel
                if now is not None:
                    self._minding[slot.number] = now

    def notice(self) -> None:
        """Something in the folder has changed: workers should know soon."""
        self._changed.set()

    def _keep_showing(self) -> None:
        while not self._stopped:
            self._changed.wait(_SHOW_SECONDS)
            self._changed.clear()
            self.show()

    def show(self) -> None:
        """Let workers know the index as it is now."""
        with self._showing:  # an older one must not come last
            self.fleet.show(
                [
                    [each.name, each.version, each.state, each.reason, each.wanted]
                    for each in self.folder.index()
                ]
            )

    def stop(self) -> None:
        """Let all workers finish what is on its way, and end; nothing is left behind."""
        if self._stopped:
            return
        self._stopped = True
        self._changed.set()
        for slot in self._slots:
            slot.stop()
        for listener in self._listeners:
            listener.close()
        end = time.monotonic() + self.options.settings.drain_seconds + _END_SECONDS
        for slot in self._slots:
            slot.join(max(0.0, end - time.monotonic()))
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- what workers ask --------------------------------------------------------------------

    def _asked(self, slot: Slot, kind: str, body: Any) -> Future[Any] | None:
        match kind:
            case "load" | "unload":
                return self._pool.submit(self._turn, kind, body)
            case "leaving":
                slot.leaving = True
                slot.set_ready(ready=False)
                return None
            case "snapshot":
                return self._snapshot(slot, body["kind"], body["seconds"])
        raise FlourError("a worker asks for what nobody knows", found=kind)

    def _turn(self, kind: str, name: str) -> None:
        """Load or unload a model, in every worker."""
        try:
            (self.folder.load if kind == "load" else self.folder.unload)(name)
        finally:
            self.show()
        self.fleet.settle(STEP_SECONDS)

    def _snapshot(self, asking: Slot, kind: str, seconds: float) -> Future[Any]:
        """What the other workers say, as far as they do in time."""
        asked = {
            slot.number: slot.channel.ask("snapshot", kind)
            for slot in self._slots
            if slot is not asking and slot.ready.is_set() and slot.channel is not None
        }
        return gathered(asked, seconds)


def listen_often(settings: ServerSettings, count: int) -> list[socket.socket]:
    """So many sockets on one port, between which the system shares connections out."""
    if settings.port and not settings.reuse_port:
        listen(settings).close()  # others who share their port would not be noticed else
    made = [listen(replace(settings, reuse_port=True))]
    port = int(made[0].getsockname()[1])
    same = replace(settings, reuse_port=True, port=port)
    return made + [listen(same) for _ in range(count - 1)]


def gathered(asked: Mapping[int, Future[Any]], seconds: float) -> Future[Any]:
    """A future of the answers that come in time, by the number of who gave them."""
    made: Future[Any] = Future()
    _Gathering(asked, made, seconds)
    return made


class _Gathering:
    """Answers of several, until all are there or the time is over."""

    def __init__(self, asked: Mapping[int, Future[Any]], made: Future[Any], seconds: float) -> None:
        self._made, self._lock = made, threading.Lock()
        self._found: dict[str, Any] = {}
        self._left = len(asked)
        self._timer = threading.Timer(seconds, self._finish)
        self._timer.daemon = True
        if not asked:
            self._finish()
            return
        self._timer.start()
        for number, future in asked.items():
            future.add_done_callback(partial(self._take, number))

    def _take(self, number: int, done: Future[Any]) -> None:
        with self._lock:
            self._left -= 1
            if done.exception() is None:
                self._found[str(number)] = done.result()
            last = not self._left
        if last:
            self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        with self._lock:
            if self._made.done():
                return
            self._made.set_result(dict(self._found))
