"""Clients of one server: what is asked again, for how long, and what a refusal becomes.

    with Client("http://127.0.0.1:8000", token=Path("token.txt")) as client:
        client.predict("churn", frame)

    async with AsyncClient("grpc://127.0.0.1:8000") as client:
        await client.predict("churn", frame)

A request is asked again after a pause where nothing can have come of it: the connection was
refused, or the server said that it has no room (429, RESOURCE_EXHAUSTED). Predictions and GET
change nothing, so they are asked again after 502, 503 (UNAVAILABLE) and a lost connection, too.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import selectors
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from flour.core.errors import FlourError, ParameterError
from flour.core.http1 import Reply
from flour.core.request_ids import CURRENT, HEADER
from objectstore import Closing
from runtime.client.links import BREAKS, CallLink, CallRequest, GrpcLink, Unasked
from runtime.client.rows import RowCall, call
from runtime.http.wire.messages import TIMEOUT_HEADER
from runtime.http.wire.tls import client_context

#: The bound of a call that has no other, and the first and the longest pause before another try.
SECONDS, FIRST_PAUSE, LONGEST_PAUSE = 30.0, 0.05, 5.0
_NO_ROOM, _AWAY = 429, {502, 503}
_LINE = re.compile(r"[^\r\n\u0100-\U0010ffff]*")
_SCHEMES = {"http", "https", "grpc", "grpcs", "unix"}
Token: TypeAlias = str | Path | Callable[[], str]
T = TypeVar("T")


class CallFailed(FlourError):
    """A server refused a call, or could not be asked; `status` is that of HTTP, or 0."""

    status: int = 0


class CallLate(CallFailed, TimeoutError):
    """There was no answer in time."""


class CallClock(NamedTuple):
    """The time that clients live in."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    """Between 0 and 1, so that clients that failed together do not come back together."""


def _positive(**given: object) -> None:
    for name, value in given.items():
        if not (value is None or (isinstance(value, int | float) and 0 < value < math.inf)):
            raise ParameterError("this is a positive number", where=name, found=repr(value)[:40])


class _Caller:
    """The half of both clients that knows how to ask, and waits for nobody's thread."""

    def __init__(  # noqa: PLR0913 (each has a default)
        self,
        url: str,
        *,
        protocol: str | None = None,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        attempts: int = 5,
        connections: int = 16,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        verify: bool = True,
        clock: CallClock | None = None,
    ) -> None:
        """`url` is `http://`, `https://`, `grpc://`, `grpcs://` or `unix:///path`.

        `protocol` is "grpc" where the URL does not say so. A call with its repetitions, at most
        `attempts`, takes `timeout` seconds at most (usually 30); a time that is given is told to
        the server. `token` is a text, a file or a function, which are asked each time. At most so
        many `connections` are open. `ca` vouches for the server, instead of the authorities of the
        system; `cert` and `key` are the client's own.
        """
        known = url == str(url) and url.count("[") == url.count("]")
        parts = self._parts = urlsplit(url if known else "")
        self._grpc = (protocol or parts.scheme[:4]) == "grpc"
        known = protocol in {None, "http", "grpc"} and parts.scheme in _SCHEMES
        known = known and not parts.query and parts.username is None  # which is a secret
        if not (known and (parts.path if parts.scheme == "unix" else parts.hostname)):
            found = repr(str(url).rpartition("@")[2])[:80]
            hint = "http, https, grpc or grpcs://host:port, or unix:///path; protocol http or grpc"
            raise ParameterError("this is no address of a server", found=found, hint=hint)
        _positive(attempts=attempts, connections=connections, timeout=timeout)
        self._tls: ssl.SSLContext | None = None
        if parts.scheme in {"https", "grpcs"}:
            self._tls = client_context(ca, cert, key, verify=verify)
            self._tls.set_alpn_protocols(["h2" if self._grpc else "http/1.1"])
        self._url, self._token, self._headers = url, token, dict(headers or {})
        self._timeout, self._attempts, self._clock = timeout, attempts, clock or CallClock()
        self._connections, self._closed = connections, False
        self._free: list[CallLink] = []
        #: The loop that the connections belong to, and room for more of them.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = asyncio.Semaphore(connections)

    def _answers(self, wanted: RowCall, reply: Reply) -> Any:
        """The answers in a good reply; CallFailed where it is none of ours."""
        if reply.status != 200:
            raise self._refusal(wanted.ask, reply)
        try:
            return wanted.read(reply)
        except (ValueError, LookupError, msgspec.MsgspecError) as problem:
            what, where = "the answer cannot be read", f"{self._url} {wanted.ask.path}"
            hint = "is this the address of a server of Pretzel?"
            raise CallFailed(what, where=where, found=str(problem)[:100], hint=hint) from problem

    async def _request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """The answer to any request of HTTP, whatever its status."""
        if self._grpc:
            raise ParameterError("a client of gRPC has no other requests", where=path[:80])
        repeatable = method in {"GET", "HEAD"}
        return await self._asked(CallRequest(method, path, body, headers or {}, repeatable), None)

    async def _close(self) -> None:
        """Close all connections; nothing is asked any more."""
        self._closed = True
        while self._free:
            self._free.pop().close()

    # --- how often and for how long ----------------------------------------------------------

    async def _asked(self, ask: CallRequest, timeout: float | None) -> Reply:
        """The answer, or the last one where there is no time or attempt left."""
        _positive(timeout=timeout)
        told = timeout if timeout is not None else self._timeout
        end, where = self._clock.now() + (told or SECONDS), f"{self._url} {ask.method} {ask.path}"
        late = CallLate("there was no answer in time", where=where, hint="a longer timeout")
        reply, broken = Reply(0, {}, b""), Exception()
        for attempt in range(1, self._attempts + 1):
            left = end - self._clock.now()
            if self._closed or left <= 0:
                raise late if left <= 0 else CallFailed("this client is closed", where=where)
            made = self._completed(ask, left if told else None)
            try:
                reply = await asyncio.wait_for(self._tried(made), left)
                again = reply.status == _NO_ROOM or (ask.repeatable and reply.status in _AWAY)
            except (TimeoutError, asyncio.TimeoutError):  # two in Python 3.10
                raise late from None
            except BREAKS as problem:
                reply, broken = Reply(0, {}, b""), problem
                again = ask.repeatable or isinstance(problem, Unasked)
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * (0.5 + self._clock.jitter() / 2)
            told_to_wait = reply.headers.get("retry-after", "")
            pause += float(told_to_wait) if told_to_wait.isdigit() else 0.0
            if not again or attempt == self._attempts or self._clock.now() + pause >= end:
                break
            await self._clock.sleep(pause)
        if not reply.status:
            what, hint = "the server does not answer", "is it running, and is this its address?"
            raise CallFailed(what, where=where, found=str(broken)[:200], hint=hint) from broken
        return reply

    def _completed(self, ask: CallRequest, left: float | None) -> CallRequest:
        """A request with the headers of the client, as they are at this moment."""
        headers = {**self._headers, **ask.headers}
        if request := CURRENT.get(""):  # of a server that asks this one in turn
            headers.setdefault(HEADER, request)
        if self._token is not None:
            token = self._token
            try:
                text = token.read_text("utf-8") if isinstance(token, Path) else token
                text = text if isinstance(text, str) else text()
            except (OSError, ValueError, TypeError) as problem:
                what, hint = "the token cannot be read", "it is a text, a file or a function"
                raise ParameterError(what, found=str(problem)[:80], hint=hint) from None
            headers["authorization"] = f"Bearer {str(text).strip()}"
        if left is not None:
            name, unit = ("grpc-timeout", "m") if self._grpc else (TIMEOUT_HEADER, "")
            headers[name] = f"{max(1, round(left * 1e3))}{unit}"
        path = ("" if self._parts.scheme == "unix" else self._parts.path.rstrip("/")) + ask.path
        for name, value in {**headers, "path": path}.items():
            if not _LINE.fullmatch(f"{name}{value}"):
                what = "a path or a header is one line of Latin-1"
                raise ParameterError(what, where=f"{name}"[:80])
        return ask._replace(path=path, headers=headers)

    async def _tried(self, ask: CallRequest) -> Reply:
        """One attempt, on a connection that is free or new."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections of another loop cannot be used
            self._loop, self._free = loop, []
            self._room = asyncio.Semaphore(self._connections)
        async with self._room:
            link = None
            while self._free and link is None:
                link = self._free.pop()  # the one that was used last: others become old
                if link.reader.at_eof():
                    link.close()
                    link = None
            link = link or await self._linked()
            try:
                reply = await link.ask(ask)
            finally:
                if link.reusable and not self._closed:
                    self._free.append(link)
                else:
                    link.close()
            return reply

    async def _linked(self) -> CallLink:
        """A new connection."""
        parts, kind = self._parts, GrpcLink if self._grpc else CallLink
        try:
            if parts.scheme == "unix":
                pair = await asyncio.open_unix_connection(unquote(parts.path))
                return kind(*pair, "localhost", "http")
            port = parts.port or (80 if self._tls is None else 443)
            pair = await asyncio.open_connection(parts.hostname, port, ssl=self._tls)
            scheme = "http" if self._tls is None else "https"
            return kind(*pair, parts.netloc.rpartition("@")[2], scheme)
        except (OSError, ValueError) as problem:
            raise Unasked(str(problem)) from problem

    def _refusal(self, ask: CallRequest, reply: Reply) -> CallFailed:
        try:
            message = str(msgspec.json.decode(reply.body)["error"])
        except (msgspec.DecodeError, KeyError, TypeError):
            message = reply.body[:500].decode("utf-8", "replace").strip()
        kind = CallLate if reply.status == 504 else CallFailed
        what, where = f"the server refused this: {message}", f"{self._url} {ask.path}"
        made = kind(what, where=where, found=f"status {reply.status}")
        made.status = reply.status
        return made


class AsyncClient(_Caller):
    """A client for an event loop: a `Client` whose methods are awaited."""

    request = _Caller._request  # noqa: SLF001 (of its own base)
    close = _Caller._close  # noqa: SLF001

    async def predict(self, model: str, rows: object, *, timeout: float | None = None) -> Any:
        """The answers of a model, `NAME` or `NAME@VERSION`, to these rows."""
        wanted = call(model, rows, grpc=self._grpc)
        return self._answers(wanted, await self._asked(wanted.ask, timeout))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Client(_Caller, Closing):
    """A client of one server, safe to use from several threads, and after a fork.

    Rows are a frame of pandas, polars or pyarrow, columns in a dict, an array, one row (a dict or a
    list), or several. The answers are a frame for a frame, arrays by output for columns and arrays,
    and a dict for each row.
    """

    #: The process and the loop that calls run on, whose thread begins with the first of them.
    _home: tuple[int, asyncio.AbstractEventLoop, threading.Thread] | None = None
    _beginning = threading.Lock()

    def predict(self, model: str, rows: object, *, timeout: float | None = None) -> Any:
        """The answers of a model, `NAME` or `NAME@VERSION`, to these rows."""
        wanted = call(model, rows, grpc=self._grpc)
        return self._answers(wanted, self._run(self._asked(wanted.ask, timeout)))

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """The answer to any request of HTTP, whatever its status."""
        return self._run(self._request(method, path, body, headers))

    def close(self) -> None:
        """Close all connections; nothing is asked any more."""
        self._closed = True
        if self._home is not None and self._home[0] == os.getpid():
            self._run(self._end())
            self._home[1].call_soon_threadsafe(self._home[1].stop)
            self._home[2].join(SECONDS)
            self._home[1].close()
        self._home = None

    def _run(self, coming: Coroutine[Any, Any, T]) -> T:
        """The result of a call, which the loop computes beside others."""
        home = self._home
        if home is None or home[0] != os.getpid():
            home = self._begun()
        try:
            return asyncio.run_coroutine_threadsafe(coming, home[1]).result()
        except futures.CancelledError:
            raise CallFailed("this client is closed", where=self._url) from None

    async def _end(self) -> None:
        """Close all connections, and give up what is asked."""
        await self._close()
        if asked := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in asked:
                task.cancel()
            await asyncio.wait(asked, timeout=SECONDS)

    def _begun(self) -> tuple[int, asyncio.AbstractEventLoop, threading.Thread]:
        with self._beginning:
            home = self._home
            if home is None or home[0] != os.getpid():
                # A child shares the system's memory of what epoll watches, and would change it.
                selector = getattr(selectors, "PollSelector", selectors.SelectSelector)()
                loop = asyncio.SelectorEventLoop(selector)
                thread = threading.Thread(target=loop.run_forever, daemon=True)
                thread.start()
                home = self._home = os.getpid(), loop, thread
            return home
