"""What lies in front of the engines, over HTTP; test_settings.py has what each setting does."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flour.data.batch import Batch
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.answer.result_cache import Cached
from runtime.service.answerers import InferCall
from runtime.service.version import ModelVersion
from tests.house import until
from tests.runtime.http.answering import Passing
from tests.runtime.http.client import Client
from tests.runtime.plans import shift

ALICE = "a" * 20
ROW = [0.0, 1.0, 2.0, 3.0]


@contextmanager
def serving(**settings: Any) -> Iterator[tuple[Server, Client]]:
    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0))
        with Server(runtime, ServerSettings(port=0, **settings)) as server:
            yield server, Client(server.port)


def test_answers_that_are_kept() -> None:
    with serving(cache_bytes=1 << 16) as (server, client):
        replies = [client.post("/predict/m", ROW).json for _ in range(5)]
        assert all(each == replies[0] for each in replies)
        cached = server.service.answering
        assert isinstance(cached, Cached)
        (kept,) = cached.stats()
        assert (kept.name, kept.hits, kept.misses) == ("m", 4, 1)
        server.service.runtime.register("m", shift(2.0))
        assert client.post("/predict/m", ROW).json["top"] == replies[0]["top"] + 1.0
        server.service.runtime.register("n", shift(3.0))
        server.service.runtime.unregister("m")
        assert client.post("/predict/n", ROW).status == 200
        assert [each.name for each in cached.stats()] == ["n"]


class Slow(Passing):
    """Answers when it is let."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.quick = self._never
        self.waiting: list[tuple[InferCall, Future[Any]]] = []

    def _never(self, version: ModelVersion, batch: Batch) -> None:
        """Nothing is over at once."""

    def answer(self, ask: InferCall) -> Future[dict[str, Any]]:
        made: Future[Any] = Future()
        self.waiting.append((ask, made))
        return made


def test_a_crowd_is_counted_in_and_out() -> None:
    with serving(max_waiting=2) as (server, client):
        runtime, slow = server.service.runtime, Slow(server.service.runtime)
        server.service.answering = slow
        statuses: list[int] = []

        def ask() -> None:
            statuses.append(client.post("/predict/m", ROW).status)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: server.service.waiting == 2)
        refused = client.post("/predict/m", ROW)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert client.get("/v2/health/live").status == 200
        for asked, made in slow.waiting:
            made.set_result(runtime.predict("m", asked.batch.data))
        for thread in threads:
            thread.join(60)
        assert statuses == [200, 200]
        server.service.answering = runtime.direct
        assert server.service.waiting == 0
        with client.raw() as connection:  # one that hangs up is counted out, too
            server.service.answering = gone = Slow(runtime)
            connection.sendall(
                b"POST /predict/m HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n[0,1,2,3]"
            )
            until(lambda: gone.waiting)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: not server.service.waiting)
        until(gone.waiting[0][1].cancelled)  # a turn of the loop later


def test_what_a_call_should_take() -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0))
        served = runtime.endpoints.find("m")
        few, many = runtime.direct.expected(served, 1), runtime.direct.expected(served, 1_000_000)
        assert few is not None
        assert many is not None
        assert 0 < few < many


def test_a_client_has_so_many_requests_on_their_way(tmp_path: Path) -> None:
    """Two without a token, three with one, however they come; who gives up makes room."""
    path = tmp_path / "tokens"
    path.write_text(f"alice {ALICE}\n", encoding="utf-8")
    known = {"Authorization": f"Bearer {ALICE}"}
    settings = {"tokens": str(path), "tokens_required": False}
    with serving(**settings, anonymous_at_once=2, known_at_once=3) as (server, client):
        slow = server.service.answering = Slow(server.service.runtime)
        for headers, most in (({}, 2), (known, 3)):
            for _ in range(3):
                found = _asked_at_once(server, client, slow, headers, most)
                assert found == [200] * most + [429] * (8 - most)
        # Three that hang up before they are answered.
        for _ in range(3):
            with client.raw() as gone:
                head = f"POST /predict/m HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\n"
                gone.sendall(f"{head}Content-Length: 20\r\n\r\n[0.0, 1.0, 2.0, 3.0]".encode())
                until(lambda: server.service.waiting == 1)
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            until(lambda: not server.service.waiting)
        slow.waiting.clear()
        assert _asked_at_once(server, client, slow, known, 3) == [200] * 3 + [429] * 5


def _asked_at_once(
    server: Server, client: Client, slow: Slow, headers: dict[str, str], most: int
) -> list[int]:
    """What eight requests at the same time are answered, the smallest status first."""
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(client.post("/predict/m", ROW, headers).status)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(statuses) == 8 - most)
    until(lambda: len(slow.waiting) == most)
    assert client.get("/v2/health/live").status == 200
    for asked, made in slow.waiting:
        made.set_result(server.service.runtime.predict("m", asked.batch.data))
    slow.waiting.clear()
    for thread in threads:
        thread.join(60)
    return sorted(statuses)
