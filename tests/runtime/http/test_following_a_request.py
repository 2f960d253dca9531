"""The page docs/contributing/following-a-request.md, held against a request."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from threading import Event
from types import FrameType

import flour
from runtime import Runtime
from runtime.http import Server
from tests.runtime.http.client import Client

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/contributing/following-a-request.md").read_text(encoding="utf-8")
STEPS = re.findall(r"\| `(runtime/[\w/]+\.py)` \| `([\w.]+)` \|", PAGE)
BODY = '{"inputs": [{"name": "x", "datatype": "FP64", "shape": [3, 4], "data": %s}]}'


def test_a_request_passes_these_functions_in_this_order() -> None:
    assert len(STEPS) > 10
    called: list[tuple[str, str]] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            called.append((code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname))

    body = (BODY % ([1.0] * 12)).encode()
    linear = flour.vector("x", 4).linear([[1.0, 2.0, 3.0, 4.0]], [1.0])
    with Runtime(executors=1) as runtime:
        runtime.register("rows", linear, background=False)
        with Server(runtime) as server:
            client, ready = Client(server.port), Event()
            first = client.post("/v2/models/rows/infer", body)

            def begin() -> None:
                sys.setprofile(look)
                ready.set()

            assert server.loop is not None
            server.loop.call_soon_threadsafe(begin)
            assert ready.wait(10.0)
            # Of another length, as a head that came before is not parsed again.
            assert client.post("/v2/models/rows/infer", body + b" ").body == first.body
            server.loop.call_soon_threadsafe(sys.setprofile, None)
    rest = iter(called)
    for step in STEPS:
        assert any(each == step for each in rest), f"{step} is not called after those before it"
