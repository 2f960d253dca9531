"""A worker: the process that answers requests, and follows the supervisor's changes."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from shutil import rmtree
from typing import Any

from flour.core.errors import FlourError
from objectstore import FileStore, system
from runtime.http.server import Server
from runtime.http.watch.logs import of_process, put_level
from runtime.http.wire.interfaces import ModelState
from runtime.http.wire.loop_fairness import keep_what_is_here, lock_shared
from runtime.repository.staging_locks import WORKERS
from runtime.routing.history import History
from runtime.routing.written import as_toml
from runtime.runtime import Runtime
from runtime.service.version import Compiling
from runtime.shutdown import Ending
from runtime.workers.channel import Channel, End, Handler, apart
from runtime.workers.mirror import IndexMirror, WorkerPeers
from runtime.workers.options import WorkerOptions
from runtime.workers.replica import ChangeFollower

log = logging.getLogger("pretzel.workers")

#: The end of a channel, with what answers questions and what is called at its end.
Opened = Callable[[Handler, Callable[[], object]], End]


def main(control: int, *listeners: int) -> None:
    """Run until the supervisor ends this process, or has ended itself."""
    ended = Ending()
    # Ctrl-C reaches all processes; the supervisor decides when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: ended.set())
    ended.wake()
    sockets = [socket.socket(fileno=each) for each in listeners]
    with lock_shared():
        Worker(partial(Channel, socket.socket(fileno=control)), sockets, ended).run()


class Worker:
    """The parts of a worker. Changes are applied one by one, on a thread of their own."""

    def __init__(self, opened: Opened, listeners: list[socket.socket], ended: Ending) -> None:
        """`opened` makes the end of a channel; `listeners` are those of all workers, by number."""
        self._listeners, self._ended = listeners, ended
        self._channel = opened(self._asked, self._orphaned)
        self._tasks: SimpleQueue[tuple[Callable[[], None], Future[Any]]] = SimpleQueue()
        self._drain = 30.0
        self._replica: ChangeFollower | None = None
        self._mirror = IndexMirror(self._channel, self._seen)
        self._runtime: Runtime | None = None
        self._server: Server | None = None
        self._peers: WorkerPeers | None = None
        self._private: Private | None = None
        self._store: FileStore | None = None
        self._alone = False

    def run(self) -> None:
        """Run until the end, then finish all requests."""
        threading.Thread(target=self._follow, name="pretzel-follows", daemon=True).start()
        self._channel.start("supervisor")
        self._ended.wait()
        self._finish()
        if self._runtime is not None:
            self._runtime.close(timeout=self._drain)
        if self._store is not None:
            self._store.close()
        if self._alone and self._private is not None:
            self._private.tidy()

    def _finish(self) -> None:
        """Answer what has been asked, and nothing after that."""
        if self._server is not None:
            self._channel.ask("leaving")  # other workers take its connections from now on
            # What waits at the socket of a worker that has ended already would be reset.
            self._server.take_over(self._listeners)
            self._server.stop()
        if self._runtime is not None:
            counted = self._runtime.experiments
            last = {name: counted.reports(name) for name in list(counted.tallies)}
            with suppress(FlourError, TimeoutError):
                self._channel.ask("reports", last).result(1.0)

    def _orphaned(self) -> None:
        """The supervisor has ended: end this process too."""
        self._alone = True
        self._ended.set()

    # --- messages of the supervisor ----------------------------------------------------------

    def _asked(self, kind: str, body: Any) -> object:
        match kind:
            case "snapshot":
                return None if self._peers is None else self._peers.made(body)
            case "state":
                return self._state()
            case "reports" | "claims" if self._runtime is not None:
                return getattr(self._runtime.experiments, kind)(**body)
            case "compared" if self._runtime is not None:
                compare = self._runtime.experiments.compare
                return apart(lambda: compare(body).counts().to_json())  # it may take long
            case "reload" if self._server is not None:
                threading.Thread(target=self._server.reload, daemon=True).start()
            case "index":
                loading = self._mirror.loading
                self._mirror.show(body)
                if loading and not self._mirror.loading:  # after the changes so far
                    self._tasks.put((keep_what_is_here, Future()))
            case "level":
                put_level(body)
            case "stop":
                self._ended.set()
            case _:
                done: Future[Any] = Future()
                self._tasks.put((lambda: self._do(kind, body), done))
                return done
        return None

    def _follow(self) -> None:
        while True:
            task, done = self._tasks.get()
            try:
                task()
                done.set_result(None)
            except Exception as problem:  # noqa: BLE001 (it is the supervisor's answer)
                done.set_exception(problem)

    def _do(self, kind: str, body: Any) -> None:
        if kind == "begin":
            self._begin(body)
            return
        replica = self._replica
        if replica is None:
            raise FlourError("a worker is told something before it began", found=kind)
        match kind:
            case "try":
                replica.attempt(body["name"], body["version"], body["wanted"])
            case "check":
                replica.check(body["name"], body["route"])
            case "change":
                replica.change(body["generation"], body["name"], body["wanted"])
            case "whole":
                self._take(replica, body)
            case "open":
                self._open()
            case "accept" | "accept_no_more":
                self._mind(self._listeners[body], take=kind == "accept")
            case _:
                raise FlourError("a worker is told what it does not know", found=kind)

    def _begin(self, body: dict[str, Any]) -> None:
        """Make the parts and load all models; no request is taken yet."""
        options, number = WorkerOptions.of_json(body["options"]), int(body["worker"])
        of_process(options.settings)
        self._drain = options.settings.drain_seconds
        owner = f"{options.owner}-{number}/"
        store = None if options.store is None else FileStore(options.store, durable=False)
        self._store = store
        if store is not None:
            # Free what killed workers have left, with this number or any.
            for name in store.holdings():
                if name.startswith(owner):
                    store.release(name)
            store.gc()
        if options.private is not None:
            self._private = Private(Path(options.private))
        self._runtime = Runtime(
            *(store, options.executors, options.memory_budget),
            owner=owner,
            trust_code=options.trust_code,
            allow_python=options.allow_python,
        )
        self._replica = ChangeFollower(self._runtime, self._located)
        self._peers = WorkerPeers(self._channel, number, int(body["workers"]))
        self._server = self._assembled(options, self._listeners[body.get("listener", number)])
        self._take(self._replica, body)
        self._runtime.routes.on_route = self._changed_route
        keep_what_is_here()

    def _take(self, replica: ChangeFollower, body: Mapping[str, Any]) -> None:
        """Follow all that the supervisor wants to be here."""
        if level := body.get("level"):  # a supervisor of a former release has none
            put_level(level)
        self._mirror.show(body["index"])
        replica.whole(body["generation"], body["names"])

    def _located(self, path: str) -> Path:
        """The file of a plan on this machine."""
        return Path(path)

    def _assembled(
        self, options: WorkerOptions, listener: socket.socket, more: Mapping[str, Any] | None = None
    ) -> Server:
        """The server of the models, with everything that its settings name, and more parts."""
        assert self._runtime is not None
        parts = {"sockets": [listener], "peers": self._peers, **(more or {})}
        return Server(self._runtime, options.settings, repository=self._mirror, **parts)

    def _changed_route(self, name: str, history: History) -> None:
        """Ask for a change of a route that this worker has worked out; it may be refused."""
        text = as_toml(name, history)
        if self._replica is not None:
            self._replica.expect(name, text)
        self._mirror.put_route(name, text)

    def _open(self) -> None:
        if self._server is not None and not self._ended.is_set():
            self._server.start()

    def _mind(self, listener: socket.socket, *, take: bool) -> None:
        """Accept the connections of another worker, while that one does not."""
        server = self._server
        if server is not None and not self._ended.is_set():
            (server.accept if take else server.accept_no_more)(listener)

    def _seen(self, state: ModelState) -> ModelState:
        return state if self._replica is None else self._replica.seen(state)

    def _state(self) -> dict[str, Any]:
        generation = -1 if self._replica is None else self._replica.generation
        versions = () if self._runtime is None else self._runtime.endpoints.versions().values()
        return {
            "generation": generation,
            "failed": {} if self._replica is None else dict(self._replica.failed),
            "compiling": Compiling.of(versions),
        }


class Private:
    """A directory that is removed with the server, by the last worker if the supervisor was killed.

    Each worker holds a shared lock; one that gets an exclusive lock is the last.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = os.open(directory / WORKERS, os.O_RDWR | os.O_CREAT, 0o600)
        system.lock(self._lock, shared=True)

    def tidy(self) -> None:
        """Remove the directory, if no other process uses it."""
        with suppress(OSError):
            system.lock(self._lock, wait=False)
            rmtree(self._directory, ignore_errors=True)
