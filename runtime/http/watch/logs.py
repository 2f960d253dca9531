"""The log of the process: its form, its level, and changes of that at run time.

Only the settings `log_format` and `log_level` configure it, of the loggers below `pretzel`.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from datetime import datetime, timezone

import msgspec

from flour.core.request_ids import CURRENT
from runtime.http.codec.bodies import LogLevel, body_of, json
from runtime.http.routes import HandlerContext
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.settings import LOG_LEVELS, ServerSettings

_LOGGER = logging.getLogger("pretzel")
#: Events of the folder and of workers.
EVENTS = logging.getLogger("pretzel.serve")


class LogLines(logging.Formatter):
    """A line for each record, as JSON or text, with the id of the request; or its message alone."""

    def __init__(self, form: str | None) -> None:
        where = "%(asctime)s %(levelname)s %(name)s%(request)s" if form else "pretzel"
        super().__init__(where + ": %(message)s")
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
        line = {name: value for name, value in told if value} | getattr(record, "fields", {})
        return msgspec.json.encode(line).decode()


class LogStream(logging.StreamHandler):  # type: ignore[type-arg]  # Python 3.10 takes none
    """Standard error; a line that it does not take is told without what was being handled.

    The standard library would print the whole chain of errors, which may quote private values.
    """

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Tell that a line is lost."""
        kind, problem, _ = sys.exc_info()
        if kind is not None and sys.stderr is not None:
            with suppress(OSError, ValueError):  # it may be the stream that is broken
                reason = getattr(problem, "strerror", None) or kind.__name__
                sys.stderr.write(f"pretzel: a line of {record.name} was not logged: {reason}\n")


def configure(settings: ServerSettings) -> None:
    """Have the log in the form and at the level of the settings, if they say something of it."""
    if settings.log_format:
        _write(settings.log_format)
    if settings.log_level:
        put_level(settings.log_level)


def of_process(settings: ServerSettings) -> None:
    """Configure the log of a process of ours, from `info`; JSON takes the logs of others, too."""
    put_level("info")
    _write(None)
    configure(settings)
    if settings.log_format == "json":
        logging.getLogger().handlers = list(_LOGGER.handlers)
        logging.captureWarnings(capture=True)


def _write(form: str | None) -> None:
    handler = LogStream(sys.stderr)
    handler.setFormatter(LogLines(form))
    _LOGGER.handlers, _LOGGER.propagate = [handler], False


def put_level(level: str) -> None:
    """Log at this level, in this process."""
    _LOGGER.setLevel(level.upper())


def level(service: HandlerContext, request: Request) -> Answer:
    """The level of the log."""
    place = _LOGGER.getEffectiveLevel() // 10 - 1
    return json(LogLevel(LOG_LEVELS[min(max(place, 0), len(LOG_LEVELS) - 1)]))


async def set_level(service: HandlerContext, request: Request) -> Response:
    """Change the level of the log, in all processes, until they end."""
    wanted = body_of(request, LogLevel)
    put_level(wanted.level)
    await service.peers.put_level(wanted.level)
    return json(wanted)
