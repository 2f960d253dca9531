"""A replica: a worker whose supervisor is the controller of a cluster, maybe on another machine.

It has a port and an HTTP front end of its own, which clients ask directly.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir
from typing import Any

import msgspec

from flour.core.errors import FlourError
from runtime.cluster.serving.autoscaling import ReplicaLoad
from runtime.cluster.serving.bodies import HOMES, PATH, Homes, Roster
from runtime.cluster.serving.link import Address, Lease, Link
from runtime.cluster.serving.state import ClusterState
from runtime.http.codec.bodies import json
from runtime.http.routes import HandlerContext, HttpRoute
from runtime.http.server import Server, listen, url_of
from runtime.http.wire.loop_fairness import lock_shared
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import LATE
from runtime.http.wire.settings import ServerSettings
from runtime.repository.object_storage import RemotePlans
from runtime.shutdown import Ending
from runtime.workers.channel import Handler
from runtime.workers.options import WorkerOptions
from runtime.workers.process import Worker


class Observed:
    """Counts answers for the autoscaler; all on the thread of the event loop."""

    def __init__(self) -> None:
        self.requests = self.missed = 0
        self.models: Counter[str] = Counter()
        """Answers by model since the last report."""
        self._looked = time.monotonic(), 0.0

    def __call__(self, request: Request, response: Response, seconds: float) -> None:
        """Count an answer; asking for health or the cluster is no use of it."""
        if request.path.startswith(("/v2/health", "/v2/cluster")):
            return
        self.requests += 1
        if response.status == 200 and (name := request.params.get("model")) is not None:
            self.models[name] += 1
        if response.status == 504 or response is LATE:
            self.missed += 1

    def busy(self, server: Server) -> float:
        """The share of the time since the last call that the event loop's thread computed."""
        now, used = time.monotonic(), server.processor_seconds()
        (before, had), self._looked = self._looked, (now, used)
        return min(1.0, max(0.0, used - had) / max(now - before, 1e-3))


class Replica(Worker):
    """One replica, from joining the cluster to its end."""

    def __init__(
        self, number: int, host: str, find: Callable[[], Address], lease: float, node: str = ""
    ) -> None:
        """Listen on a free port of `host`; nothing is accepted before the models are loaded.

        A process on the same `node` with the same number is started after this one has ended only.
        """
        self.number, self.host, self.node = number, host, node or socket.gethostname()
        #: Tells this process from all others, by its node first.
        self.key = f"{self.node}/{os.getpid()}/{token_hex(4)}"
        self._listener = listen(ServerSettings(host=host, port=0))
        self._find, self._observed = find, Observed()
        self._lease = Lease(lease, self._allowed)
        self._members, self._homes = Roster(0, []), Homes()
        self._link: Link
        self._plans: RemotePlans | None = None
        self._cluster: ClusterState | None = None
        self._is_open = False
        super().__init__(self._linked, [self._listener], Ending())

    def _linked(self, handle: Handler, gone: Callable[[], object]) -> Link:
        said = (self._introduced, self._reported)
        self._link = Link(self._find, self._lease, said, handle, gone)
        return self._link

    def _allowed(self) -> bool:
        return self._cluster is not None and self._cluster.allows(self.number, self.key)

    @property
    def url(self) -> str:
        """The address for clients."""
        return url_of(self.host, self._listener.getsockname()[1])

    def run(self) -> None:
        """Run until the controller says that it should end, then finish all requests."""
        with lock_shared():
            super().run()
        self._link.close()

    @property
    def orphaned(self) -> bool:
        """True if it ended because a controller had given it up."""
        return self._alone

    def _finish(self) -> None:
        super()._finish()
        with suppress(FlourError, TimeoutError):
            self._link.ask("ended").result(1.0)

    # --- what it says ------------------------------------------------------------------------

    def _introduced(self) -> object:
        return {
            "number": self.number,
            "url": self.url,
            "process": os.getpid(),
            "key": self.key,
            "running": self._is_open,
        }

    def _reported(self) -> object:
        server, seen = self._server, self._observed
        if server is None or not self._is_open:
            return {**asdict(ReplicaLoad()), **self._state(), "ready": False}
        busy = seen.busy(server)
        load = ReplicaLoad(server.service.waiting, busy, seen.requests, seen.missed)
        ready = server.service.ready().ready
        models, seen.models = seen.models, Counter()
        return {**asdict(load), **self._state(), "ready": ready, "models": models}

    # --- what it is told ---------------------------------------------------------------------

    def _asked(self, kind: str, body: object) -> object:
        if kind == "members":
            self._members = msgspec.convert(body, Roster)
            return None
        if kind == "homes":
            self._homes = msgspec.convert(body, Homes)
            return None
        return super()._asked(kind, body)

    def _begin(self, body: dict[str, Any]) -> None:
        replica = self._replica
        if replica is None:
            options = body["options"]
            found = WorkerOptions.of_json(options)
            store = found.store or str(Path(gettempdir()) / f"pretzel-store-{found.owner}")
            options = replace(found, store=store).to_json()
            if body["plans"]:
                directory = Path(gettempdir()) / f"pretzel-plans-{options['owner']}"
                self._plans = RemotePlans(body["plans"], directory)
            self._cluster = ClusterState(Path(body["state"]), self._plans)
            super()._begin(body | {"options": options, "listener": 0})
        else:  # another controller, or the connection was broken
            self._mirror.show(body["index"])
            replica.whole(body["generation"], body["names"])

    def _located(self, path: str) -> Path:
        """A plan of the controller, or the copy on this machine of one on object storage."""
        return Path(path) if self._plans is None else self._plans.get(path)

    def _assembled(
        self, options: WorkerOptions, listener: socket.socket, more: Mapping[str, Any] | None = None
    ) -> Server:
        told, homes = "The replicas of the cluster", "Who is asked for a model"
        routes = [
            HttpRoute("GET", PATH, self._told, told, answer=Roster, scoped=True),
            HttpRoute("GET", HOMES, self._told_homes, homes, answer=Homes, scoped=True),
        ]
        more = {"routes": routes, "observers": [self._observed]}
        server = super()._assembled(options, listener, more)
        server.service.guards.insert(0, self._lease)
        return server

    def _told(self, service: HandlerContext, request: Request) -> Answer:
        return json(self._members)

    def _told_homes(self, service: HandlerContext, request: Request) -> Answer:
        return json(self._homes)

    def _open(self) -> None:
        with suppress(TimeoutError):
            self._link.beat()
        if not self._is_open:
            super()._open()
            self._is_open = True
