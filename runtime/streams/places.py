"""Sources and sinks by their addresses.

    redis://HOST[:PORT]/STREAM      a stream of Redis; rediss:// over TLS
    kafka://HOST[:PORT]/TOPIC       a topic of Kafka
    FOLDER, FILE                    lines of JSON in files that grow; answers are one file
    -                               standard input or output

Options stand behind a question mark: `redis://localhost/answers?maxlen=1000000`.
"""

from __future__ import annotations

import socket
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from runtime.streams.messages import BadStream, MessageSink, MessageSource

_MODULES = {"redis": "redis", "rediss": "redis", "kafka": "kafka", "": "files"}


class StreamPlace:
    """A broker's address, with these options at most."""

    def __init__(self, url: str, known: tuple[str, ...], port: int) -> None:
        try:
            parts = urlsplit(url)
            self.port = parts.port or port
        except ValueError:
            raise BadStream("this is not a URL", found=url.rpartition("@")[2][:80]) from None
        self.scheme, self.host = parts.scheme, parts.hostname or ""
        self.name = unquote(parts.path.lstrip("/"))
        self.user, self.password = unquote(parts.username or ""), unquote(parts.password or "")
        self.options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if path := self.options.pop("password_file", ""):
            self.password = Path(path).read_text(encoding="utf-8").strip()
        for wrong in self.options.keys() - set(known):
            hint = f"options are password_file, {', '.join(known)}"
            raise BadStream(f"there is no option {wrong!r}"[:80], where=str(self), hint=hint)
        if not self.name or not self.host:
            hint = f"such as {self.scheme}://localhost/payments"
            raise BadStream("this address has no stream", where=str(self), hint=hint)
        #: All but the stream.
        self.server = self.scheme, self.host, self.port, self.user, self.number("db", 0)
        self.address = self.host, self.port, self.number("db", 0), self.name

    def __str__(self) -> str:
        """The address without user, password and options."""
        return f"{self.scheme}://{self.host}:{self.port}/{self.name}"

    def number(self, option: str, usual: float) -> float:
        """A number among the options."""
        text = self.options.get(option, str(usual))
        try:
            return float(text)
        except ValueError:
            where = f"{option} of {self}"
            raise BadStream("this is not a number", where=where, found=text[:40]) from None


def open_source(
    url: str, *, group: str = "pretzel", consumer: str = "", start: str = ""
) -> MessageSource:
    """The source of an address, for a group of consumers that share its messages.

    `consumer` names this process, also when it is started again; by default it is the machine's
    name. A new group begins at `start`: "first", "last" or a position; one that has begun goes on
    where it was.
    """
    consumer = consumer or socket.gethostname()
    made: MessageSource = _module(url).SOURCE(url, group, consumer, start)
    return made


def open_sink(url: str) -> MessageSink:
    """The sink of an address."""
    made: MessageSink = _module(url).SINK(url)
    return made


def _module(url: str) -> Any:
    scheme, colon, _ = url.partition("://")
    name = _MODULES.get(scheme if colon else "")
    if name is None:
        hint = "redis://, rediss://, kafka://, a path, or -"
        raise BadStream("no streams have this scheme", found=scheme[:40], hint=hint)
    try:
        return import_module(f"runtime.streams.{name}")
    except ModuleNotFoundError as problem:
        way = "pip install 'pretzel-runtime[streams]'"
        said = f"{problem.name} is not installed: {way}"
        raise ModuleNotFoundError(said, name=problem.name) from None
