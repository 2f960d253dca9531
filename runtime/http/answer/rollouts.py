"""Rollouts over HTTP: begun, told, paused, ended, and what is reported of requests later."""

from __future__ import annotations

from concurrent.futures import Future
from time import perf_counter
from typing import Any

import msgspec

from flour.data.batch import Batch
from runtime.http.codec.bodies import (
    Reported,
    ReportRequest,
    RolloutAction,
    RolloutBody,
    RolloutRequest,
)
from runtime.http.codec.typed_json import body_of, json
from runtime.http.guard.clients import asked_of, changed, sender
from runtime.http.routes import HandlerContext
from runtime.http.wire.interfaces import Answering
from runtime.http.wire.messages import InferCall, Request, Response
from runtime.service.entry import Outputs
from runtime.service.following import Noting, note_done
from runtime.service.version import ModelVersion

_request = msgspec.json.Decoder(RolloutRequest)
_action = msgspec.json.Decoder(RolloutAction)
_report = msgspec.json.Decoder(ReportRequest)


async def begin(service: HandlerContext, request: Request) -> Response:
    """Begin a rollout."""
    asked: RolloutRequest = asked_of(request, _request)
    terms = {name: value for name, value in msgspec.to_builtins(asked).items() if value != []}
    terms["who"] = sender(service, request).name
    return changed(request, await _judged(service, request, "begin", terms=terms))


async def told(service: HandlerContext, request: Request) -> Response:
    """The rollout that there is, or was last."""
    return json(await _judged(service, request, "told"))


async def act(service: HandlerContext, request: Request) -> Response:
    """Pause a rollout, go on with it, or end it."""
    asked: RolloutAction = asked_of(request, _action)
    return changed(request, await _judged(service, request, asked.action, why=asked.why))


async def report(service: HandlerContext, request: Request) -> Response:
    """Count values of a request by its id."""
    asked: ReportRequest = body_of(request, _report)
    name, values = request.params["model"], asked.values
    body = {"name": name, "request": asked.request, "values": values}
    return json(Reported(await service.peers.judge("report", body)))


async def _judged(
    service: HandlerContext, request: Request, what: str, **more: object
) -> RolloutBody:
    """The rollout after what was asked of it, whichever process judges it."""
    body = {"name": request.params["model"], **more}
    return RolloutBody(**await service.peers.judge(what, body))


class Noted:
    """Answers as the next layer does, and lets a rollout count it."""

    def __init__(self, inner: Answering, noting: Noting, request: str) -> None:
        self.inner, self._noting = inner, noting
        self._headers = {"x-request-id": request} if request else None

    def quick(self, version: ModelVersion, batch: Batch) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once; else None."""
        start, problem = perf_counter(), None
        try:
            outputs = self.inner.quick(version, batch)
        except Exception as raised:
            problem = raised
            raise
        finally:
            if problem is not None:
                self._note(version, start, problem)
        if outputs is not None:
            self._note(version, start, None)
        return outputs

    def _note(self, version: ModelVersion, start: float, problem: Exception | None) -> None:
        self._noting.note(version.owner, perf_counter() - start, problem, self._headers)

    def answer(self, call: InferCall) -> Future[dict[str, Any]]:
        """A future of the answers."""
        start = perf_counter()
        future = self.inner.answer(call)
        note_done(self._noting, call.version.owner, self._headers, start, future)
        return future
