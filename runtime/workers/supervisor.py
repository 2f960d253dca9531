"""The supervisor: the process that holds the port and the folder, and keeps workers running.

It answers no request itself. Models are imported and verified here, once; workers get the files of
plans. Its channels are inherited socket pairs, so there is no file that others could open, and a
worker notices the end of the supervisor, in any way, by its closed channel.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from flour.core.errors import FlourError
from objectstore import system
from runtime.errors import NoWorker
from runtime.http.server import ServerError, listen, url_of
from runtime.http.watch.telemetry import check
from runtime.http.wire.interfaces import ModelRepository
from runtime.http.wire.settings import ServerSettings
from runtime.http.wire.unix_socket import PREFIX, address_of, remove_file
from runtime.rollout import STEP_SECONDS
from runtime.service.version import Compiling
from runtime.workers.channel import Channel, apart
from runtime.workers.fleet import Fleet
from runtime.workers.options import WorkerOptions
from runtime.workers.slot import WorkerEvent, WorkerSlot

#: Time that workers have to end, in addition to the time for finishing requests.
_END_SECONDS = 5.0
#: Largest age of the folder's index in workers.
_SHOW_SECONDS = 1.0
#: Time that workers have to say how far they are.
_STATE_SECONDS = 5.0
#: With no worker ready and this many ended, the start has failed.
_FRUITLESS = 3


class Supervisor:
    """Runs `count` workers on one port, with the models of one folder."""

    def __init__(
        self,
        count: int,
        fleet: Fleet,
        folder: ModelRepository,
        options: WorkerOptions | None = None,
        *,
        on_event: Callable[[WorkerEvent], object] | None = None,
    ) -> None:
        """Nothing is started yet. `on_event` is called with events of workers, on any thread."""
        self.options = options or WorkerOptions()
        self.fleet, self.folder, self.count = fleet, folder, count
        self._on_event = on_event or (lambda _: None)
        self._listeners: list[socket.socket] = []
        self._minders: dict[int, tuple[WorkerSlot, Channel]] = {}
        self._sharing = threading.Lock()
        self._slots: list[WorkerSlot] = []
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="pretzel-asked")
        self._showing, self._changed = threading.Lock(), threading.Event()
        self._stopped = False
        #: True if the start is given up: it waits for no worker then.
        self.given_up: Callable[[], bool] = bool

    # --- address -----------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port that is served."""
        return address_of(self._listeners[0])[1] if self._listeners else 0

    @property
    def url(self) -> str:
        """The address for clients."""
        settings = self.options.settings
        return url_of(settings.host, self.port, tls=bool(settings.tls_cert))

    def processes(self) -> tuple[int, ...]:
        """The process ids of the workers that take requests."""
        return tuple(
            slot.process.pid
            for slot in self._slots
            if slot.ready.is_set() and slot.process is not None
        )

    # --- running -----------------------------------------------------------------------------

    def start(self) -> Supervisor:
        """Listen, start the workers, and wait until all of them take requests."""
        settings = self.options.settings
        check(settings)  # errors are raised here, once
        self._listeners = listen_often(settings, self.count)
        self.show()
        threading.Thread(target=self._keep_showing, name="pretzel-shows", daemon=True).start()
        begin = {"options": self.options.to_json(), "workers": self.count}
        for number in range(self.count):
            slot = WorkerSlot(
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
        """Wait until all workers are ready, or some are and the others keep ending."""
        while not (self.given_up() or all(slot.ready.is_set() for slot in self._slots)):
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
        """Let a ready worker accept the connections of one that is not."""
        with self._sharing:
            ready = [slot for slot in self._slots if slot.ready.is_set()]
            for slot in self._slots:
                minder = self._minders.pop(slot.number, None)
                if minder is not None and (slot in ready or minder[0] not in ready):
                    minder[1].ask("accept_no_more", slot.number)
                    minder = None
                if minder is None and slot not in ready and ready and not self._stopped:
                    other = ready[slot.number % len(ready)]
                    if other.channel is not None:
                        other.channel.ask("accept", slot.number)
                        minder = other, other.channel
                if minder is not None:
                    self._minders[slot.number] = minder

    def notice(self) -> None:
        """Show workers the changed index of the folder soon."""
        self._changed.set()

    def _keep_showing(self) -> None:
        while not self._stopped:
            self._changed.wait(_SHOW_SECONDS)
            self._changed.clear()
            began = time.monotonic()
            self.show()
            time.sleep(4 * (time.monotonic() - began))  # a long index changes often in a long load

    def show(self) -> None:
        """Send the current index to the workers."""
        with self._showing:  # so that an older index never arrives after a newer one
            self.fleet.show(self.folder.index())

    def reload(self) -> None:
        """Have the workers read the files of TLS again."""
        for slot in self._slots:
            if slot.ready.is_set() and slot.channel is not None:
                slot.channel.ask("reload")

    def stop(self) -> None:
        """Let all workers finish their requests and end; no process is left behind."""
        if self._stopped:
            return
        self._stopped = True
        self._changed.set()
        for slot in self._slots:
            slot.stop()
        for listener in self._listeners:
            listener.close()
        settings = self.options.settings
        end = time.monotonic() + settings.drain_delay + settings.drain_seconds + _END_SECONDS
        for slot in self._slots:
            slot.join(max(0.0, end - time.monotonic()))
        remove_file(settings.host)
        self.fleet.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Supervisor:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- questions of workers ----------------------------------------------------------------

    def _asked(self, slot: WorkerSlot, kind: str, body: Any) -> Future[Any] | None:
        if (task := self.fleet.question(kind, body)) is not None:
            return self._pool.submit(task)
        match kind:
            case "load" | "unload":
                return self._pool.submit(self._turn, kind, body)
            case "leaving":
                slot.leaving = True
                slot.set_ready(ready=False)
                return None
            case "snapshot":
                others = [each for each in self._slots if each is not slot]
                return self._all_asked(others, "snapshot", body["kind"], body["seconds"])
        raise FlourError("a worker asks an unknown question", found=kind)

    def _turn(self, kind: str, name: str) -> None:
        """Load or unload a model, in every worker."""
        try:
            (self.folder.load if kind == "load" else self.folder.unload)(name)
        finally:
            self.show()
        self.fleet.settle(STEP_SECONDS)

    def compiling(self) -> Compiling | None:
        """The code still to compile, in the worker with the most of it.

        None where no worker says it in time.
        """
        states = self._all_asked(self._slots, "state", None, _STATE_SECONDS).result()
        left = (Compiling(*each["compiling"]) for each in states.values())
        return max(left, default=None)

    def lacking(self) -> dict[str, str]:
        """By address, the versions that workers could not load: which workers, and why."""
        states = self._all_asked(self._slots, "state", None, _STATE_SECONDS).result()
        lacks: dict[str, str] = {}
        for address in dict.fromkeys(each for state in states.values() for each in state["failed"]):
            without = sorted(number for number in states if address in states[number]["failed"])
            reason = states[without[0]]["failed"][address]
            lacks[address] = f"worker {', '.join(without)} of {self.count} lacks it: {reason}"
        return lacks

    def _all_asked(
        self, slots: Sequence[WorkerSlot], kind: str, body: object, seconds: float
    ) -> Future[Any]:
        """The answers of those of these workers that are ready, as many as arrive in time."""
        asked = {
            slot.number: slot.channel.ask(kind, body)
            for slot in slots
            if slot.ready.is_set() and slot.channel is not None
        }
        return gathered(asked, seconds)


def listen_often(settings: ServerSettings, count: int) -> list[socket.socket]:
    """`count` sockets on one port, or one path; the system distributes connections among them."""
    if not system.HANDS_ON:
        raise ServerError("workers need sockets that a process hands on", hint="serve with one")
    if settings.host.startswith(PREFIX) or not system.SHARED_PORTS:
        first = listen(settings)
        return [first, *(first.dup() for _ in range(count - 1))]
    if settings.port and not settings.reuse_port:
        listen(settings).close()  # otherwise another server with a shared port would go unnoticed
    sockets = [listen(replace(settings, reuse_port=True))]
    port = int(sockets[0].getsockname()[1])
    same = replace(settings, reuse_port=True, port=port)
    return sockets + [listen(same) for _ in range(count - 1)]


def gathered(asked: Mapping[int, Future[Any]], seconds: float) -> Future[Any]:
    """A future of the answers that arrive in time, by worker number."""

    def came() -> dict[str, Any]:
        done = wait(asked.values(), seconds).done
        there = {key: each for key, each in asked.items() if each in done and not each.exception()}
        return {str(number): each.result() for number, each in there.items()}

    return apart(came)
