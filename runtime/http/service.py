"""From a request to a response: guards, the route, its handler, and errors as answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic

from runtime.http import problems, telemetry
from runtime.http.codec import ModelCodec
from runtime.http.compression import SOON, pack, unpack
from runtime.http.interfaces import Alone, Answering, Direct, Guard, Observer, Peers, Repository
from runtime.http.messages import Answer, Request, Response
from runtime.http.routes import Handler, HandlerContext, Route, Router
from runtime.http.settings import ServerSettings
from runtime.http.table import ROUTES
from runtime.service.runtime import Runtime

#: That every model was there counts for so many seconds.
_READY_SECONDS = 0.5
#: Answers of more bytes, that were not there at once, are packed on a thread.
_LARGE = 128 << 10


class Service(HandlerContext):
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
        self.waiting = 0
        self.threads = ThreadPoolExecutor(thread_name_prefix="pretzel-http-work")
        self._ready_until = 0.0
        self._small = settings.compress_above
        self.routes = (*ROUTES, *routes)
        self.router = Router(self.routes)
        self.metrics = None
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
            if not request.plain and b"content-encoding" in request.headers:
                if len(request.body) > SOON:
                    return self._later(request, self._unpacked(request, handler))
                unpack(request, self.settings.max_body)
            made = handler(self, request)
        except Exception as error:  # noqa: BLE001 (it is the client's answer)
            return problems.response(error)
        if not isinstance(made, Response):
            return self._later(request, made)
        return made if len(made.body) <= self._small else self._packed(request, made)

    async def _unpacked(self, request: Request, handler: Handler) -> Response:
        """What a request is answered whose body takes a while to unpack."""
        await asyncio.to_thread(unpack, request, self.settings.max_body)
        telemetry.resume(self, request)
        made = handler(self, request)
        return made if isinstance(made, Response) else await made

    async def _later(self, request: Request, coming: Awaitable[Response]) -> Response:
        self.waiting += 1
        try:
            made = await coming
        except Exception as error:  # noqa: BLE001 (it is the client's answer)
            made = problems.response(error)
        finally:
            self.waiting -= 1
        if len(made.body) <= self._small:
            return made
        if len(made.body) > _LARGE:  # packing takes a millisecond for some 100 KiB
            return await asyncio.to_thread(self._packed, request, made)
        return self._packed(request, made)

    def _packed(self, request: Request, made: Response) -> Response:
        """A large answer, packed where the client takes that."""
        return pack(request, made) if b"accept-encoding" in request.headers else made

    def observed(self, request: Request, response: Response, seconds: float) -> None:
        """Tell those who count."""
        for observer in self.observers:
            observer(request, response, seconds)

    def ready(self) -> bool:
        """Whether every model that should be there is; that they were counts for a moment."""
        now = monotonic()
        if self.repository is None or now < self._ready_until:
            return True
        known = self.repository.index()
        there = all(each.state in {"READY", "UNLOADING"} or not each.wanted for each in known)
        if there:  # asked by many, often, and of thousands of models
            self._ready_until = now + _READY_SECONDS
        return there

    async def finish(self, seconds: float) -> None:
        """Wait so long for what handlers do in threads; write down what is not written yet."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            self.threads.shutdown()
            with suppress(RuntimeError):  # nobody waits any more
                loop.call_soon_threadsafe(over.set)

        threading.Thread(target=end, name="pretzel-http-end", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), seconds)
        telemetry.finish(self)

    # --- for handlers ------------------------------------------------------------------------

    def front(self, name: str, version: str | None = None) -> ModelCodec:
        """What was worked out for the version that an address means, now or before."""
        served = self.runtime.find(name if version is None else f"{name}@{version}")
        front = served.front
        if isinstance(front, ModelCodec):
            return front
        made = ModelCodec(served)
        served.front = made
        return made
