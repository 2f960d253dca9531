"""Rollouts over HTTP: begun, told, paused, ended, and what is reported of requests later."""

from __future__ import annotations

import asyncio

import msgspec

from runtime.errors import UnknownEndpoint
from runtime.http.codec.bodies import (
    LabelsNoted,
    LabelsRequest,
    Reported,
    ReportRequest,
    RolloutAction,
    RolloutBody,
    RolloutRequest,
    body_of,
    json,
)
from runtime.http.guard.clients import asked_of, changed, sender
from runtime.http.routes import HandlerContext
from runtime.http.wire.messages import Request, Response


async def begin(service: HandlerContext, request: Request) -> Response:
    """Begin a rollout."""
    asked = asked_of(request, RolloutRequest)
    terms = {name: value for name, value in msgspec.to_builtins(asked).items() if value != []}
    terms["who"] = sender(service, request).name
    return changed(request, await _judged(service, request, "begin", terms=terms))


async def told(service: HandlerContext, request: Request) -> Response:
    """The rollout that there is, or was last."""
    return json(await _judged(service, request, "told"))


async def act(service: HandlerContext, request: Request) -> Response:
    """Pause a rollout, go on with it, or end it."""
    asked = asked_of(request, RolloutAction)
    return changed(request, await _judged(service, request, asked.action, why=asked.why))


async def report(service: HandlerContext, request: Request) -> Response:
    """Count values of a request by its id."""
    asked = body_of(request, ReportRequest)
    name, values = request.params["model"], asked.values
    body = {"name": name, "request": asked.request, "values": values}
    return json(Reported(await service.peers.judge("report", body)))


async def labels(service: HandlerContext, request: Request) -> Response:
    """Note labels of answers by their ids."""
    from runtime.feedback import Feedback  # most servers have none

    asked = body_of(request, LabelsRequest)
    name = service.runtime.endpoints.find(request.params["model"]).name
    feedback = service.runtime.routes.keeper(name, "feedback")
    if not isinstance(feedback, Feedback):
        hint = "[feedback] in its notes.toml asks for it"
        raise UnknownEndpoint("this model has no feedback", found=name[:80], hint=hint)
    return json(LabelsNoted(await asyncio.to_thread(feedback.labels, asked.labels)))


async def _judged(
    service: HandlerContext, request: Request, what: str, **more: object
) -> RolloutBody:
    """The rollout after what was asked of it, whichever process judges it."""
    body = {"name": request.params["model"], **more}
    return RolloutBody(**await service.peers.judge(what, body))
