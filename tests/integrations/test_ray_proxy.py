"""Ray Serve's proxy before addresses that never answer; Ray itself is not started."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest

pytestmark = pytest.mark.integrations


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_who_never_answers_is_a_bad_gateway(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    import aiohttp
    from starlette.requests import Request

    from runtime.cluster.serving import ray_proxy

    for name in ("_ANSWER", "_LOOK"):
        monkeypatch.setattr(ray_proxy, name, aiohttp.ClientTimeout(total=0.1))

    async def body() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"[1]", "more_body": False}

    scope = {"type": "http", "method": method, "path": "/v2/models/m", "headers": []}
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        passing = ray_proxy.Passing(f"http://127.0.0.1:{silent.getsockname()[1]}")

        async def asked() -> Any:
            request = Request({**scope, "query_string": b"", "server": ("x", 1)}, body)
            return await passing(request)

        began = time.monotonic()
        assert asyncio.run(asyncio.wait_for(asked(), 20.0)).status_code == 502
        assert time.monotonic() - began < 5.0


def test_calls_of_ray_without_a_limit_have_one() -> None:
    pytest.importorskip("ray")
    from runtime.cluster.serving.ray_proxy import within

    assert within(5.0, lambda: 7) == 7
    with pytest.raises(TimeoutError, match=r"Ray has not answered in 0\.05 s"):
        within(0.05, lambda: time.sleep(1.0))
    with pytest.raises(KeyError):
        within(5.0, lambda: dict[str, int]()["x"])
    with pytest.raises(TimeoutError, match="its own"):
        within(5.0, _late)


def _late() -> None:
    raise TimeoutError("its own")
