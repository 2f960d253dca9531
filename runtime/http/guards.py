"""Who may come in, how often, and how many at once: what looks at a request before anything else.

    guards = [Tokens(path), Rates(anonymous=5.0, known=500.0), ...]

A client is known by its bearer token; one without is known by its address. Tokens are compared in
constant time and never kept, logged or told. Health routes are open to everybody, as those who ask
them have no tokens.
"""

from __future__ import annotations

import hmac
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from flour.core.errors import ParameterError
from runtime.http.messages import Request, Response
from runtime.http.problems import refusal

#: Routes that load balancers and orchestrators ask.
OPEN = frozenset({"/v2/health/live", "/v2/health/ready"})
#: A file of tokens is looked at again after so many seconds.
_AGAIN = 1.0
_LARGEST = 1 << 20
_LEAST = 16


class Client(NamedTuple):
    """Who asks: a name out of the file of tokens, or an address."""

    name: str
    known: bool


class Tokens:
    """The clients that have tokens: a file with a line `name token` each, read anew when changed.

    Without a file nobody is known. With `required`, those who are not known stay outside.
    """

    def __init__(self, path: str | Path | None = None, *, required: bool = True) -> None:
        self._path = Path(path) if path is not None else None
        self._required = required and path is not None
        self._digests: tuple[tuple[str, bytes], ...] = ()
        self._stamp: tuple[int, int, int] | None = None
        self._looked = 0.0
        if self._path is not None:
            self._digests, self._stamp = _read(self._path)
            self._looked = monotonic()

    def __call__(self, request: Request) -> Response | None:
        """Refuse who is not known; a wrong token is refused also where none is needed."""
        if request.path.rstrip("/") in OPEN:
            return None
        header = request.headers.get(b"authorization")
        if header is None:
            return _UNKNOWN if self._required else None
        return None if self.client(request).known else _WRONG

    def client(self, request: Request) -> Client:
        """Who asks."""
        header = request.headers.get(b"authorization")
        if header is not None and self._path is not None:
            self._look_again()
            scheme, _, token = header.strip().partition(b" ")
            found = self._name(token.strip()) if scheme.lower() == b"bearer" else None
            if found is not None:
                return Client(found, known=True)
        return Client(request.peer, known=False)

    def _name(self, token: bytes) -> str | None:
        """The client with this token; every token is looked at, so that time tells nothing."""
        digest, found = sha256(token).digest(), None
        for name, known in self._digests:
            if hmac.compare_digest(known, digest):
                found = name
        return found

    def _look_again(self) -> None:
        now = monotonic()
        if self._path is None or now - self._looked < _AGAIN:
            return
        self._looked = now
        try:
            if _stamp(self._path) != self._stamp:
                self._digests, self._stamp = _read(self._path)
        except (OSError, ParameterError):
            return  # it is being written, or was damaged: those who were known still are


@dataclass(slots=True)
class _Bucket:
    left: float
    since: float


class Rates:
    """How often clients may ask: so many requests a second on average, `burst` seconds' at once.

    Those with tokens have a rate of their own; 0 is no limit.
    """

    def __init__(
        self,
        who: Callable[[Request], Client],
        *,
        anonymous: float = 0.0,
        known: float = 0.0,
        burst: float = 1.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._who, self._clock = who, clock
        self._rates = {False: anonymous, True: known}
        self._burst = burst
        self._buckets: OrderedDict[Client, _Bucket] = OrderedDict()

    def __call__(self, request: Request) -> Response | None:
        """Refuse who asks too often, with the time after which to come again."""
        if request.path.rstrip("/") in OPEN:
            return None
        client = self._who(request)
        rate = self._rates[client.known]
        if rate <= 0:
            return None
        now, most = self._clock(), max(1.0, rate * self._burst)
        bucket = self._buckets.pop(client, None) or _Bucket(most, now)
        bucket.left = min(most, bucket.left + (now - bucket.since) * rate)
        bucket.since = now
        self._buckets[client] = bucket  # the one used last is the last to go
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        if bucket.left >= 1.0:
            bucket.left -= 1.0
            return None
        wait = ceil((1.0 - bucket.left) / rate)
        return refusal("too many requests", 429, (("Retry-After", str(max(1, wait))),))


#: So many clients are remembered; the one that was seen least recently starts anew.
_CLIENTS = 10_000


class Crowd:
    """How many requests may be on their way at once, over all connections."""

    def __init__(self, most: int, waiting: Callable[[], int]) -> None:
        self._most, self._waiting = most, waiting

    def __call__(self, request: Request) -> Response | None:
        """Refuse what would be one too many; what is answered at once never waits."""
        if self._waiting() < self._most or request.path.rstrip("/") in OPEN:
            return None
        return refusal("too many requests are on their way", 503, (("Retry-After", "1"),))


_CHALLENGE = (("WWW-Authenticate", "Bearer"),)
_UNKNOWN = refusal("this needs a token", 401, _CHALLENGE)
_WRONG = refusal("this token is not known", 401, _CHALLENGE)


def _stamp(path: Path) -> tuple[int, int, int]:
    found = os.stat(path)  # noqa: PTH116 (one system call, as often as clients ask)
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[tuple[tuple[str, bytes], ...], tuple[int, int, int]]:
    """The digests of the tokens, and what the file looked like."""
    try:
        stamp = _stamp(path)
        if stamp[1] > _LARGEST:
            raise ParameterError(
                "this is no file of tokens", where=str(path), found=f"{stamp[1]} bytes"
            )
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise ParameterError(
            "the tokens cannot be read",
            where=str(path),
            found=type(problem).__name__,
            hint="a text file with a line `name token` for each client",
        ) from problem
    made: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        where = f"{path}:{number}"
        if len(parts) != 2:
            raise ParameterError("a line is `name token`", where=where, found=f"{len(parts)} words")
        if len(parts[1]) < _LEAST:
            raise ParameterError(
                f"a token has {_LEAST} characters at least", where=where, found=str(len(parts[1]))
            )
        if parts[0] in made:
            raise ParameterError("this client has a token already", where=where, found=parts[0])
        made[parts[0]] = sha256(parts[1].encode()).digest()
    return tuple(made.items()), stamp
