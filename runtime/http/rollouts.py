"""Rollouts over HTTP: begun, told, paused, ended, and what is reported of requests later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from time import perf_counter
from typing import Any

import msgspec

from flour.data.batch import Batch
from runtime.http.bodies import Reported, ReportRequest, RolloutAction, RolloutBody, RolloutRequest
from runtime.http.clients import asked_of, changed, client_name
from runtime.http.interfaces import Answering, InferCall
from runtime.http.messages import Answer, Request, Response
from runtime.http.problems import HttpError
from runtime.http.routes import HandlerContext
from runtime.http.typed_json import body_of, json
from runtime.rollout import Rollout
from runtime.service.entry import Outputs
from runtime.service.following import Noting, note_done
from runtime.service.version import ModelVersion

_request = msgspec.json.Decoder(RolloutRequest)
_action = msgspec.json.Decoder(RolloutAction)
_report = msgspec.json.Decoder(ReportRequest)


def begin(service: HandlerContext, request: Request) -> Answer:
    """Begin a rollout."""
    asked: RolloutRequest = asked_of(request, _request)
    terms = {name: value for name, value in msgspec.structs.asdict(asked).items() if value != ()}
    begun = partial(service.runtime.rollout, request.params["model"], **terms)
    return _changed(service, request, partial(begun, who=client_name(service, request)))


def told(service: HandlerContext, request: Request) -> Answer:
    """The rollout that there is, or was last."""
    return json(_body(service.runtime.rollout(request.params["model"])))


def act(service: HandlerContext, request: Request) -> Answer:
    """Pause a rollout, go on with it, or end it."""
    asked: RolloutAction = asked_of(request, _action)
    running: Rollout = service.runtime.rollout(request.params["model"])
    why = (asked.why,) if asked.action != "resume" else ()

    def change() -> Rollout:
        getattr(running, asked.action)(*why)
        return running

    return _changed(service, request, change)


def report(service: HandlerContext, request: Request) -> Answer:
    """Count values of a request by its id."""
    asked: ReportRequest = body_of(request, _report)
    name = request.params["model"]
    return json(Reported(service.runtime.report(name, asked.request, **asked.values)))


async def _changed(
    service: HandlerContext, request: Request, change: Callable[[], Rollout]
) -> Response:
    """Make a change on a thread, as it is written to a file first."""
    if service.peers.count > 1:
        raise HttpError(
            "rollouts are judged in servers of one process", 501, found=f"{service.peers.count}"
        )
    return changed(request, _body(await asyncio.to_thread(change)))


def _body(running: Rollout) -> RolloutBody:
    return RolloutBody(**running.to_dict())


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
