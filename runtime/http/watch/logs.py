"""The log of the process: its form, its level, and changes of that at run time.

Only the settings `log_format` and `log_level` configure it, of the loggers below `pretzel`.
"""

from __future__ import annotations

import logging
import sys
from datetime import datetime, timezone
from functools import partial

import msgspec

from flour.core.request_ids import CURRENT
from runtime.http.codec.bodies import LogLevel
from runtime.http.codec.typed_json import body_of, json
from runtime.http.routes import HandlerContext
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.settings import LOG_LEVELS, ServerSettings

_LOGGER = logging.getLogger("pretzel")
_level = msgspec.json.Decoder(LogLevel)


class LogLines(logging.Formatter):
    """A line for each record, as JSON or text, with the id of the request."""

    def __init__(self, form: str) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(request)s: %(message)s")
        self._json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        request = CURRENT.get("")
        record.request = f" [{request}]" if request else ""
        if not self._json:
            return super().format(record)
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        names = "time", "level", "logger", "process", "request", "message", "error"
        error = self.formatException(record.exc_info) if record.exc_info else ""
        said = record.name, record.process, request, record.getMessage(), error
        told = zip(names, (time, record.levelname.lower(), *said), strict=True)
        return msgspec.json.encode({name: value for name, value in told if value}).decode()


def configure(settings: ServerSettings) -> None:
    """Have the log in the form and at the level of the settings, if they say something of it."""
    if settings.log_format:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(LogLines(settings.log_format))
        _LOGGER.handlers, _LOGGER.propagate = [handler], False
    if settings.log_level:
        _set_level(settings.log_level)


def _set_level(level: str) -> None:
    _LOGGER.setLevel(level.upper())


def offer(service: HandlerContext) -> None:
    """Let other workers set the level here."""
    for level in LOG_LEVELS:
        service.peers.offer(f"log {level}", partial(_set_level, level))


def level(service: HandlerContext, request: Request) -> Answer:
    """The level of the log."""
    place = _LOGGER.getEffectiveLevel() // 10 - 1
    return json(LogLevel(LOG_LEVELS[min(max(place, 0), len(LOG_LEVELS) - 1)]))


async def set_level(service: HandlerContext, request: Request) -> Response:
    """Change the level of the log, in all processes, until they end."""
    wanted: LogLevel = body_of(request, _level)
    _set_level(wanted.level)
    await service.peers.snapshot(f"log {wanted.level}", 1.0)
    return json(wanted)
