"""A client of a cluster: asks replicas directly, and another one where a connection breaks.

    with ClusterClient("http://127.0.0.1:8000") as client:
        client.predict("churn", {"age": 41, "city": "Oslo"})

It learns from any replica, or from the front, which replicas there are. Only requests that may be
answered twice are asked again: GET, and predictions.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

from objectstore import Closing
from runtime.client.rows import Outputs, Rows
from runtime.cluster.serving.blocks import Combine, Sharding, predict_block, predict_members
from runtime.cluster.serving.bodies import HOMES, PATH, Homes, MemberState, ReplicaAnswer, Roster
from runtime.errors import ClusterError

#: Requests that may be sent twice, as they change nothing.
REPEATABLE = re.compile(r"/predict/[^/]+$|/v[12]/models/.+(/infer|:predict)$")
#: Statuses of replicas that end, have lost the cluster, or are overloaded.
_ELSEWHERE = frozenset({502, 503})
_NOWHERE = frozenset[str]()
T = TypeVar("T")
_MEMBERS, _HOMES = msgspec.json.Decoder(Roster), msgspec.json.Decoder(Homes)
#: The model that a request is for.
_MODEL = re.compile(r"/(?:predict|v[12]/models)/([^/:@]+)")
#: Another replica is asked when it has so many fewer requests of this client than a model's home:
#: it may have to load the model, which takes as long as many answers.
SPILL = 16


class Target:
    """One replica, or the front: its free connections, and how it is doing."""

    def __init__(self, url: str, timeout: float, tls: Callable[[], ssl.SSLContext | None]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            what = "an address of a cluster is http://host:port or https://host:port"
            raise ClusterError(what, found=repr(url)[:80])
        self.url, self._timeout = url, timeout
        self._tls = tls if parts.scheme == "https" else None
        self._address = parts.hostname, parts.port or (443 if self._tls else 80)
        self._free: list[HTTPConnection] = []
        self._ended = False
        self.outstanding = 0
        self.down_until = 0.0

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> ReplicaAnswer:
        """One attempt; OSError or HTTPException where the connection breaks."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._connection()
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            data = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._free.append(connection)
            if self._ended:  # meanwhile, by another thread
                self.close()
        return ReplicaAnswer(response.status, dict(response.getheaders()), data, self.url)

    def _connection(self) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(*self._address, timeout=self._timeout)
        return HTTPSConnection(*self._address, timeout=self._timeout, context=self._tls())

    def close(self) -> None:
        """Close the free connections."""
        while self._free:
            self._free.pop().close()

    def end(self) -> None:
        """Close all connections; those in use, when they are free."""
        self._ended = True
        self.close()


