"""Webhooks of rollouts are told what happens, and end, whatever waits in their queue."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from runtime import Runtime
from runtime.rollout.webhook import WAITING, Webhook
from tests.house import until
from tests.runtime.conftest import Clock
from tests.runtime.rollout.conftest import register
from tests.runtime.rollout.test_rollout import begun


def test_events_are_told_to_an_address_also_when_it_fails_at_first() -> None:
    told: list[dict[str, Any]] = []
    failing = [True]

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if failing:
                failing.pop()
                self.send_response(500)
            else:
                told.append(json.loads(body))
                self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server, Runtime() as runtime:
        register(runtime)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/events"
        made = begun(runtime, Clock(), webhook=address)
        made.abort("as a trial")
        until(lambda: len(told) == 2)
        server.shutdown()
    assert [each["event"] for each in told] == ["started", "aborted"]
    assert told[1]["reason"] == "as a trial"


def test_threads_of_webhooks_end() -> None:
    with Runtime() as runtime:
        register(runtime)
        begun(runtime, Clock(), webhook="http://127.0.0.1:1/x")
    until(lambda: not any(each.name == "pretzel-webhook" for each in threading.enumerate()))


def test_a_webhook_whose_queue_is_full_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, go_on = list[bytes](), threading.Event()

    def post(_: Webhook, body: bytes) -> bool:
        go_on.wait(30)
        taken.append(body)
        return True

    monkeypatch.setattr(Webhook, "_post", post)
    made = Webhook("http://127.0.0.1:1/x")
    for number in range(WAITING + 2):
        made.tell({"number": number})
    made.close()
    go_on.set()
    until(lambda: not any(each.name == "pretzel-webhook" for each in threading.enumerate()))
    assert len(taken) + made.lost == WAITING + 3  # the word that it ends among them
