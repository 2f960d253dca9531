"""The routes under ASGI, by a server's messages: bodies in pieces, limits, clients that go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import pretzel
from pretzel.asgi_app import AsgiApp
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.routes import HandlerContext, HttpRoute
from runtime.http.wire.messages import Answer, Request, Response
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import filled
from tests.runtime.http.test_access_log import lines


class Conversation:
    """A server's side of one request: what it hands over, and what it is told."""

    def __init__(self, app: AsgiApp, method: str, path: str, *parts: bytes, **more: Any) -> None:
        raw, _, query = path.partition("?")
        given = {"root_path": "", "headers": [], "client": ("10.0.0.9", 1), **more}
        self.scope = {"type": "http", "method": method, "raw_path": raw.encode(), **given}
        self.scope |= {"path": raw, "query_string": query.encode()}
        self.app, self.sent = app, list[dict[str, Any]]()
        self.coming = [
            {"type": "http.request", "body": each, "more_body": number < len(parts)}
            for number, each in enumerate(parts, 1)
        ] or [{"type": "http.request"}]
        self.gone: asyncio.Event

    async def receive(self) -> Any:
        if self.coming:
            return self.coming.pop(0)
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def run(self) -> Any:
        self.gone = asyncio.Event()
        await self.app(self.scope, self.receive, self.send)
        if not self.sent:
            return None
        start, body = self.sent
        return start["status"], dict(start["headers"]), body["body"]


def ask(app: AsgiApp, method: str, path: str, *parts: bytes, **more: Any) -> Any:
    return asyncio.run(Conversation(app, method, path, *parts, **more).run())


@pytest.fixture
def runtime() -> Any:
    with Runtime(executors=1) as made:
        filled(made)
        yield made


#: Headers of a server that an application leaves to it, and those that differ by request.
_OWN = {"date", "connection", "x-request-id"}
ROW = b"[1.0, 2.0, 3.0, 4.0]"
ASKED: list[tuple[str, str, bytes]] = [
    ("GET", "/v2", b""),
    ("GET", "/v2/models/iris", b""),
    ("HEAD", "/v2/models", b""),
    ("GET", "/nowhere", b""),
    ("DELETE", "/v2", b""),
    ("POST", "/predict/shift", ROW),
    ("POST", "/predict/shift@1?x=1", ROW),
    ("POST", "/predict/none%2Fsuch", ROW),
    ("POST", "/predict/shift", b"{"),
    ("POST", "/predict/shift", b"[" + b",".join([ROW] * 20_000) + b"]"),
    ("POST", "/v1/models/shift:predict", b'{"instances": [%b]}' % ROW),
]


@pytest.mark.parametrize("root", ["", "/all models"])
def test_answers_are_those_of_the_server(runtime: Runtime, root: str) -> None:
    settings = ServerSettings(port=0, max_unread=0.0)
    app = AsgiApp(runtime, settings)
    with Server(runtime, settings) as server:
        for method, path, body in ASKED:
            there = Client(server.port).ask(method, path, body or None)
            halves = [part for part in (body[:7], body[7:]) if part]
            mounted = root.replace(" ", "%20") + path
            status, headers, here = ask(app, method, mounted, *halves, root_path=root)
            assert (status, here) == (there.status, there.body), path
            told = {name.decode(): value.decode("latin-1") for name, value in headers.items()}
            theirs = {name: text for name, text in there.headers.items() if name not in _OWN}
            assert ("x-request-id" in told) == ("x-request-id" in there.headers)
            assert {**told, "x-request-id": ""} == {**theirs, "x-request-id": ""}


@pytest.mark.parametrize("root", ["", "/all models"])
def test_addresses_in_pages_begin_with_what_mounts_it(runtime: Runtime, root: str) -> None:
    app, start = AsgiApp(runtime, ServerSettings()), root.replace(" ", "%20")
    packed = [(b"accept-encoding", b"gzip")]  # the server around it packs answers, if anybody
    for page, there in (
        ("/", "/try/shift/versions/1"),
        ("/docs", "/openapi.json"),
        ("/try/shift", "/v2/models/shift/infer"),
    ):
        _, _, body = ask(app, "GET", start + page, root_path=root, headers=packed if root else [])
        assert f'="{start}{there}"' in body.decode()
        assert not root or b'="/v2' not in body
    _, _, body = ask(app, "GET", start + "/openapi.json", root_path=root)
    document = json.loads(body)
    assert document.get("servers", []) == ([{"url": start}] if root else [])