class ClusterClient(Closing):
    """Safe to use from several threads."""

    def __init__(
        self,
        *seeds: str,
        attempts: int = 6,
        timeout: float = 30.0,
        refresh: float = 1.0,
        headers: Mapping[str, str] | None = None,
        look: Callable[[], Roster] | None = None,
        homes: Callable[[], Homes] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`seeds` are addresses of the front, or of replicas. A request is tried `attempts` times.

        Replicas are looked up again after `refresh` seconds, and when one cannot be reached.
        `headers` go with every request, such as a token. `look` is another way to look them up,
        and `homes` which of them have a model in memory. `tls` says whom to trust at addresses with
        https; without it, the authorities of this machine.
        """
        if not (seeds or look) or attempts < 1:
            raise ClusterError("a client needs an address of the cluster, and an attempt")
        self._attempts, self._timeout, self._refresh = attempts, timeout, refresh
        self._headers, self._members, self._look_homes = dict(headers or {}), look, homes
        self._homes: dict[str, frozenset[str]] = {}
        self._placed = -1, -1  # the numbers of the homes, and of the members that have these
        #: Used by new connections.
        self.tls = tls
        self._seeds = [Target(seed.rstrip("/"), timeout, lambda: self.tls) for seed in seeds]
        self._targets: dict[str, Target] = {}
        self._looked, self._turn = float("-inf"), 0
        self._lock, self._looking = threading.Lock(), threading.Lock()
        #: Requests that were sent again, to another replica.
        self.repeated, self._closed = 0, False

    # --- asking ------------------------------------------------------------------------------

    def predict(self, name: str, row: object) -> Any:
        """The answer to a row, or to a few, as plain JSON."""
        if not isinstance(name, str):
            raise ClusterError("a model has a name", found=repr(name)[:80])
        body = json.dumps(row).encode()
        return self.request("POST", f"/predict/{quote(name, safe='@')}", body).value()

    def predict_block(self, name: str, rows: Rows, *, shard: Sharding | None = None) -> Outputs:
        """The answers to many rows, an array or columns by name, scored by all replicas at once.

        `shard` says of each row what it goes by: rows of equal values are asked together.
        """
        return predict_block(self.request, len(self.replicas()), name, rows, shard)

    def predict_members(
        self, names: Sequence[str], rows: Rows, *, combine: Combine | None = None
    ) -> Outputs:
        """The answers of an ensemble whose members are models, asked of several replicas at once.

        `combine` makes its answers of those of the members; without it they are the means.
        """
        return predict_members(self.request, len(self.replicas()), names, rows, combine)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        spread: bool = False,
    ) -> ReplicaAnswer:
        """The answer of a replica; ClusterError where none can be reached.

        With `spread` it is one of several parts, of which a home gets no second before all others.
        """
        if self._closed:
            raise ClusterError("this client is closed", where=path[:200])
        repeatable = method in {"GET", "HEAD"} or REPEATABLE.search(path) is not None
        tried: set[str] = set()
        last: ReplicaAnswer | None = None
        problem: Exception | None = None
        for attempt in range(self._attempts):
            weight = 1 + SPILL * spread
            target = self._chosen(path, tried, weight)
            try:
                last = target.ask(method, path, body, {**self._headers, **(headers or {})})
            except (OSError, HTTPException) as broken:
                problem = broken
                self._down(target)
                if not repeatable and not isinstance(broken, ConnectionRefusedError):
                    break
            else:
                if last.status not in _ELSEWHERE or not repeatable:
                    return last
            finally:
                with self._lock:
                    target.outstanding -= weight
            tried.add(target.url)
            if attempt + 1 < self._attempts:
                self.repeated += 1
                self._look(again=True)
        if last is not None:
            return last
        raise ClusterError(
            "no replica answers",
            where=f"{method} {path}"[:200],
            found=f"{type(problem).__name__}: {problem}"[:200],
            hint="only predictions and GET are asked again"
            if not repeatable
            else "is the cluster running? `pretzel cluster status`",
        ) from problem

    # --- who to ask --------------------------------------------------------------------------

    def replicas(self) -> list[str]:
        """The addresses of the replicas that are ready."""
        self._look()
        return list(self._targets)

    def alone(self, url: str, timeout: float) -> ClusterClient:
        """A client of one replica, which asks nobody else and once only."""
        only = Roster(0, [MemberState(0, url, "ready")])
        headers, tls = self._headers, self.tls
        return ClusterClient(
            attempts=1, timeout=timeout, headers=headers, look=lambda: only, tls=tls
        )

    def members(self) -> Roster:
        """The cluster's current state, as a replica or the front tells it."""
        return self._members() if self._members is not None else self._told(PATH, _MEMBERS)

    def _told(self, path: str, decoder: msgspec.json.Decoder[T]) -> T:
        """Ask members in turn; one that does not answer is asked last from now on."""
        known = [*self._targets.values(), *self._seeds]
        for target in sorted(known, key=lambda each: each.down_until):
            try:
                answer = target.ask("GET", path, None, self._headers)
                if answer.status == 200:
                    return decoder.decode(answer.body)
            except (OSError, HTTPException, msgspec.MsgspecError):
                self._down(target)
        where = known[0].url if known else path
        raise ClusterError("the cluster cannot be reached", where=where)

    def homes_of(self, name: str) -> list[str]:
        """The addresses of the replicas that are asked first for a model."""
        self._look()
        return sorted(self._homes.get(name, self._targets))

    def _chosen(self, path: str, tried: set[str], weight: int) -> Target:
        """The least busy replica that was not tried, homes first; the front if none is left.

        It has this weight of requests more from now on.
        """
        self._look()
        now = time.monotonic()
        model = _MODEL.match(path) if self._homes else None
        home = self._homes.get(unquote(model[1]), _NOWHERE) if model else _NOWHERE
        with self._lock:
            self._turn += 1
            every = [each for each in self._targets.values() if each.url not in tried]
            up = [each for each in every if each.down_until <= now] or every
            if up:
                turn = self._turn % len(up)
                found = min(
                    up[turn:] + up[:turn],
                    key=lambda each: each.outstanding - SPILL * (each.url in home),
                )
            elif self._seeds:
                seeds = [each for each in self._seeds if each.url not in tried] or self._seeds
                found = seeds[self._turn % len(seeds)]
            else:
                raise ClusterError("there is no replica now", where=path[:200])
            found.outstanding += weight
            return found

    def _look(self, *, again: bool = False) -> None:
        """Look up the replicas, if that was long ago, one has failed, or none was ready."""
        least = self._refresh if self._targets and not again else min(0.05, self._refresh)
        # Where none is known, threads wait for the one that looks.
        with nullcontext() if self._targets else self._looking:
            self._look_up(least)

    def _look_up(self, least: float) -> None:
        now = time.monotonic()
        with self._lock:
            if now - self._looked < least:
                return
            self._looked = now
        try:
            found = self.members()
        except ClusterError:
            return
        with self._lock:
            kept = {each.url: self._targets.pop(each.url, None) for each in found.ready()}
            gone, self._targets = (
                self._targets,
                {
                    url: each or Target(url, self._timeout, lambda: self.tls)
                    for url, each in kept.items()
                },
            )
            urls = {each.number: each.url for each in found.ready()}
        for target in gone.values():
            target.end()
        self._find_homes(found, urls)

    def _find_homes(self, members: Roster, urls: Mapping[int, str]) -> None:
        """Have the homes of models as the members say, if these or those have changed."""
        if self._placed == (members.homes, members.number):
            return
        found = Homes()
        if members.homes:
            try:
                found = self._look_homes() if self._look_homes else self._told(HOMES, _HOMES)
            except ClusterError:
                return  # the next look tries again; any replica can answer meanwhile
        self._homes = {
            name: frozenset(urls[number] for number in numbers if number in urls)
            for name, numbers in found.models.items()
        }
        self._placed = members.homes, members.number

    def _down(self, target: Target) -> None:
        """Ask others for a moment."""
        target.close()
        target.down_until = time.monotonic() + self._refresh

    # --- its end -----------------------------------------------------------------------------

    def close(self) -> None:
        """Close all connections; nothing is asked any more."""
        self._closed = True
        for target in (*self._targets.values(), *self._seeds):
            target.end()
