"""From a request to a response: guards, the route, its handler, and errors as answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from runtime.http import problems, telemetry
from runtime.http.codec import Front
from runtime.http.compression import pack, unpack
from runtime.http.messages import Answer, Request, Response
from runtime.http.metrics import Metrics
from runtime.http.routes import Route, Router
from runtime.http.seams import Alone, Answering, Direct, Guard, Observer, Peers, Repository
from runtime.http.settings import ServerSettings
from runtime.http.table import ROUTES
from runtime.runtime import Runtime


class Service:
    """All that is known to handlers, and the way of a request."""

    def __init__(  # noqa: PLR0913 (each has a default)
        self,
        runtime: Runtime,
        settings: ServerSettings,
        *,
        repository: Repository | None = None,
        answering: Answering | None = None,
        guards: Sequence[Guard] = (),
        observers: Sequence[Observer] = (),
        routes: Sequence[Route] = (),
        peers: Peers | None = None,
    ) -> None:
        self.runtime, self.settings, self.repository = runtime, settings, repository
        self.answering = answering or Direct(runtime)
        self.guards, self.observers = list(guards), list(observers)
        self.peers: Peers = peers or Alone()
        #: Requests whose answers are awaited now.
        self.waiting = 0
        self.routes = (*ROUTES, *routes)
        self.router = Router(self.routes)
        self.metrics: Metrics | None = None
        telemetry.attach(self)

    # --- requests ----------------------------------------------------------------------------

    def respond(self, request: Request) -> Answer:
        """A response, or what will be one; errors are responses too."""
        try:
            for guard in self.guards:
                refusal = guard(request)
                if refusal is not None:
                    return refusal
            handler, request.params = self.router.find(request.method, request.path)
            headers = request.headers
            if b"content-encoding" in headers:
                unpack(request, self.settings.max_body)
            made = handler(self, request)
        except Exception as error:  # noqa: BLE001 (it is the client's answer)
            return problems.response(error)
        if not isinstance(made, Response):
            return self._later(request, made)
        if b"accept-encoding" in headers and len(made.body) > self.settings.compress_above:
            return pack(request, made)
        return made

    async def _later(self, request: Request, coming: Awaitable[Response]) -> Response:
        self.waiting += 1
        try:
            made = await coming
        except Exception as error:  # noqa: BLE001 (it is the client's answer)
            made = problems.response(error)
        finally:
            self.waiting -= 1
        large = len(made.body) > self.settings.compress_above
        if large and b"accept-encoding" in request.headers:
            return pack(request, made)
        return made

    def observed(self, request: Request, response: Response, seconds: float) -> None:
        """Tell those who count."""
        for observer in self.observers:
            observer(request, response, seconds)

    def ready(self) -> bool:
        """Whether every model that should be there is."""
        known = self.repository.index() if self.repository else ()
        return all(each.state in {"READY", "UNLOADING"} or not each.wanted for each in known)

    async def finish(self) -> None:
        """Wait for what handlers do in threads, and write down what is not written yet."""
        await asyncio.get_running_loop().shutdown_default_executor()
        telemetry.finish(self)

    # --- for handlers ------------------------------------------------------------------------

    def front(self, name: str, version: str | None = None) -> Front:
        """What was worked out for the version that an address means, now or before."""
        served = self.runtime.find(name if version is None else f"{name}@{version}")
        front = served.front
        if isinstance(front, Front):
            return front
        made = Front(served)
        served.front = made
        return made