@pytest.mark.parametrize(
    ("parts", "headers", "status"),
    [
        ((b" " * 99, b" "), [], 400),
        ((b" " * 99, b"  "), [], 413),
        ((b" " * 200,), [], 413),
        ((b"",), [(b"content-length", b"101")], 413),
        ((b"",), [(b"x", b"y" * 300)], 431),
        ((b"",), [(b"content-encoding", b"gzip")], 400),
    ],
)
def test_limits_are_those_of_the_settings(
    runtime: Runtime, parts: tuple[bytes, ...], headers: Any, status: int
) -> None:
    app = AsgiApp(runtime, ServerSettings(max_body=100, max_header=300))
    found, _, body = ask(app, "POST", "/predict/shift", *parts, headers=headers)
    assert found == status
    assert set(json.loads(body)) == {"error"}


def test_who_sends_too_slowly_or_goes_is_not_waited_for(runtime: Runtime) -> None:
    app = AsgiApp(runtime, ServerSettings(body_seconds=0.05))

    def half(*, gone: bool) -> Any:
        asked = Conversation(app, "POST", "/predict/shift", b"[1.0,")
        asked.coming[0]["more_body"] = True

        async def run() -> Any:
            running = asyncio.ensure_future(asked.run())
            await asyncio.sleep(0)
            if gone:
                asked.gone.set()
            return await running

        return asyncio.run(run())

    assert half(gone=False)[0] == 408
    assert half(gone=True) is None


def test_an_answer_that_nobody_waits_for_is_given_up(runtime: Runtime, tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), Future[bool]()

    async def endless() -> Response:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set_result(True)
        return Response()

    def handler(_service: HandlerContext, _request: Request) -> Answer:
        return endless()

    route = HttpRoute("POST", "/endless", handler, "Never ends", right="change")
    log = tmp_path / "audit"
    app = AsgiApp(runtime, ServerSettings(audit_log=log), routes=[route])
    asked = Conversation(app, "POST", "/endless", b"{}")

    async def run() -> Any:
        running = asyncio.ensure_future(asked.run())
        await begun.wait()
        asked.gone.set()
        said = await running
        await asyncio.sleep(0)
        await app.close()
        return said

    assert asyncio.run(run()) is None
    assert ended.done()
    assert [each["status"] for each in lines(log)] == [499]


def test_guards_and_logs_belong_to_it(runtime: Runtime, tmp_path: Path) -> None:
    tokens, log = tmp_path / "tokens", tmp_path / "log"
    tokens.write_text(f"alice {'a' * 16} predict\n")
    app = pretzel.asgi(runtime, ServerSettings(tokens=tokens, access_log=log))
    known = [(b"authorization", b"Bearer " + b"a" * 16)]
    asked: list[tuple[Callable[..., Any], str, str, Any, int]] = [
        (ask, "POST", "/predict/shift", known, 200),
        (ask, "GET", "/v2/models", known, 403),
        (ask, "POST", "/predict/shift", [], 401),
    ]
    for call, method, path, headers, status in asked:
        assert call(app, method, path, ROW, headers=headers)[0] == status
    asyncio.run(app.close())
    told = [(each["status"], each["peer"], each.get("client")) for each in lines(log)]
    assert told == [(200, "10.0.0.9", "alice"), (403, "10.0.0.9", "alice"), (401, "10.0.0.9", None)]


def test_a_server_tells_it_when_it_begins_and_ends(runtime: Runtime) -> None:
    app, sent = AsgiApp(runtime), list[Any]()
    coming = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(coming)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    asyncio.run(app({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert app.service.leaving
    sent.clear()
    asyncio.run(app({"type": "websocket"}, receive, send))
    assert sent == ["websocket.close"]
