"""How many calls of a fetch are under way at a time, altogether or for each client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable


class Limits:
    """The limits of a fetch: one for all calls, or one for each client that has calls under way."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._limits: dict[Hashable, Limit] = {}

    def at(self, client: Hashable) -> Limit:
        """The limit of a client, to be entered at once."""
        for key in [key for key, one in self._limits.items() if one.idle and key != client][:2]:
            del self._limits[key]
        return self._limits.setdefault(client, Limit(self._limit))


class Limit:
    """Lets so many in at a time, in the order in which they came; 0 for all."""

    __slots__ = ("_free", "_limit", "_waiting")

    def __init__(self, limit: int) -> None:
        self._limit, self._free = limit, limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def idle(self) -> bool:
        """Whether all are out again."""
        return self._free == self._limit and not self._waiting

    async def __aenter__(self) -> None:
        if not self._limit:
            return
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        if self._limit:
            self._leave()

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
