"""A worker's view of the folder and of the other workers, by way of the supervisor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from typing import Any

from flour.core.errors import FlourError
from runtime.errors import ChannelClosed
from runtime.http.wire.interfaces import ModelState
from runtime.http.wire.problems import HttpError
from runtime.workers.channel import End, RemoteError

#: HTTP status for errors from the supervisor.
_STATUS = {"UnknownModel": 404, "UnknownEndpoint": 404, "NotLoaded": 400, "NotInStep": 504}
_STATUS |= {"Overtaken": 409, "BadCall": 400, "BadRegistration": 400}
_STATUS |= {"EditedFile": 409, "NotWritten": 507}
_MARGIN = 0.5
#: Longer than any change may take: an import has 10 minutes, and following it another.
_CHANGE_SECONDS = 900.0


class IndexMirror:
    """The folder's index as sent by the supervisor, which also loads and unloads models."""

    def __init__(self, channel: End, seen: Callable[[ModelState], ModelState]) -> None:
        """`seen` returns the state of a version in this worker."""
        self._channel, self._seen = channel, seen
        self._states: tuple[ModelState, ...] = ()

    def show(self, index: list[Any]) -> None:
        """Store the index from the supervisor."""
        self._states = tuple(ModelState(*parts) for parts in index)

    @property
    def loading(self) -> bool:
        """True until the supervisor has loaded its folder once."""
        return any(not each.name for each in self._states)

    def index(self) -> Sequence[ModelState]:
        """All versions, as they are in this worker."""
        return tuple(map(self._seen, self._states))

    def load(self, name: str) -> None:
        """Load or reload a model in every worker."""
        self._ask("load", name)

    def unload(self, name: str) -> None:
        """Take a model out of every worker."""
        self._ask("unload", name)

    def put_route(self, name: str, text: str) -> None:
        """Have a changed route written down, and sent to every worker."""
        self._ask("route", {"name": name, "text": text})

    def _ask(self, kind: str, body: object) -> None:
        with told_to_clients():
            self._channel.ask(kind, body).result(_CHANGE_SECONDS)


@contextmanager
def told_to_clients() -> Iterator[None]:
    """Errors of the supervisor, as clients are told them."""
    try:
        yield
    except ChannelClosed:
        raise HttpError("the server is shutting down", 503) from None
    except (TimeoutError, futures.TimeoutError, asyncio.TimeoutError):  # three in Python 3.10
        raise HttpError("the process above this one does not answer", 503) from None
    except RemoteError as problem:
        status = _STATUS.get(problem.kind, 500)
        if status == 500:
            raise
        where, found, hint = problem.where, problem.found, problem.hint
        raise HttpError(problem.what, status, where=where, found=found, hint=hint) from problem


class WorkerPeers:
    """The other workers, reached through the supervisor."""

    def __init__(self, channel: End, number: int, count: int) -> None:
        self.number, self.count = number, count
        self._channel = channel
        self._providers: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()

    def offer(self, kind: str, provider: Callable[[], object]) -> None:
        """Register a provider of snapshots of this kind for the other workers."""
        with self._lock:
            self._providers[kind] = provider

    def made(self, kind: str) -> object:
        """A snapshot of this process."""
        with self._lock:
            provider = self._providers.get(kind)
        if provider is None:
            raise FlourError("there is no provider of this snapshot", found=kind)
        return provider()

    async def snapshot(self, kind: str, timeout: float = 0.2) -> dict[int, Any]:
        """The snapshots of the other workers by number; late or ended workers are left out."""
        asked = self._channel.ask("snapshot", {"kind": kind, "seconds": timeout})
        try:
            answers = await asyncio.wait_for(asyncio.wrap_future(asked), timeout + _MARGIN)
        except (TimeoutError, asyncio.TimeoutError, FlourError):
            return {}
        return {int(number): data for number, data in answers.items()}

    async def judge(self, what: str, body: Mapping[str, Any]) -> Any:
        """Ask the supervisor, which judges the rollouts of all workers."""
        return await self._asked("judge", {"what": what, "body": dict(body)})

    async def settled(self) -> None:
        """Return when all workers have followed the changes so far."""
        await self._asked("settle")

    async def put_level(self, level: str) -> None:
        """Have all workers log at this level, and those that come later."""
        await self._asked("level", {"level": level})

    async def _asked(self, kind: str, body: object = None) -> Any:
        with told_to_clients():
            asked = self._channel.ask(kind, body)
            return await asyncio.wait_for(asyncio.wrap_future(asked), _CHANGE_SECONDS)
