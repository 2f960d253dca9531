"""Interfaces of the parts that join the front end.

repository   models as a folder: what the repository routes ask                 Repository
guards       look at every request first, and may answer it: tokens, limits    Guard
listener     the server, as its connections know it                           Listener
observers    see every request with its answer: counters, logs                 Observer
peers        the other processes that serve the same port                      Peers
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from flour.data.batch import Batch
from runtime.http.wire.headers import Heads, KnownHeads
from runtime.http.wire.lag import Lag
from runtime.http.wire.loop_fairness import ReadTurns
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.settings import ServerSettings
from runtime.http.wire.tls import HandshakeFailures
from runtime.rollout import judged
from runtime.runtime import Runtime
from runtime.service.version import ModelVersion


@dataclass(frozen=True, slots=True)
class ModelState:
    """One line of the repository's index."""

    name: str
    """Empty for the folder itself, which is LOADING until all of it was tried once."""
    version: str = ""
    state: str = "READY"
    """READY, UNAVAILABLE, LOADING or UNLOADING."""
    reason: str = ""
    wanted: bool = True
    """True if it should be in service: not, where it was unloaded on purpose."""
    refused: bool = False
    """True if its files cannot be served, whichever process tries it."""
    again: bool = False
    """True if this may pass, as with a full disk, so that it is tried again."""

    @property
    def address(self) -> str:
        """Name and version, as in requests."""
        return f"{self.name}@{self.version}" if self.version else self.name


class ModelRepository(Protocol):
    """Models by name that can be loaded and unloaded. Calls come from threads, several at once.

    `load` and `unload` raise errors of flour.core.errors for what the client can mend,
    UnknownEndpoint for names that are not there; the model in service stays when a load fails.
    """

    def index(self) -> Sequence[ModelState]:
        """Every model that is known, loaded or not."""

    def load(self, name: str) -> object:
        """Load or reload a model; it is in service when this returns."""

    def unload(self, name: str) -> object:
        """Take a model out of service."""


class Attributing(Protocol):
    """Answers requests that ask what each column added to a score."""

    async def of(self, version: ModelVersion, batch: Batch, wanted: str) -> dict[str, Any]:
        """Contributions of columns to the scores of a batch; `wanted` names the output, or none."""
        ...

    async def change(
        self, version: ModelVersion, batch: Batch, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The smallest change of a row that changes its answer."""
        ...


class Guard(Protocol):
    """Looks at a request before anything is done for it."""

    def __call__(self, request: Request) -> Response | None:
        """An answer that ends the request here, or None to let it in."""


class Need(NamedTuple):
    """The right and the scope that a request needs its client to have."""

    right: str
    model: str | None
    """The model that it is about; None for none, or all."""
    scoped: bool
    """True if clients are welcome who may ask some models only."""


class Observer(Protocol):
    """Sees a request with its answer, after that was handed to the system."""

    def __call__(self, request: Request, response: Response, seconds: float) -> None:
        """Note it; this runs on the event loop's thread."""


class App(Protocol):
    """Answers requests with a response or an awaitable of one. It raises nothing."""

    settings: ServerSettings
    observers: list[Observer]
    #: True if all answers have the id of their request, as a log has it.
    names: bool
    #: True when the server ends: connections are closed after their answers.
    leaving: bool

    def respond(self, request: Request) -> Answer:
        """Answer a request."""

    def is_late(self, waited: float, deadline: bytes | None) -> bool:
        """True if a request will be refused, as it was unread for so long."""


class Connected(Protocol):
    """A connection, as the server knows it."""

    def check(self, now: float) -> None:
        """End what takes too long at this moment of `perf_counter`."""

    def drain(self) -> None:
        """Close when nothing is on its way, as the server ends."""

    def abort(self) -> None:
        """Close at once."""


class Listener(Protocol):
    """A server, as a connection knows it."""

    loop: asyncio.AbstractEventLoop
    lag: Lag
    handshakes: HandshakeFailures
    heads: Heads
    turns: ReadTurns
    paths: dict[bytes, tuple[str, str]]
    known: KnownHeads
    memory: memoryview

    def path(self, target: bytes) -> tuple[str, str]:
        """Split a request target into path and query."""

    def admit(self, connection: Connected) -> bool:
        """Register a new connection; False if there are too many."""

    def leave(self, connection: Connected) -> None:
        """Unregister a connection."""

    def http2(self, connection: Connected, transport: asyncio.BaseTransport, data: bytes) -> None:
        """Go on in HTTP/2 in the place of a connection, of which `data` has been read.

        That is for clients that begin with the preface, or agree on "h2" by ALPN (no data).
        """


class Peers(Protocol):
    """The other worker processes of this port; from any thread."""

    number: int
    """Number of this process among them, from 0."""
    count: int
    """The wanted number, this one included."""

    def offer(self, kind: str, provider: Callable[[], object]) -> None:
        """Answer others who ask for a snapshot of this kind; what `provider` returns is JSON.

        It is called on a thread of its own, and should take milliseconds at most.
        """

    async def snapshot(self, kind: str, timeout: float = 0.2) -> dict[int, Any]:
        """Answers of the others by their number; those that take longer, or end, are left out."""

    async def settled(self) -> None:
        """Return when all have followed the changes of models and routes so far."""

    async def put_level(self, level: str) -> None:
        """Have all log at this level, and those that come later."""

    async def judge(self, what: str, body: Mapping[str, Any]) -> Any:
        """Ask the one process that judges rollouts for all; see `runtime.rollout.judged`."""


class Alone:
    """The peers of a process that has none."""

    number, count = 0, 1

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def offer(self, kind: str, provider: Callable[[], object]) -> None:
        """Do nothing."""

    async def snapshot(self, kind: str, timeout: float = 0.2) -> dict[int, Any]:
        """Do nothing."""
        return {}

    async def settled(self) -> None:
        """Return: there is nobody who could be behind."""

    async def put_level(self, level: str) -> None:
        """Do nothing."""

    async def judge(self, what: str, body: Mapping[str, Any]) -> Any:
        """Judge here: on a thread, as changes are written to a file first."""
        if what == "report":
            return judged(self._runtime.experiments, what, body)
        return await asyncio.to_thread(judged, self._runtime.experiments, what, body)
