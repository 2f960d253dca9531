"""The server: sockets, the event loop, connections, and an orderly end.

with Server(runtime, ServerSettings(port=0)) as server:
    print(server.url)
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import perf_counter
from typing import Any, cast

from flour.core.errors import FlourError
from objectstore import system
from runtime.http.answer.noted import NoteFollower
from runtime.http.routes import REMEMBERED, HttpRoute
from runtime.http.service import Service
from runtime.http.wire import lag, unix_socket
from runtime.http.wire.body_reading import READ_BYTES
from runtime.http.wire.connection import Connection
from runtime.http.wire.headers import Heads, KnownHeads
from runtime.http.wire.http2 import Http2Connection
from runtime.http.wire.interfaces import Connected, Guard, ModelRepository, Observer, Peers
from runtime.http.wire.loop_fairness import ReadTurns
from runtime.http.wire.settings import ServerSettings
from runtime.http.wire.tls import TlsFiles
from runtime.http.wire.tls_transport import TlsTransport
from runtime.runtime import Runtime
from runtime.service.answerers import Answerer

try:
    from uvloop import run
except ImportError:  # there is none for Windows
    from asyncio import run  # type: ignore[assignment]  # called with what both take

#: Time for handshakes that have begun when the server ends.
_HANDSHAKE_SECONDS = 1.0


class ServerError(FlourError):
    """The server cannot listen."""


def listen(settings: ServerSettings) -> socket.socket:
    """A socket that listens at the address of the settings."""
    with listening(settings.host, settings.port):
        if settings.host.startswith(unix_socket.PREFIX):
            path = settings.host.removeprefix(unix_socket.PREFIX)
            return unix_socket.listen_at(path, int(settings.unix_mode, 8), settings.backlog)
        return socket.create_server(
            (settings.host, settings.port),
            family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET,
            backlog=settings.backlog,
            reuse_port=settings.reuse_port,
        )


def url_of(host: str, port: int, *, tls: bool = False) -> str:
    """The address for clients of what listens there."""
    if host.startswith(unix_socket.PREFIX):
        return host
    shown = "127.0.0.1" if host in {"", "0.0.0.0", "::"} else host  # noqa: S104 (shown, not bound)
    shown = f"[{shown}]" if ":" in shown else shown
    return f"{'https' if tls else 'http'}://{shown}:{port}"


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[None]:
    """Explain an error of the system inside as a refusal to listen at this address."""
    try:
        yield
    except OSError as problem:
        where, hint = f"{host}:{port}", "another port, or 0 for any that is free"
        if host.startswith(unix_socket.PREFIX):
            where, hint = host, "a path of at most 107 bytes in a folder that can be written"
        elif problem.errno not in {errno.EADDRINUSE, errno.EACCES}:
            hint = "host is an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them"
        found = problem.strerror or str(problem)
        raise ServerError(
            "the server cannot listen here", where=where, found=found, hint=hint
        ) from problem


class Server:
    """Serves a runtime over HTTP from one thread."""

    def __init__(  # noqa: PLR0913 (each has a default)
        self,
        runtime: Runtime,
        settings: ServerSettings | None = None,
        *,
        repository: ModelRepository | None = None,
        answering: Answerer | None = None,
        guards: Sequence[Guard] = (),
        observers: Sequence[Observer] = (),
        routes: Sequence[HttpRoute] = (),
        sockets: Sequence[socket.socket] = (),
        peers: Peers | None = None,
    ) -> None:
        """Make a server that does not listen yet, with everything that its settings name.

        `answering` takes the runtime's place behind the result cache and batching. `guards` are
        asked after those of the settings, `observers` are told before those of the settings.
        `sockets` are ones that listen already.
        """
        self.settings = settings or ServerSettings()
        self.service = Service(
            runtime,
            self.settings,
            repository=repository,
            answering=answering,
            guards=guards,
            observers=observers,
            routes=routes,
            peers=peers,
        )
        self.loop: asyncio.AbstractEventLoop
        self.draining = False
        self.lag, self.handshakes = self.service.lag, self.service.handshakes
        self.heads, self.known, self.turns = Heads(), KnownHeads(), ReadTurns()
        #: Cache of request targets, split into path and query.
        self.paths: dict[bytes, tuple[str, str]] = {}
        #: What connections read into, one after the other.
        self.memory = memoryview(bytearray(READ_BYTES))
        self._tls = TlsFiles(self.settings) if self.settings.tls_cert else None
        self._sockets, self._started = list(sockets), False
        #: Host and port; those of the first socket that listens.
        self._address = self.settings.host, self.settings.port
        self._own = not sockets
        if sockets:
            self._address = unix_socket.address_of(sockets[0])
        self._number = 0 if peers is None else peers.number
        self._listeners: dict[int, tuple[socket.socket, asyncio.AbstractServer]] = {}
        self._taking = False
        self._coming: set[asyncio.Task[Any]] = set()
        self._shaking: set[TlsTransport] = set()
        self._connections: set[Connected] = set()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stopping: asyncio.Event | None = None

    # --- address -----------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port it listens on, or did last."""
        return int(self._address[1])

    @property
    def url(self) -> str:
        """The address for clients."""
        return url_of(*self._address, tls=self._tls is not None)

    @property
    def connections(self) -> int:
        """The number of connected clients."""
        return len(self._connections)

    def processor_seconds(self) -> float:
        """The processor time that the thread of the event loop has used; 0 before it runs."""
        thread = self._thread
        if thread is None or thread.ident is None or not thread.is_alive():
            return 0.0
        return system.thread_seconds(thread.ident)

    # --- running -----------------------------------------------------------------------------

    def start(self) -> Server:
        """Serve from a thread of its own; it listens when this returns."""
        self._bind()
        self._thread = threading.Thread(target=self._run, name="pretzel-http", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def serve_forever(self) -> None:
        """Serve from this thread, until `stop` or a signal to end."""
        self._bind()
        self._run(signals=threading.current_thread() is threading.main_thread())
        if self._failure is not None:
            raise self._failure

    def stop(self, timeout: float | None = None) -> None:
        """Finish current requests, and end; from any thread.

        For `drain_delay` seconds connections are still accepted, while the server says that it is
        not ready: so that a load balancer sends the next ones elsewhere.
        """
        stopping = self._stopping
        if stopping is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self.loop.call_soon_threadsafe(stopping.set)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _bind(self) -> None:
        if self._started:
            raise ServerError(
                "a server runs once",
                where=self.url,
                hint="make another one: a Server of the same runtime, with the same settings",
            )
        if not self._sockets:
            self._sockets.append(listen(self.settings))
            self._address = self.settings.host, unix_socket.address_of(self._sockets[0])[1]
        self._started = True

    def _run(self, *, signals: bool = False) -> None:
        try:
            with closing(NoteFollower(self.service.runtime, self.settings.answers, self._number)):
                run(self._serve(signals=signals))
        except BaseException as problem:  # noqa: BLE001 (it is raised where the server was started)
            self._failure = problem
        finally:
            if self._own:
                unix_socket.remove_file(self.settings.host)
            self._ready.set()

    async def _serve(self, *, signals: bool) -> None:
        self.loop = loop = asyncio.get_running_loop()
        loop.set_default_executor(self.service.threads)
        self._stopping = asyncio.Event()
        self.heads.renew()
        if signals:
            for number in (signal.SIGINT, signal.SIGTERM):
                system.on_signal(loop, number, self._stopping.set)
        for each in self._sockets:
            await self._accept(each)
        ticking = [loop.create_task(each()) for each in (self._tick, self._look)]
        self._ready.set()
        await self._stopping.wait()
        self.service.leaving = True
        await asyncio.sleep(self.settings.drain_delay)
        for _, accepting in self._listeners.values():
            accepting.close()
        for each in self._sockets:
            self._take_waiting(each)  # closing it would reset them
            each.close()
        self._listeners.clear()
        end = self.loop.time() + self.settings.drain_seconds
        await self._drain(end)
        for task in ticking:
            task.cancel()
        await self.service.finish(max(0.0, end - self.loop.time()))
        loop.set_default_executor(ThreadPoolExecutor(1))  # the loop would wait without an end

    def accept(self, listener: socket.socket) -> None:
        """Accept connections from another listening socket; from other threads."""
        asyncio.run_coroutine_threadsafe(self._accept(listener), self.loop).result(30.0)

    def accept_no_more(self, listener: socket.socket) -> None:
        """Stop accepting connections from a socket; others accept the waiting ones."""
        asyncio.run_coroutine_threadsafe(self._leave_alone(listener), self.loop).result(30.0)

    def take_over(self, sockets: Sequence[socket.socket]) -> None:
        """At the end, accept what waits on these sockets of other processes too, and close them."""
        self._sockets += [each for each in sockets if each not in self._sockets]

    async def _accept(self, listener: socket.socket) -> None:
        number = listener.fileno()
        if number not in self._listeners and not self.draining:
            listener.setblocking(False)
            self._listeners[number] = listener, await self._accepting(listener)

    async def _accepting(self, listener: socket.socket) -> asyncio.AbstractServer:
        loop, unix = self.loop, listener.family == system.UNIX
        return await (loop.create_unix_server if unix else loop.create_server)(
            self._connection, sock=listener.dup(), backlog=self.settings.backlog
        )

    def reload(self) -> None:
        """Read the files of TLS again; from other threads. Connections stay as they are."""
        if self._tls is not None and self._ready.is_set():
            self._tls.renew(forced=True)

    async def _leave_alone(self, listener: socket.socket) -> None:
        _, accepting = self._listeners.pop(listener.fileno(), (None, None))
        if accepting is not None:
            accepting.close()

    def _take_waiting(self, listener: socket.socket) -> None:
        """Accept all connections that wait on a socket."""
        for _ in range(self.settings.backlog + 1):
            try:
                waiting, _ = listener.accept()
            except OSError:  # none is left
                return
            coming = self.loop.connect_accepted_socket(self._connection, waiting)
            task = self.loop.create_task(coming)
            self._coming.add(task)
            task.add_done_callback(self._come)

    def _come(self, task: asyncio.Task[Any]) -> None:
        self._coming.discard(task)
        if not task.cancelled():
            task.exception()  # a connection that has gone already is no error

    def _connection(self) -> asyncio.BufferedProtocol:
        if not self._taking:
            self._taking = True
            self.loop.call_soon(self._take_all)
        if self._tls is None:
            return self._plain()
        seconds, shaking = self.settings.header_seconds, self._shaking
        return TlsTransport(self, self._tls.context, seconds, self._plain, shaking)

    def _plain(self) -> Connection:
        return Connection(self, self.service)

    def _take_all(self) -> None:
        """Accept all connections: the loop accepts one in each round, and the others would wait."""
        self._taking = False
        for listener, _ in self._listeners.values():
            self._take_waiting(listener)

    def path(self, target: bytes) -> tuple[str, str]:
        """The path and the query of a request's target."""
        path, _, query = target.decode("latin-1").partition("?")
        if path[:7].lower() == "http://" or path[:8].lower() == "https://":
            path = f"/{path.split('/', 3)[3]}" if path.count("/") > 2 else "/"  # as to a proxy
        if len(self.paths) >= REMEMBERED:
            self.paths.clear()
        self.paths[target] = path, query
        return path, query

    # --- connections -------------------------------------------------------------------------

    def admit(self, connection: Connected) -> bool:
        """Register a new connection; False if there are too many."""
        room = len(self._connections) < self.settings.max_connections
        self._connections.add(connection)
        return room

    def leave(self, connection: Connected) -> None:
        """Unregister a connection."""
        self._connections.discard(connection)

    def http2(self, connection: Connected, transport: asyncio.BaseTransport, data: bytes) -> None:
        """Go on in HTTP/2 in the place of a connection, of which `data` has been read."""
        made = Http2Connection(self, self.service)
        self.leave(connection)
        self.admit(made)  # there is room, as the other has gone
        cast("asyncio.Transport", transport).set_protocol(made)
        made.begin(transport, data)

    async def _tick(self) -> None:
        """About once a second: the time for answers, and the time limits of clients."""
        while True:
            await asyncio.sleep(1.0)
            self.heads.renew()
            self.turns.wary.clear()
            self.check(perf_counter())
            if self._tls is not None:
                await asyncio.to_thread(self._tls.renew)

    async def _look(self) -> None:
        """Several times a second: how late the loop is."""
        while True:
            due = self.loop.time() + lag.EVERY
            await asyncio.sleep(lag.EVERY)
            self.lag.look(max(0.0, self.loop.time() - due))

    def check(self, now: float) -> None:
        """End what has taken clients too long at the moment `now` of `perf_counter`."""
        for connection in tuple(self._connections):
            connection.check(now)

    async def _drain(self, end: float) -> None:
        self.draining = True
        await asyncio.sleep(0.01)  # connections that were taken just now come to be known
        begun = self.loop.time() + _HANDSHAKE_SECONDS
        while (now := self.loop.time()) < end:
            coming = now < begun and (self._coming or self._shaking)
            if not (coming or self._connections):
                break
            for connection in tuple(self._connections):
                connection.drain()
            await asyncio.sleep(0.01)
        for connection in tuple(self._connections):
            connection.abort()
        await asyncio.sleep(0)
