"""A budget of questions by client: what it may learn of a model in a day.

A model can be copied by asking it much and differently. So bodies that a client has not sent before
are counted by their bytes, and refused beyond a budget; the same question again costs nothing, as
its answer is known. This slows copying down, and does not prevent it: several clients have several
budgets, a client without a token is an address, and each process counts for itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from math import ceil
from time import monotonic

from runtime.http.guard.guards import Sender
from runtime.http.wire.messages import GRPC_METHOD, Request, Response
from runtime.http.wire.problems import refusal

DAY = 86400.0
#: Most clients that are tracked, and most bodies of each; the least recently seen are forgotten.
_CLIENTS, _BODIES = 10_000, 4096


class _Spent:
    """Questions of a client since its day began."""

    __slots__ = ("began", "left", "seen")

    def __init__(self, left: int, began: float) -> None:
        self.left, self.began, self.seen = left, began, OrderedDict[bytes, None]()


class Budget:
    """A guard: refuses new bodies of a client that has sent too many of them in a day."""

    def __init__(
        self, who: Callable[[Request], Sender], most: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self._who, self._most, self._clock = who, most, clock
        self._clients: OrderedDict[Sender, _Spent] = OrderedDict()

    def __call__(self, request: Request) -> Response | None:
        """Refuse a body that is beyond the budget, with the seconds until it begins anew."""
        if request.method not in {"POST", GRPC_METHOD} or not request.body:
            return None
        client, now = self._who(request), self._clock()
        spent = self._clients.pop(client, None)
        if spent is None or now - spent.began >= DAY:
            spent = _Spent(self._most, now)
        self._clients[client] = spent
        if len(self._clients) > _CLIENTS:
            self._clients.popitem(last=False)
        digest = blake2b(request.body, digest_size=8).digest()
        if digest in spent.seen:
            spent.seen.move_to_end(digest)
            return None
        if spent.left < len(request.body):
            wait = ceil(spent.began + DAY - now)
            message = "this client's budget of new questions is used up for today"
            return refusal(message, 429, (("Retry-After", str(max(1, wait))),))
        spent.left -= len(request.body)
        spent.seen[digest] = None
        if len(spent.seen) > _BODIES:
            spent.seen.popitem(last=False)
        return None
