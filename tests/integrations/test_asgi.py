"""The routes inside FastAPI under uvicorn: bodies, limits, files and the end of the server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import ROOT, until
from tests.runtime.http.client import Client

pytestmark = pytest.mark.integrations

APP = """
from contextlib import asynccontextmanager

import pretzel
from fastapi import FastAPI

runtime = pretzel.Runtime(executors=1)
x = pretzel.flour.vector("x", 2)
runtime.register("sum", pretzel.flour.outputs(sum=x.linear([[1.0, 1.0]], [0.0]).element(0)))
routes = pretzel.asgi(runtime, pretzel.ServerSettings(max_body=1 << 20, access_log="log"))


@asynccontextmanager
async def lifespan(app):
    yield
    await routes.close()


app = FastAPI(lifespan=lifespan)


@app.get("/own")
def own() -> dict[str, bool]:
    return {"own": True}


app.mount("/models", routes)
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port)]
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})

    def listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(lambda: process.poll() is not None or listening())
    try:
        yield Client(port)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code in {0, -signal.SIGTERM}
    paths = [json.loads(line)["path"] for line in (tmp_path / "log").read_text().splitlines()]
    assert paths[0] == "/predict/sum", "it was written when the application ended"


def test_all_routes_are_below_a_path(client: Client) -> None:
    assert client.post("/models/predict/sum", [1.0, 2.0]).json == {"sum": 3.0}
    assert client.get("/own").json == {"own": True}
    until(lambda: client.get("/models/v2/health/ready").json == {"ready": True})
    assert client.get("/models/nowhere").status == 404
    many = [[float(number), 1.0] for number in range(20_000)]
    assert client.post("/models/predict/sum", many).json[-1] == {"sum": 20_000.0}
    assert client.post("/models/predict/sum", b" " * (1 << 20) + b"[]").status == 413
    x = {"name": "x", "datatype": "FP64", "shape": [2, 2], "data": [1, 2, 3, 4]}
    infer = client.post("/models/v2/models/sum/infer", {"inputs": [x]})
    assert infer.json["outputs"][0]["data"] == [3.0, 7.0]
    head = b"POST /models/predict/sum HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    (told,) = client.say(head, b"3\r\n[1,\r\n", b"2\r\n2]\r\n0\r\n\r\n")
    assert told.json == {"sum": 3.0}
