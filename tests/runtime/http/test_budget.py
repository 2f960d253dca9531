"""New questions of a client are counted by their bytes, and refused beyond its budget."""

from __future__ import annotations

import numpy as np

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.guard.guards import DAY, Budget, Sender
from runtime.http.wire.messages import Request
from tests.runtime.http.client import Client


def asked(peer: str, body: bytes) -> Request:
    request = Request("POST", "/predict/m", "", {}, body)
    request.peer = peer
    return request


def test_repeated_questions_cost_nothing_and_a_day_ends() -> None:
    now = [0.0]
    budget = Budget(lambda each: Sender(each.peer, known=False), 100, lambda: now[0])
    assert budget(asked("a", b"x" * 60)) is None
    assert all(budget(asked("a", b"x" * 60)) is None for _ in range(9))
    refused = budget(asked("a", b"y" * 60))
    assert refused is not None
    assert refused.status == 429
    assert dict(refused.headers)["Retry-After"] == str(int(DAY))
    assert budget(asked("a", b"z" * 40)) is None
    assert budget(asked("b", b"y" * 60)) is None
    now[0] = DAY
    assert budget(asked("a", b"y" * 60)) is None


def test_over_http() -> None:
    with Runtime() as runtime:
        runtime.register(
            "m", flour.vector("x", 2).linear_regressor(np.ones(2), 0.1), background=False
        )
        with Server(runtime, ServerSettings(port=0, new_bytes_a_day=30)) as server:
            client = Client(server.port)
            statuses = [client.post("/predict/m", [float(n), 2.0]).status for n in (1, 1, 2, 3, 4)]
            assert statuses == [200, 200, 200, 200, 429]
            assert client.post("/predict/m", [1.0, 2.0]).status == 200
            assert client.get("/v2/health/ready").status == 200
