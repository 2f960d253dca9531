"""The log of the process, and the id of a request on its way through everything."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.request_ids import id_of
from pretzel import Client as Asking
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.watch.logs import configure
from runtime.http.wire.messages import Request
from tests.house import ROOT, run_python, until
from tests.runtime.http.client import Client
from tests.runtime.plans import shift

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
MADE = re.compile(r"[0-9a-f]{10}-[0-9a-f]+-[0-9a-f]+").fullmatch
ROW = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP64", "data": [0.0, 1.0, 2.0, 3.0]}]}


@pytest.fixture
def log() -> Iterator[None]:
    """The logger of the process, which is left as it was."""
    found = logging.getLogger("pretzel")
    former = found.handlers, found.level, found.propagate
    yield
    found.handlers, found.propagate = former[0], former[2]
    found.setLevel(former[1])


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-request-id": "a-1:b"}, "a-1:b"),
        ({"X-Request-Id": "a", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}, "a"),
        ({"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}, TRACE),
        ({"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"}, None),
        ({"x-request-id": 'a", "b": "c'}, None),
        ({"x-request-id": "x" * 129}, None),
        ({}, ""),
    ],
)
def test_the_id_is_the_clients_or_a_new_one(headers: dict[str, str], expected: str | None) -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0), background=False)
        with Server(runtime, ServerSettings(port=0)) as server:
            client = Client(server.port)
            good = client.post("/v2/models/m/infer", ROW, headers).headers.get("x-request-id", "")
            bad = client.post("/v2/models/n/infer", ROW, headers).headers["x-request-id"]
    assert MADE(bad) if not expected else bad == expected
    assert good == "" if expected == "" else (MADE(good) if expected is None else good == expected)
    assert len({id_of(None) for _ in range(9)}) == 9


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_id_is_in_logs_and_reaches_other_servers(tmp_path: Path, protocol: str) -> None:
    """A graph asks another server; each has the id in its log and its answer."""
    near, far = tmp_path / "near", tmp_path / "far"
    with Runtime(executors=1) as runtime, Runtime(executors=1) as graphs:
        runtime.register("m", shift(1.0), background=False)
        with Server(runtime, ServerSettings(port=0, access_log=far)) as behind:
            row = flour.vector("x", 4)
            url = f"{behind.url}/v2/models/m"
            asked = flour.call(url, inputs={"x": row}, output="top", gives=float, timeout=30.0)
            graphs.register("g", oven.bake(flour.outputs(top=asked)), background=False)
            with Server(graphs, ServerSettings(port=0, access_log=near)) as server:
                more: dict[str, Any] = {"headers": {"x-request-id": "r-7"}, "protocol": protocol}
                with Asking(server.url, **more) as client:
                    top = client.predict("g", np.array([[0.0, 1.0, 2.0, 3.0]]))["top"]
                    assert top.tolist() == [4.0]
    for path in (near, far):
        assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["r-7"]


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("form", ["json", "text"])
def test_errors_of_ours_are_logged_with_the_id(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    def broken(request: Request) -> None:
        raise LookupError(f"of ours: {request.path}")

    settings = ServerSettings(port=0, log_format=form, log_level="error")
    with Runtime(executors=1) as runtime, Server(runtime, settings, guards=[broken]) as server:
        Client(server.port).post("/predict/m", [], {"x-request-id": "r-7"})
    said = capsys.readouterr().err
    if form == "text":
        assert "ERROR pretzel.http [r-7]: a request failed" in said
        return
    (line,) = map(json.loads, said.splitlines())
    assert "LookupError: of ours" in line["error"]
    assert (line["level"], line["logger"], line["request"]) == ("error", "pretzel.http", "r-7")


@pytest.mark.usefixtures("log")
def test_a_line_that_is_lost_tells_nothing_of_what_was_handled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As where standard error was closed, or its disk is full."""
    configure(ServerSettings(log_format="json"))
    (handler,) = logging.getLogger("pretzel").handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(closed := StringIO())
    closed.close()
    try:
        raise ValueError("rq9val")
    except ValueError:
        logging.getLogger("pretzel.http").exception("refused: %s", "rq9val")
    said = capsys.readouterr().err
    assert said == "pretzel: a line of pretzel.http was not logged: ValueError\n"


def test_a_log_of_json_takes_all_that_a_process_says() -> None:
    said = run_python(
        "import logging, sys, warnings; sys.stderr = sys.stdout\n"
        "from runtime.http import ServerSettings\n"
        "from runtime.http.watch.logs import EVENTS, of_process, put_level\n"
        "of_process(ServerSettings(log_format='json'))\n"
        "warnings.warn('of a library', UserWarning)\n"
        "logging.getLogger('library').warning('a log of its own')\n"
        "EVENTS.info('loaded', extra={'fields': {'kind': 'loaded', 'seconds': 0.5}})\n"
        "put_level('warning'); EVENTS.info('loaded')\n"
    )
    lines = [json.loads(line) for line in said.splitlines()]
    assert [(each["level"], each["logger"]) for each in lines] == [
        *(("warning", "py.warnings"), ("warning", "library"), ("info", "pretzel.serve"))
    ]
    assert "of a library" in lines[0]["message"]
    assert (lines[2]["message"], lines[2]["kind"], lines[2]["seconds"]) == ("loaded", "loaded", 0.5)


def test_the_level_is_changed_in_all_workers(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    shift(1.0).save(tmp_path / "models" / "m.pretzel")
    tokens = tmp_path / "tokens"
    tokens.write_text("reader 0123456789abcdef read\nwriter 0123456789abcdeg\n")
    command = ["serve", str(tmp_path / "models"), "--port", "0", "--workers", "2", "--json"]
    more = ["--tokens", str(tokens), "--log-level", "warning", "--log-format", "json"]
    with subprocess.Popen(
        [sys.executable, "-m", "runtime", *command, *more], stdout=subprocess.PIPE, cwd=ROOT
    ) as server:
        assert server.stdout is not None
        client = Client(int(json.loads(server.stdout.readline())["url"].rpartition(":")[2]))
        try:
            reading, writing = ({"authorization": f"Bearer 0123456789abcde{x}"} for x in "fg")
            body = {"level": "debug"}
            assert client.post("/v2/log-level", body, reading).status == 403
            assert client.post("/v2/log-level", {"level": "loud"}, writing).status == 400
            assert client.ask("GET", "/v2/log-level", headers=reading).json["level"] == "warning"
            assert client.post("/v2/log-level", body, writing).json == body
            levels = [client.ask("GET", "/v2/log-level", headers=reading).json for _ in range(20)]
            assert levels == [body] * 20
        finally:
            server.terminate()
    until(lambda: server.poll() == 0)
