r"""The audit log: a line of JSON for each request that would change something, refused ones too.

    {"time": "2026-01-31T12:00:00.125Z", "peer": "10.0.0.7", "method": "POST", "client": "deploy",
     "path": "/v2/models/fraud/promote", "status": 409, "bytes": 77, "seconds": 0.002,
     "model": "fraud", "change": "{\"version\": 2}", "error": "there is no version 2"}

`change` is the beginning of the body, or the query of a page's button. A client that hangs up
before it is answered may have changed something all the same: its line has the status 499.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter

import msgspec

from runtime.http.codec.bodies import Error
from runtime.http.guard.guards import Sender
from runtime.http.routes import Router
from runtime.http.watch.access_log import LONGEST, AccessLog, LogLine
from runtime.http.wire.messages import GRPC_METHOD, Request, Response
from runtime.http.wire.problems import refusal

Enter = Callable[[Request], Callable[[object], None]]

_GONE = refusal("the client hung up before it was answered", 499)
_error = msgspec.json.Decoder(Error)


class AuditLine(LogLine, omit_defaults=True):
    """The fields of a line."""

    change: str = ""
    error: str = ""


class AuditLog(AccessLog):
    """Writes a line for each request for a change."""

    name = "audit log"

    def __init__(
        self, target: str, router: Router, *, client: Callable[[Request], Sender | None]
    ) -> None:
        """Write to a file or standard error; `client` returns the sender of a request."""
        self._router = router
        super().__init__(target, client=client)

    def __call__(self, request: Request, response: Response, seconds: float) -> None:
        """Record a request that needs the right to change something."""
        if self._router.need(request.method, request.path).right == "change":
            super().__call__(request, response, seconds)

    def entering(self, before: Enter | None) -> Enter:
        """Let requests that nobody waits for any more be recorded as well, behind `before`."""

        def enter(request: Request) -> Callable[[object], None]:
            leave = None if before is None else before(request)

            def ended(answering: object) -> None:
                if leave is not None:
                    leave(answering)
                if isinstance(answering, Future) and answering.cancelled():
                    self(request, _GONE, perf_counter() - request.started)

            return ended

        return enter

    def _line(self, request: Request, response: Response, seconds: float) -> LogLine:
        fields = msgspec.structs.asdict(super()._line(request, response, seconds))
        model = self._router.need(request.method, request.path).model or request.params.get("model")
        fields["model"] = (model or "")[:LONGEST]
        body = b"" if request.method == GRPC_METHOD else bytes(request.body[:LONGEST])
        change = body.decode("utf-8", "replace") or request.query[:LONGEST]
        error = ""
        if response.status >= 400:
            with suppress(msgspec.DecodeError):  # an answer of one of the caller's own guards
                error = _error.decode(response.body).error[:LONGEST]
        return AuditLine(**fields, change=change, error=error)
