"""From a request to a response: guards, the route, its handler, and errors as answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from functools import partial
from math import inf
from time import monotonic

from flour.core.errors import FlourError
from flour.core.request_ids import CURRENT
from runtime.errors import UnknownEndpoint
from runtime.http.answer.attributions import Attributions
from runtime.http.answer.batching import Batched, BatchSettings
from runtime.http.answer.result_cache import Cached
from runtime.http.codec.array_pieces import OUTLINE
from runtime.http.codec.bodies import Ready
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.codec.number_arrays import NUMBERS
from runtime.http.codec.number_texts import TEXTS
from runtime.http.grpc.calls import CALLS
from runtime.http.guard.clients import sender
from runtime.http.guard.guards import AtOnce, Budget, Crowd, Rates, TokenFile, most_unread
from runtime.http.guard.turns import ClientTurns
from runtime.http.routes import Handler, HandlerContext, HttpRoute, Router
from runtime.http.table import ROUTES
from runtime.http.watch import telemetry
from runtime.http.wire import problems
from runtime.http.wire.compression import SOON, pack, unpack
from runtime.http.wire.interfaces import Alone, Guard, ModelRepository, Observer, Peers
from runtime.http.wire.lag import Lag
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.settings import ServerSettings
from runtime.http.wire.tls import HandshakeFailures
from runtime.runtime import Runtime
from runtime.service.answerers import Answerer
from runtime.service.endpoint import SETTLE_SECONDS
from runtime.service.private_answers import shown
from runtime.service.version import ModelVersion

#: Seconds for which a positive answer about readiness is reused.
_READY_SECONDS = 0.5
#: Awaited answers of more bytes are compressed on a thread.
_LARGE = 128 << 10
#: Functions of native code that read bodies and write them.
READERS = (NUMBERS, OUTLINE, TEXTS)
#: States of versions that answer.
_ANSWERING = frozenset({"READY", "UNLOADING"})
_LOADING = "LOADING"
_TO_BEGIN = "watches and kept answers are to begin"


class Service(HandlerContext):
    """State that handlers use, and the path of a request: guards, route, handler."""

    def __init__(  # noqa: PLR0913 (each has a default)
        self,
        runtime: Runtime,
        settings: ServerSettings,
        *,
        repository: ModelRepository | None = None,
        answering: Answerer | None = None,
        guards: Sequence[Guard] = (),
        observers: Sequence[Observer] = (),
        routes: Sequence[HttpRoute] = (),
        peers: Peers | None = None,
    ) -> None:
        self.runtime, self.settings, self.repository = runtime, settings, repository
        self.answering = _layers(answering or runtime.direct, runtime, settings)
        self.table, self.stacks = runtime.endpoints.routes, None
        self.observers = list(observers)
        self.peers: Peers = peers or Alone(runtime)
        self.waiting = 0
        self.lag, self.handshakes = Lag(), HandshakeFailures()
        self._turns = ClientTurns()
        #: Threads for long tasks of handlers, so that the event loop does not wait.
        self.threads = ThreadPoolExecutor(thread_name_prefix="pretzel-http-work")
        #: True if the server is about to end.
        self.leaving = False
        self._ready_until, self._was_ready = 0.0, Ready(ready=True)
        #: True if all models were there once, or were refused; and if all of their code was.
        self._loaded, self._compiled, self._patient_until = repository is None, False, inf
        self._small = settings.compress_above
        self.routes = (*ROUTES, *CALLS, *routes)
        self.router = Router(self.routes)
        self.guards = [*_guards(self), *guards]
        counting = (each.enter for each in self.guards if isinstance(each, AtOnce))
        self.enter = next(counting, None)
        self.metrics = None
        self.names = bool(settings.access_log or settings.audit_log)
        self.attribution = Attributions(settings.explain_rate, settings.explain_rows)
        telemetry.attach(self)
        for reader in READERS:
            reader.prepare()

    # --- requests ----------------------------------------------------------------------------

    def respond(self, request: Request) -> Answer:
        """A response, or an awaitable of one; errors are responses too."""
        try:
            if request.waited:
                self.lag.read(request.waited)
                if request.late:
                    return problems.LATE
            for guard in self.guards:
                refusal = guard(request)
                if refusal is not None:
                    return refusal
            handler, request.params = self.router.find(request.method, request.path)
            if not request.plain and b"content-encoding" in request.headers:
                if len(request.body) > SOON:
                    return self._awaited(request, self._decompressed(request, handler))
                unpack(request, self.settings.max_body)
            named = request.named is not None
            answer = self._named(request, handler) if named else handler(self, request)
        except Exception as error:  # noqa: BLE001 (it is the client's answer)
            return self._failed(request, error)
        if not isinstance(answer, Response):
            return self._awaited(request, answer)
        return answer if len(answer.body) <= self._small else self._compressed(request, answer)

    def is_late(self, waited: float, deadline: bytes | None) -> bool:
        """True if a request was unread for so long that it is refused."""
        return waited > most_unread(deadline, self.settings.max_unread)

    async def _decompressed(self, request: Request, handler: Handler) -> Response:
        """Answer a request whose body takes long to decompress."""
        await asyncio.to_thread(unpack, request, self.settings.max_body)
        telemetry.resume(self, request)
        answer = handler(self, request)
        return answer if isinstance(answer, Response) else await answer

    def _awaited(self, request: Request, coming: Awaitable[Response]) -> Awaitable[Response]:
        if self.enter is not None:  # now: another request may be read before this one goes on
            request.ended = self.enter(request)
        return self._later(request, coming)

    async def _later(self, request: Request, coming: Awaitable[Response]) -> Response:
        self.waiting += 1
        if request.named is not None:  # this context is that of the request alone
            CURRENT.set(request.id)
        try:
            response = await self._in_turn(request, coming)
        except Exception as error:  # noqa: BLE001 (it is the client's answer)
            response = self._failed(request, error)
        finally:
            self.waiting -= 1
        if len(response.body) <= self._small:
            return response
        if len(response.body) > _LARGE:  # compression takes a millisecond per 100 KiB
            return await asyncio.to_thread(self._compressed, request, response)
        return self._compressed(request, response)

    def _named(self, request: Request, handler: Handler) -> Answer:
        """The answer of a handler, whose logs and calls have the id that the client gave."""
        former = CURRENT.set(request.id)
        try:
            return handler(self, request)
        finally:
            CURRENT.reset(former)

    def _failed(self, request: Request, error: Exception) -> Response:
        """The answer for an error, which is logged with the id of the request."""
        former = CURRENT.set(request.id)
        try:
            if isinstance(error, UnknownEndpoint):
                error = self._coming(request) or error
            return problems.response(self._shown(request, error))
        finally:
            CURRENT.reset(former)

    def _coming(self, request: Request) -> Exception | None:
        """The error for a model that is not there yet; None if it is not to come."""
        name, _, version = _address(request).partition("@")
        index = () if self.repository is None else self.repository.index()
        about = [each for each in index if each.name == name and version in {"", each.version}]
        about = about or [each for each in index if not each.name]  # the folder
        if any(each.state == _LOADING for each in about):
            what = f"{'this model' if about[0].name else 'the folder of models'} is being loaded"
            return problems.HttpError(what, 503, headers={"Retry-After": "1"})
        if not about or not all(each.refused and each.wanted for each in about):
            return None
        hint = "POST /v2/repository/index has the reason"
        if any(each.again for each in about):
            what, headers = "this model cannot be loaded at the moment", {"Retry-After": "2"}
            return problems.HttpError(what, 503, where=name, hint=hint, headers=headers)
        return problems.HttpError(
            "this model is in the folder and was refused", 404, where=name, hint=hint
        )

    def _shown(self, request: Request, error: Exception) -> Exception:
        """The error without values, where the request's model, or what follows it, is private."""
        address = _address(request)
        versions = [] if request.front is None else [request.front.version]
        with suppress(FlourError):  # there is no such model, or no longer
            versions.append(self.runtime.endpoints.find(address))
        for version in versions:
            error = shown(error, version)
        return error

    async def _in_turn(self, request: Request, coming: Awaitable[Response]) -> Response:
        front = request.front
        if len(request.body) <= self._turns.least or front is None or front.version.waits:
            return await coming
        with closing(coming) if isinstance(coming, Coroutine) else nullcontext():
            async with self._turns.taken(request):
                return await coming

    def _compressed(self, request: Request, response: Response) -> Response:
        """A large answer, compressed if the client accepts that."""
        return pack(request, response) if b"accept-encoding" in request.headers else response

    def ready(self) -> Ready:
        """True if the wanted models are loaded and compiled; a positive answer is reused a moment.

        A model whose files are refused is named, as is one whose route cannot be followed, and
        keeps the server from being ready only if the settings say so, or if no other one answers.
        One that is being loaded does so until the folder was loaded once; notes have
        SETTLE_SECONDS from then on.
        """
        now = monotonic()
        if self.leaving or self.runtime.endpoints.closed:
            return Ready(ready=False)
        if now < self._ready_until:
            return self._was_ready
        index = () if self.repository is None else self.repository.index()
        wanted = [each for each in index if each.wanted and each.name]
        missing = [each for each in wanted if each.state not in _ANSWERING]
        mute = self.runtime.routes.muted
        answering = {each.name for each in wanted if each.state in _ANSWERING} - mute.keys()
        bearable = not self.settings.ready_needs_all and bool(answering)
        whole = not missing and not mute
        coming = [each for each in index if each.state == _LOADING]
        if not (coming or self._loaded):  # the first request is to be watched and kept, too
            self._patient_until = min(self._patient_until, now + SETTLE_SECONDS)
            settled = self.runtime.endpoints.settle(0.0)
            self._loaded = settled or now >= self._patient_until
            if self._loaded and not settled:
                problems.log.warning("watches and kept answers have not begun: ready without them")
        progress = (each.reason for each in coming if not each.name)
        usual = f"{len(coming)} models are to come" if coming else _TO_BEGIN
        loading = "" if self._loaded else next(progress, usual)
        if self._loaded and self.repository is not None and self.settings.ready_needs_all:
            loading = "" if index else "the folder has no model"
        later = [each for each in missing if not each.refused and each.state != _LOADING]
        there = not loading and self._loaded and (whole or (bearable and not later))
        named = [*(each.address for each in missing), *mute]
        compiling, settled = self._compiling()
        if not settled:
            left = max((each.seconds_left for each in compiling), default=0.0)
            owners = sorted(each.owner for each in compiling)
            return Ready(False, named, owners, round(left, 2), loading)
        state = Ready(there, named, loading=loading)
        if there:  # asked often, with thousands of models
            self._ready_until, self._was_ready = now + _READY_SECONDS, state
        return state

    def _compiling(self) -> tuple[list[ModelVersion], bool]:
        """Versions whose code is being compiled, and whether the server may be ready meanwhile.

        It stays ready once all code was there: what is registered later answers by definitions
        meanwhile, which is no reason to send the requests of all other models elsewhere.
        """
        versions = () if self._compiled else self.runtime.endpoints.versions().values()
        compiling = [each for each in versions if not each.ready]
        if not compiling and versions and all(each.is_settled for each in READERS):
            self._compiled = self._loaded  # of what is to come it may be compiled then
        return compiling, self._compiled or not versions

    async def finish(self, seconds: float) -> None:
        """Wait up to `seconds` for the threads of handlers, then flush logs and traces."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            self.threads.shutdown()
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(over.set)

        threading.Thread(target=end, name="pretzel-http-end", daemon=True).start()
        with suppress(TimeoutError, asyncio.TimeoutError):  # two in Python 3.10
            await asyncio.wait_for(over.wait(), seconds)
        telemetry.finish(self)

    # --- for handlers ------------------------------------------------------------------------

    def front(self, name: str, version: str | None = None) -> ModelCodec:
        """The codec of the version that an address means, made at its first use."""
        address = name if version is None else f"{name}@{version}"
        served = self.table.get(address) or self.runtime.endpoints.find(address)
        front = served.front
        if isinstance(front, ModelCodec):
            return front
        codec = ModelCodec(served)
        served.front = codec
        return codec


def _address(request: Request) -> str:
    """The model that a request is about, with its version if it names one; empty for none."""
    address = request.params.get("model", "")
    return f"{address}@{request.params['version']}" if "version" in request.params else address


def _layers(inner: Answerer, runtime: Runtime, settings: ServerSettings) -> Answerer:
    """The result cache, then batching, then `inner`; notes of a version switch them on as well."""
    together = BatchSettings(settings.batch_wait, settings.batch_objective, settings.batch_rows)
    batched = Batched(inner, together, cost=runtime.direct.expected)
    return Cached(batched, settings.cache_bytes, names=lambda: {*runtime.endpoints.champions})


def _guards(service: Service) -> list[Guard]:
    """The guards of the settings; one that would accept every request is left out."""
    settings, router, who = service.settings, service.router, partial(sender, service)
    active: list[Guard] = []
    if settings.tokens:
        active.append(
            TokenFile(
                settings.tokens,
                required=settings.tokens_required,
                need_of=lambda request: router.need(request.method, request.path),
            )
        )
    if settings.anonymous_rate > 0 or settings.known_rate > 0:
        anonymous, known = settings.anonymous_rate, settings.known_rate
        active.append(Rates(who, anonymous=anonymous, known=known, burst=settings.rate_burst))
    if settings.anonymous_at_once > 0 or settings.known_at_once > 0:
        most = {"anonymous": settings.anonymous_at_once, "known": settings.known_at_once}
        active.append(AtOnce(who, **most))
    if settings.new_bytes_a_day > 0:
        active.append(Budget(who, settings.new_bytes_a_day))
    if settings.max_waiting > 0:
        active.append(Crowd(settings.max_waiting, lambda: service.waiting))
    return active
