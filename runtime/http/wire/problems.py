"""Maps errors to responses: the status of an error class, and the text that clients see.

Errors of the client are answered with all four parts of the error. Internal errors are logged; as
their text may name files and addresses, the client gets one sentence.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import ceil

import msgspec

import scheduler
from flour.core import errors as flour
from objectstore import Explained, StoreError
from runtime import errors as runtime
from runtime.http.wire.messages import Response

log = logging.getLogger("pretzel.http")


class HttpError(flour.FlourError):
    """A request cannot be answered; `status` is the HTTP status."""

    status = 400

    def __init__(
        self,
        what: str,
        status: int = 400,
        *,
        where: str | None = None,
        found: str | None = None,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(what, where=where, found=found, hint=hint)
        self.status = status
        self.headers = tuple((headers or {}).items())


#: The first matching class counts. Other errors are internal: 500, without details.
STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (runtime.UnknownEndpoint, 404),
    (runtime.AlreadyTaken, 409),
    (runtime.InService, 409),
    (runtime.EditedFile, 409),
    (runtime.NotWritten, 507),
    (runtime.BadCall, 400),
    (runtime.BadRegistration, 400),
    (flour.InputError, 400),
    (flour.ImportRefused, 400),
    (flour.ParameterError, 400),
    (scheduler.Overloaded, 503),
    (scheduler.DeadlineExceeded, 504),
)

#: Passing errors that are not the client's: 503, with this sentence.
AWAY: tuple[tuple[type[BaseException], str], ...] = (
    (runtime.RuntimeClosed, "the server is shutting down"),
    (scheduler.SchedulerClosed, "the server is shutting down"),
    (runtime.LostPlan, "the model cannot be brought back into memory"),
    (scheduler.NoThread, "the server has no room for more work"),
    (scheduler.ExecutorDied, "the work was interrupted"),
    (StoreError, "the model's parameters cannot be read"),
    (MemoryError, "the server has not enough memory for this request"),
)


def response(error: BaseException) -> Response:
    """The response for an error."""
    if isinstance(error, HttpError):
        return refusal(text(error), error.status, error.headers)
    if isinstance(error, runtime.NodeFailed):
        log.warning("%s", text(error), exc_info=error)
        return refusal(text(error), 504 if error.late else 502)
    for kind, status in STATUS:
        if isinstance(error, kind):
            return refusal(text(error), status, _later(error))
    for kind, sentence in AWAY:
        if isinstance(error, kind):
            log.error("%s", error, exc_info=error)
            return refusal(sentence, 503, (("Retry-After", "1"),))
    log.error("a request failed for a reason of ours", exc_info=error)
    return refusal("internal error", 500)


def refusal(message: str, status: int, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """The body that all clients of the protocol understand."""
    return Response(msgspec.json.encode({"error": message}), status, headers=headers)


#: The answer to a request that was unread for too long; its body was not looked at.
LATE = refusal(
    "the server is overloaded: the request waited too long", 503, (("Retry-After", "1"),)
)
SPEAKS_TLS = Response(b"This port speaks TLS: use https://.\n", 400, "text/plain")
SPEAKS_PLAIN = refusal("this port speaks plain HTTP, not TLS: use http://", 400)
HEADER_TOO_LARGE = refusal("the headers are too large, or too many", 431)


def text(error: BaseException) -> str:
    """All parts of an error in one line."""
    if not isinstance(error, Explained | scheduler.SchedulerError):
        return str(error)
    where = f" at {error.where}" if error.where else ""
    found = f" (found: {error.found})" if error.found else ""
    hint = f"; {error.hint}" if error.hint else ""
    return f"{error.what}{where}{found}{hint}"


def _later(error: BaseException) -> tuple[tuple[str, str], ...]:
    if not isinstance(error, scheduler.Overloaded):
        return ()
    return (("Retry-After", str(max(1, ceil(error.retry_after)))),)
