"""Guards: authentication, rate limits and limits of concurrent requests, checked first.

    guards = [Tokens(path), Rates(anonymous=5.0, known=500.0), AtOnce(anonymous=2, known=3), ...]

A client is identified by its bearer token, else by a name in its certificate, else by its address.
Tokens are compared in constant time and never stored, logged or sent. Health routes need no token,
as load balancers have none.
"""

from __future__ import annotations

import hmac
import os
import re
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b, sha256
from math import ceil, inf
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from flour.core.errors import ParameterError
from runtime.http.wire.interfaces import Need
from runtime.http.wire.messages import GRPC_METHOD, Request, Response
from runtime.http.wire.problems import log, refusal

_SOON = (("Retry-After", "1"),)
#: Routes that load balancers and orchestrators ask.
OPEN = frozenset(
    (
        *("/v2/health/live", "/v2/health/ready", "/ping"),
        *("/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"),
        *(f"/inference.GRPCInferenceService/Server{each}" for each in ("Live", "Ready")),
    )
)
#: Seconds between two checks whether the file of tokens has changed.
_CHECK_SECONDS = 1.0
_LARGEST = 1 << 20
_LEAST = 16


class Sender(NamedTuple):
    """The sender of a request: a name from the file of tokens, or an address."""

    name: str
    known: bool


#: What a client may do, unless its line in the file says less; and one without a token.
ALL = frozenset({"predict", "read", "change"})
_USUAL, _NONE = ALL - {"change"}, frozenset[str]()


class _TokenLine(NamedTuple):
    """A line of the file of tokens."""

    name: str
    digest: bytes
    """SHA-256 of the token; empty if the client has a certificate instead."""
    certificate: str
    rights: frozenset[str]
    models: tuple[str, ...]
    """Patterns of names; none means all models."""


