"""Calls of gRPC as routes: a message is read, the handler of HTTP asked, its answer a message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import msgspec

from runtime.errors import UnknownEndpoint
from runtime.http.answer import health, models, plain_json
from runtime.http.answer.experiments import by_route
from runtime.http.answer.inference import infer_by
from runtime.http.codec.array_pieces import LARGE
from runtime.http.codec.number_arrays import LEAST_BYTES
from runtime.http.grpc import message_codec, schemas
from runtime.http.grpc.message_codec import REQUEST, InferMessage, field
from runtime.http.routes import Handler, HandlerContext, HttpRoute
from runtime.http.watch import telemetry
from runtime.http.wire.messages import GRPC, GRPC_METHOD, Answer, MessageSeries, Request, Response
from runtime.http.wire.problems import HttpError

_ready = False
#: Seconds between two looks at whether a watched server is ready.
_WATCH_SECONDS = 0.5
_UNKNOWN, _SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = range(4)


def _load() -> None:
    """Import protobuf and make the classes of messages, which takes some 50 ms."""
    global _ready  # noqa: PLW0603 (a library is loaded once)
    schemas.pool()  # says what to install where there is none
    import google.protobuf.json_format  # noqa: F401

    _ready = True


# --- answers as messages -------------------------------------------------------------------------


def _call(name: str, handler: Handler, right: str, service: str = schemas.INFERENCE) -> HttpRoute:
    """A call as a route; protobuf is imported for the first one."""

    def answer(context: HandlerContext, request: Request) -> Answer:
        return handler(context, request) if _ready else _first(context, request)

    async def _first(context: HandlerContext, request: Request) -> Response:
        await asyncio.to_thread(_load)
        telemetry.resume(context, request)
        made = handler(context, request)
        return made if isinstance(made, Response) else await made

    path = f"/{service}/{name}"
    # Which model is asked is in the message: the scope of the client is checked once it is read.
    return HttpRoute(GRPC_METHOD, path, answer, name, hidden=True, right=right, scoped=True)


def _as_http(name: str, handler: Handler, within: str = "", **fields: str) -> HttpRoute:
    """The call that asks a handler of HTTP: its answer, or `within` a field, has the same fields.

    `fields` are those of the message with the variables of the handler's path.
    """

    def form(response: Response) -> Response:
        from google.protobuf.json_format import ParseDict

        told = msgspec.json.decode(response.body)
        made = schemas.message_class(f"inference.{name}Response")()
        ParseDict({within: told} if within else told, made, ignore_unknown_fields=True)
        return Response(made.SerializeToString(), 200, GRPC, response.headers)

    def answer(service: HandlerContext, request: Request) -> Answer:
        message = schemas.parsed(f"inference.{name}Request", request.body)
        told = {variable: getattr(message, field) for variable, field in fields.items()}
        request.params = {variable: text for variable, text in told.items() if text}
        request.body = b'{"ready":true}' if getattr(message, "ready", False) else b""
        if "model" in request.params:
            models.check_scope(service, request, request.params["model"])
        elif handler not in _OF_ALL:
            raise HttpError("the name of a model is missing", where=fields["model"])
        if handler in _CHANGES and message.parameters:
            models.check_parameters(message.parameters)
        made = handler(service, request)
        return form(made) if isinstance(made, Response) else _formed(made, form)

    return _call(name, answer, "change" if handler in _CHANGES else "read")


#: Handlers that need no model, and those that change what is served.
_OF_ALL = health.live, health.ready, health.metadata, models.index, models.statistics
_CHANGES = models.load, models.unload


def _model_ready(service: HandlerContext, request: Request) -> Answer:
    """True if a model answers: clients of gRPC get no error for one that is not there."""
    try:
        return models.ready(service, request)
    except UnknownEndpoint:
        return Response(b"{}")


# --- inference -----------------------------------------------------------------------------------


def _by_codec(service: HandlerContext, request: Request) -> Answer:
    params, message = request.params, request.message
    front = service.front(params["model"], params.get("version"))
    return infer_by(service, message_codec.codec_of(front, message), request)


def _rows(service: HandlerContext, request: Request) -> object:
    front = service.front(request.params["model"])
    return message_codec.codec_of(front, request.message).decode(request)[0].batch.data


#: The tag of the field `model_name`, with which messages begin.
_NAME = 10
_beginnings = message_codec.Beginnings()
_answered = by_route(_by_codec, _rows)
_plain = by_route(plain_json.predict, plain_json.rows)


def _infer(service: HandlerContext, request: Request) -> Answer:
    """Answer a message with rows; large ones are parsed on a thread."""
    body = request.body
    known = _beginnings.find(body) if type(body) is bytes else None
    if known is not None:
        request.message, request.params = known, known.params
        models.check_scope(service, request, known.params["model"])
        return _answered(service, request)
    if len(body) > LARGE:
        # Writers put the name first; where one does not, the call waits for no turn.
        name = bytes(body[2 : 2 + body[1]]).decode(errors="replace") if body[0] == _NAME else ""
        request.front = service.front(name) if name in service.table else None
        return _aside(service, request)
    return _parsed(service, request, schemas.parsed(REQUEST, body))


async def _aside(service: HandlerContext, request: Request) -> Response:
    message = await asyncio.to_thread(schemas.parsed, REQUEST, request.body)
    telemetry.resume(service, request)
    answer = _parsed(service, request, message)
    return answer if isinstance(answer, Response) else await answer


def _parsed(service: HandlerContext, request: Request, message: InferMessage) -> Answer:
    request.message = message
    if not message.model_name:
        raise HttpError("the name of a model is missing", where="model_name")
    params = {"model": message.model_name}
    if message.model_version:
        params["version"] = message.model_version
    request.params = params
    models.check_scope(service, request, message.model_name)
    if type(request.body) is bytes and len(request.body) < LEAST_BYTES:
        _beginnings.remember(request.body, message, params)
    body = message_codec.plain_body(message)
    if body is None:
        return _answered(service, request)
    request.body, form = body, partial(message_codec.plain_answer, message.model_name)
    made = _plain(service, request)
    return form(made) if isinstance(made, Response) else _formed(made, form)


async def _formed(coming: Awaitable[Response], form: Callable[[Response], Response]) -> Response:
    return form(await coming)


def _stream_infer(service: HandlerContext, request: Request) -> Answer:
    """As `_infer`, in the message of a stream."""
    made = _infer(service, request)
    return _within(made) if isinstance(made, Response) else _formed(made, _within)


def _within(response: Response) -> Response:
    return Response(field(2, response.body), 200, GRPC, response.headers)


# --- health --------------------------------------------------------------------------------------


def _status(service: HandlerContext, request: Request) -> int:
    """How the server is, as the service of health says it; models have their own call."""
    message = schemas.parsed("grpc.health.v1.HealthCheckRequest", request.body)
    if message.service not in {"", schemas.INFERENCE}:
        return _SERVICE_UNKNOWN
    return _SERVING if service.ready().ready else _NOT_SERVING


def _state(status: int) -> bytes:
    return bytes((8, status))


def _check(service: HandlerContext, request: Request) -> Answer:
    """How the server is."""
    status = _status(service, request)
    if status == _SERVICE_UNKNOWN:
        hint = f"services are {schemas.INFERENCE} and, for the server, ''"
        raise HttpError("there is no such service", 404, hint=hint)
    return Response(_state(status), content_type=GRPC)


def _watch(service: HandlerContext, request: Request) -> Answer:
    """How the server is, and again each time that this changes."""
    status = _status(service, request)
    return MessageSeries(_state(status), partial(_changes, service, request, status))


async def _changes(service: HandlerContext, request: Request, status: int) -> AsyncIterator[bytes]:
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        before, status = status, _status(service, request)
        if status != before:
            yield _state(status)


# --- reflection ----------------------------------------------------------------------------------


def _reflected(package: str, service: HandlerContext, request: Request) -> Answer:
    """The services of the server, for tools that ask for them."""
    asked = schemas.parsed(f"{package}.ServerReflectionRequest", request.body)
    told = schemas.message_class(f"{package}.ServerReflectionResponse")(
        valid_host=asked.host, original_request=asked
    )
    what, known = asked.WhichOneof("choice"), schemas.pool()
    try:
        if what == "list_services":
            for name in (schemas.INFERENCE, schemas.HEALTH, *schemas.REFLECTION):
                told.list_services_response.service.add(name=name)
        elif what in {"file_by_filename", "file_containing_symbol"}:
            by_name = what == "file_by_filename"
            find = known.FindFileByName if by_name else known.FindFileContainingSymbol
            found = find(getattr(asked, what)).serialized_pb
            told.file_descriptor_response.file_descriptor_proto.append(found)
        else:
            told.error_response.error_code = 12
            told.error_response.error_message = "messages of this server have no extensions"
    except KeyError:
        told.error_response.error_code = 5
        told.error_response.error_message = "there is no such file or symbol"
    return Response(told.SerializeToString(), content_type=GRPC)


_MODEL = {"model": "name", "version": "version"}
CALLS: tuple[HttpRoute, ...] = (
    _as_http("ServerLive", health.live),
    _as_http("ServerReady", health.ready),
    _as_http("ServerMetadata", health.metadata),
    _as_http("ModelReady", _model_ready, **_MODEL),
    _as_http("ModelMetadata", models.metadata, **_MODEL),
    _as_http("ModelConfig", models.config, "config", **_MODEL),
    _as_http("ModelStatistics", models.statistics, **_MODEL),
    _as_http("RepositoryIndex", models.index, "models"),
    _as_http("RepositoryModelLoad", models.load, model="model_name"),
    _as_http("RepositoryModelUnload", models.unload, model="model_name"),
    _call("ModelInfer", _infer, "predict"),
    _call("ModelStreamInfer", _stream_infer, "predict"),
    _call("Check", _check, "read", schemas.HEALTH),
    _call("Watch", _watch, "read", schemas.HEALTH),
    *(
        _call("ServerReflectionInfo", partial(_reflected, each.rpartition(".")[0]), "read", each)
        for each in schemas.REFLECTION
    ),
)
