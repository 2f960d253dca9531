"""Large bodies take turns: as many at once as there are processors.

All at once, each takes as long as all together, and where that is longer than clients wait, every
answer comes too late. In turns some come in time. A request that cannot be answered before its
deadline, by what others of its path and size have taken, is refused at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from math import inf
from time import perf_counter

from runtime.http.codec.response_options import timeout
from runtime.http.wire.messages import GRPC_METHOD, Request
from scheduler import DeadlineExceeded, Overloaded, cores

#: How much of a new measurement goes into what a byte of a path takes.
_NEWEST = 0.25
#: Paths beyond so many are not remembered.
_MOST_PATHS = 4096


class ClientTurns:
    """Clients at work and clients waiting, for one event loop."""

    def __init__(self, at_once: int | None = None, least: int = 512 << 10) -> None:
        """`least` is how many bytes a large body has more than."""
        self.least, self._at_once = least, at_once or cores()
        self._free = self._at_once
        #: Those who wait, the nearest deadline first.
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        #: Seconds that a byte takes, by path; and what is taken together by those who wait.
        self._rates: dict[str, float] = {}
        self._ahead = 0.0

    @asynccontextmanager
    async def taken(self, request: Request) -> AsyncIterator[None]:
        """A turn for this request; raises Overloaded where its answer would come too late."""
        size, limit = len(request.body), timeout({}, request)
        path = request.path
        if request.method == GRPC_METHOD and request.front is not None:  # one path for all models
            path = f"{path} {request.front.version.owner}"
        deadline = inf if limit is None else request.started + limit
        cost = self._rates.get(path, 0.0) * size
        if self._free == self._at_once:
            cost = 0.0  # where nothing else is to be done it is tried: the figure may be outdated
        _check(deadline, cost + self._ahead / self._at_once)
        await self._turn(deadline, cost)
        start = perf_counter()
        try:
            _check(deadline, cost)
            yield
            self._learn(path, (perf_counter() - start) / size)
        finally:
            self._pass_on()

    async def _turn(self, deadline: float, cost: float) -> None:
        """Wait until it is this one's turn."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (deadline, next(self._numbers), turn))
        self._ahead += cost
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise
        finally:
            self._ahead -= cost

    def _pass_on(self) -> None:
        while self._waiting:
            turn = heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _learn(self, path: str, took: float) -> None:
        known = self._rates.get(path)
        if known is not None or len(self._rates) < _MOST_PATHS:
            self._rates[path] = took if known is None else known + _NEWEST * (took - known)


def _check(deadline: float, seconds: float) -> None:
    left = deadline - perf_counter()
    if left <= 0:
        raise DeadlineExceeded("the deadline passed while the request was read or waited")
    if left < seconds:
        raise Overloaded(
            "the answer would come after the deadline",
            found=f"{left:.3g} s left, and it would take some {seconds:.3g} s",
            hint="send fewer rows in a request, allow more time, or ask another server",
            retry_after=seconds,
        )