class TokenFile:
    """The clients with tokens: a file with a line `name token` each, read again when it changes.

    Where it cannot be read again, the former tokens stay valid, and a warning is logged.

    In place of a token, `sha256:DIGEST` is one that the file does not tell, and `cert:NAME` a name
    in the certificate of a client. Several lines of a client are several tokens, of which the old
    ones can go when all its parts have the new one.

    With `required`, requests without a valid token are refused. A third word limits what a client
    may do: `predict`, `read`, `change`, or several of them with commas in between; a fourth one
    the models that it may ask, by patterns such as `fraud*,churn`. Where `need_of` says what a
    request needs, clients without a token may predict and read.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        required: bool = True,
        need_of: Callable[[Request], Need] | None = None,
    ) -> None:
        self._path, self._required, self._need_of = Path(path), required, need_of
        self._lines, self._stamp = _read(self._path)
        self._looked, self._problem = monotonic(), ""

    def __call__(self, request: Request) -> Response | None:
        """Refuse requests without a valid token; a wrong token also where none is required."""
        if request.path.rstrip("/") in OPEN:
            return None
        client = self.client(request)
        if not client.known and b"authorization" in request.headers:
            return _WRONG
        if not client.known and self._required:
            return _UNKNOWN
        if self._need_of is None or self._allows(client, self._need_of(request)):
            return None
        return _NO_RIGHT

    def _allows(self, client: Sender, need: Need) -> bool:
        if (need.right or "read") not in self.rights(client):
            return False
        if need.model is None:
            return need.scoped or not self._models(client)
        return self.may_ask(client, need.model)

    def may_ask(self, client: Sender, model: str) -> bool:
        """True if a model is in the scope of a client."""
        patterns, name = self._models(client), model.partition("@")[0]
        return not patterns or any(fnmatchcase(name, each) for each in patterns)

    def _models(self, client: Sender) -> tuple[str, ...]:
        line = self._line(client) if client.known else None
        return () if line is None else line.models

    def rights(self, client: Sender) -> frozenset[str]:
        """Rights of a client."""
        if not client.known:
            return _USUAL
        line = self._line(client)
        return _NONE if line is None else line.rights

    def _line(self, client: Sender) -> _TokenLine | None:
        return next((each for each in self._lines if each.name == client.name), None)

    def client(self, request: Request) -> Sender:
        """The sender of a request."""
        header, name = request.headers.get(b"authorization"), None
        if header is not None or request.certified:
            self._reread_if_changed()
        if header is not None:
            scheme, _, token = header.strip().partition(b" ")
            name = self._name(token.strip()) if scheme.lower() == b"bearer" else None
        elif request.certified:
            by_name = {each.certificate: each.name for each in self._lines if each.certificate}
            name = next((by_name[each] for each in request.certified if each in by_name), None)
        return Sender(request.peer, known=False) if name is None else Sender(name, known=True)

    def _name(self, token: bytes) -> str | None:
        """The client with this token; all tokens are compared, so that timing reveals nothing."""
        digest, match = sha256(token).digest(), None
        for line in self._lines:
            if hmac.compare_digest(line.digest, digest):
                match = line.name
        return match

    def _reread_if_changed(self) -> None:
        now = monotonic()
        if now - self._looked < _CHECK_SECONDS:
            return
        self._looked = now
        try:
            if _stamp(self._path) != self._stamp:
                self._lines, self._stamp = _read(self._path)
            self._problem = ""
        except (OSError, ParameterError) as problem:  # it is being written, or is damaged
            if str(problem) != self._problem:
                self._problem = str(problem)
                log.warning("the former tokens stay valid, as the file has changed: %s", problem)


@dataclass(slots=True)
class _Bucket:
    left: float
    since: float


class Rates:
    """Rate limits: requests per second on average, and those of `burst` seconds at once.

    Clients with tokens have a rate of their own; 0 means no limit.
    """

    def __init__(
        self,
        who: Callable[[Request], Sender],
        *,
        anonymous: float = 0.0,
        known: float = 0.0,
        burst: float = 1.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._who, self._clock = who, clock
        self._rates = {False: anonymous, True: known}
        self._burst = burst
        self._buckets: OrderedDict[Sender, _Bucket] = OrderedDict()

    def __call__(self, request: Request) -> Response | None:
        """Refuse a client above its rate, with the seconds after which to try again."""
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
        self._buckets[client] = bucket  # least recently used first
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        if bucket.left >= 1.0:
            bucket.left -= 1.0
            return None
        wait = ceil((1.0 - bucket.left) / rate)
        return refusal("too many requests", 429, (("Retry-After", str(max(1, wait))),))


class AtOnce:
    """Limits of the requests of one client that are on their way; 0 means no limit.

    What is answered as soon as it was read is never on its way.
    """

    def __init__(
        self, who: Callable[[Request], Sender], *, anonymous: int = 0, known: int = 0
    ) -> None:
        self._who, self._most = who, {False: anonymous, True: known}
        self._counts: dict[Sender, int] = {}

    def __call__(self, request: Request) -> Response | None:
        """Refuse a client that has as many requests on their way as it may."""
        client = self._who(request)
        most = self._most[client.known]
        if not most or self._counts.get(client, 0) < most or request.path.rstrip("/") in OPEN:
            return None
        return refusal(f"more than {most} requests at once", 429, _SOON)

    def enter(self, request: Request) -> Callable[[object], None]:
        """Count a request from now on; what is returned ends that."""
        client = self._who(request)
        self._counts[client] = self._counts.get(client, 0) + 1

        def leave(_: object) -> None:
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]

        return leave


#: Most clients that are tracked; beyond it the least recently seen one is forgotten.
_CLIENTS = 10_000


DAY = 86400.0
#: Most bodies of a client that are remembered; the least recently seen are forgotten.
_BODIES = 4096


class _Spent:
    """Questions of a client since its day began."""

    __slots__ = ("began", "left", "seen")

    def __init__(self, left: int, began: float) -> None:
        self.left, self.began, self.seen = left, began, OrderedDict[bytes, None]()


class Budget:
    """A budget of questions by client: what it may learn of a model in a day.

    A model can be copied by asking it much and differently. So bodies that a client has not sent
    before are counted by their bytes, and refused beyond a budget; the same question again costs
    nothing, as its answer is known. This slows copying down, and does not prevent it: several
    clients have several budgets, a client without a token is an address, and each process counts
    for itself.
    """

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


class Crowd:
    """A limit of concurrent requests over all connections."""

    def __init__(self, most: int, waiting: Callable[[], int]) -> None:
        self._most, self._waiting = most, waiting

    def __call__(self, request: Request) -> Response | None:
        """Refuse a request beyond the limit; requests answered at once do not count."""
        if self._waiting() < self._most or request.path.rstrip("/") in OPEN:
            return None
        return refusal("too many requests are on their way", 503, _SOON)


def most_unread(deadline: bytes | None, usual: float) -> float:
    """The seconds for which a request may lie unread before its answer would come too late.

    With a deadline in its header that is half of the deadline: the other half is for the answer.
    `usual` is for all others; 0 there means no limit for any.
    """
    limit = usual or inf
    if deadline is not None and usual:
        with suppress(ValueError):
            given = float(deadline)  # what is over anyway, or wrong, is for the codec to say
            limit = given / 2e3 if given > 0 else limit
    return limit


_CHALLENGE = (("WWW-Authenticate", "Bearer"),)
_UNKNOWN = refusal("this needs a token", 401, _CHALLENGE)
_WRONG = refusal("this token is not known", 401, _CHALLENGE)
_NO_RIGHT = refusal("this token does not allow that", 403)


def _stamp(path: Path) -> tuple[int, int, int]:
    status = os.stat(path)  # noqa: PTH116 (one system call, as often as clients ask)
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> tuple[tuple[_TokenLine, ...], tuple[int, int, int]]:
    """The digests of the tokens, and the stamp of the file."""
    try:
        stamp = _stamp(path)
        if stamp[1] > _LARGEST or not path.is_file():  # a pipe would be waited for
            found = f"{stamp[1]} bytes" if path.is_file() else "not a regular file"
            raise ParameterError("this is not a file of tokens", where=str(path), found=found)
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise ParameterError(
            "the tokens cannot be read",
            where=str(path),
            found=type(problem).__name__,
            hint="a text file with a line `name token` for each client",
        ) from problem
    known = _clients(path, lines)
    if not known:
        raise ParameterError(
            "a file of tokens has a client",
            where=str(path),
            found="no line `name token`",
            hint="without `tokens`, everybody may ask",
        )
    return tuple(known), stamp


def _clients(path: Path, lines: list[str]) -> list[_TokenLine]:
    """The lines of clients."""
    known: dict[int, _TokenLine] = {}
    for number, text in enumerate(lines, 1):
        parts = text.split()
        if not parts or parts[0].startswith("#"):
            continue
        where = f"{path}:{number}"
        if not 2 <= len(parts) <= 4:
            what, found = "a line is `name token rights models`", f"{len(parts)} words"
            hint = (
                "a name and a token; who has all rights needs no more, as do those for all models"
            )
            raise ParameterError(what, where=where, found=found, hint=hint)
        line = _line_of(parts, where)
        for above, each in known.items():
            same = each.name == line.name
            if same and (each.rights, each.models) != (line.rights, line.models):
                what = f"this client has other rights or models in line {above}"
                hint = "write the same in all lines of a client, or remove one of them"
                raise ParameterError(what, where=where, found=line.name, hint=hint)
            if (each.digest, each.certificate) == (line.digest, line.certificate):
                what = f"line {above} has this token, for {'this' if same else 'another'} client"
                hint = "remove one of the two lines, or make another token for it"
                raise ParameterError(what, where=where, found=line.name, hint=hint)
        known[number] = line
    return [*known.values()]


def _line_of(parts: list[str], where: str) -> _TokenLine:
    """The client of a line's words."""
    name, secret, *more = parts
    kind, _, value = secret.partition(":")
    digest, certificate = sha256(secret.encode()).digest(), ""
    if kind == "sha256":
        if re.fullmatch("[0-9a-fA-F]{64}", value) is None:
            what, found = "a digest has 64 hexadecimal digits", f"{len(value)} characters"
            raise ParameterError(what, where=where, found=found, hint="sha256sum of the token")
        digest = bytes.fromhex(value)
    elif kind == "cert" and value:
        digest, certificate = b"", value
    elif len(secret) < _LEAST:
        what, found = f"a token has {_LEAST} characters or more", f"{len(secret)} characters"
        raise ParameterError(what, where=where, found=found)
    rights = frozenset(more[0].split(",")) if more else ALL
    if not rights <= ALL:
        what, hint = "there is no such right", "predict,read,change"
        found = more[0] if len(more[0]) < _LEAST else f"{len(more[0])} characters"  # or a token
        raise ParameterError(what, where=where, found=found, hint=hint)
    models = tuple(more[1].split(",")) if more[1:] else ()
    if "" in models:
        what, hint = "models are patterns of names", "fraud*,churn"
        raise ParameterError(what, where=where, found=more[1], hint=hint)
    return _TokenLine(name, digest, certificate, rights, models)
