"""`pretzel serve`: a process that serves a folder, follows it, and ends when asked."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from runtime.cli.serving import server_settings
from runtime.cluster.serving import Scale
from runtime.errors import ClusterError
from tests.house import ended, started, until
from tests.runtime.cli.conftest import Pretzel
from tests.runtime.http.client import Client
from tests.runtime.repository.folders import age, save_plan
from tests.runtime.repository.test_graph_folders import graph, model

SERVE = (sys.executable, "-m", "runtime", "serve")


def asked(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(url, data, timeout=60) as response:
        return json.load(response)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    save_plan(tmp_path / "models" / "a.pretzel", 1.0)
    (tmp_path / "models" / "broken.txt").write_text("tree\n", encoding="utf-8")
    given = ("--poll", "0.05", "--store", tmp_path / "store", "--json")
    process = started(*SERVE, tmp_path / "models", "--port", "0", *given)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


def test_it_serves_follows_and_ends(
    server: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    process, url = server
    row = [0.0, 0.0, 0.0, 0.0]
    assert asked(f"{url}/predict/a", row)["top"] == 1.0
    save_plan(tmp_path / "models" / "a.pretzel", 2.0)
    age(tmp_path / "models" / "a.pretzel")
    until(lambda: asked(f"{url}/predict/a", row)["top"] == 2.0, "the new file is not served")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    models = [
        event for event in events if event["kind"] != "compiled"
    ]  # which needs an empty cache
    assert [(event["kind"], event["name"]) for event in models] == [
        ("loaded", "a"),
        ("refused", "broken"),
        ("replaced", "a"),
    ]


class Loud:
    """Says something when it is read, and ends the process that reads it."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("print('a word'); import os; os.abort()",)


@pytest.mark.parametrize("form", [["--json"], ["--log-format", "json"]])
def test_all_that_is_said_is_json(tmp_path: Path, form: list[str]) -> None:
    """What libraries print, and the last words of a process that crashed, are objects, too."""
    (tmp_path / "loud.pkl").write_bytes(pickle.dumps(Loud()))
    done = ended(*SERVE, tmp_path, "--port", "0", *form, "--trust-pickle", "--strict")
    assert done.returncode == 1, done.stderr
    said = [json.loads(line) for line in done.stderr.splitlines()]
    lines = [each["line"] for each in said if each.get("kind") == "said"]
    assert "a word" in lines
    assert "Fatal Python error: Aborted" in lines
    assert [each["reason"] for each in said if each.get("kind") == "refused"] != []
    assert "cannot be loaded" in said[-1].get("error", said[-1].get("message"))
    one_form = all({"time", "level", "logger", "message"} <= each.keys() for each in said)
    assert one_form is ("--json" not in form)


class Waits:
    """Keeps the process that reads it waiting, until there is a file."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def __reduce__(self) -> tuple[object, ...]:
        text = f"import os, time\nwhile not os.path.exists({str(self.gate)!r}): time.sleep(0.01)"
        return exec, (text,)


@contextmanager
def loading(tmp_path: Path, workers: int) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """A server whose folder has a model that is there, one that is being read, and a third."""
    models = tmp_path / "models"
    for name, offset in (("a", 1.0), ("c", 3.0)):
        save_plan(models / f"{name}.pretzel", offset)
    (models / "b.pkl").write_bytes(pickle.dumps(Waits(tmp_path / "gate")))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = ("--port", str(port), "--workers", str(workers), "--trust-pickle")
    process = started(*SERVE, models, *given)
    client = Client(port)

    def answers() -> bool:
        with suppress(OSError):
            return client.post("/predict/a", [0.0] * 4).status == 200
        return False

    try:
        until(answers, "a model that is there is not served")
        yield process, client
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


@pytest.mark.parametrize("workers", [1, 2])
def test_it_answers_while_its_folder_is_loaded(tmp_path: Path, workers: int) -> None:
    with loading(tmp_path, workers) as (process, client):
        assert client.get("/v2/health/live").status == 200
        until(lambda: "1 of 3" in client.get("/v2/health/ready").json.get("loading", ""))
        assert client.get("/v2/health/ready").status == 503
        for name in ("b", "c", "of_a_graph"):
            later = client.post(f"/predict/{name}", [0.0] * 4)
            assert (later.status, later.headers["retry-after"]) == (503, "1"), later.json
            assert "is being loaded" in later.json["error"]

        def states() -> set[str]:
            return {each["state"] for each in client.post("/v2/repository/index", {}).json}

        until(lambda: states() == {"READY", "LOADING"})  # another worker may be later
        (tmp_path / "gate").touch()
        assert process.stdout is not None
        assert process.stdout.readline().startswith("2 models at http://")
        until(lambda: client.get("/v2/health/ready").status == 200)
        assert client.post("/predict/c", [0.0] * 4).json["top"] == 3.0
        assert client.post("/predict/b", [0.0] * 4).status == 404
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_it_ends_while_its_folder_is_loaded(tmp_path: Path, workers: int) -> None:
    with loading(tmp_path, workers) as (process, _):
        process.send_signal(signal.SIGTERM)
        told, said = process.communicate(timeout=60)  # the process that imports has ended, too
    assert (process.returncode, told) == (0, ""), said
    assert not {"Traceback", "refused"} & {*re.findall(r"\w+", said)}, said


def test_it_waits_for_no_worker_when_it_is_to_end(tmp_path: Path) -> None:
    save_plan(tmp_path / "a.pretzel", 1.0)
    given = ("--port", "0", "--workers", "2", "--log-format", "json")
    with started(*SERVE, tmp_path, *given) as process:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        os.kill(first["process"], signal.SIGSTOP)  # it cannot get ready
        process.send_signal(signal.SIGTERM)
        before = [*takewhile(lambda line: "finishing" not in line, process.stderr)]
        os.kill(first["process"], signal.SIGCONT)
        told, said = process.communicate(timeout=60)
    assert (first["kind"], process.returncode, told) == ("started", 0, ""), said
    ready = [json.loads(line)["worker"] for line in before if '"ready"' in line]
    assert first["worker"] not in ready
    assert '"ready"' not in said


LEVELS = [
    ([], {"loaded", "refused", "finishing"}, "info"),
    (["--log-level", "warning"], {"refused"}, "warning"),
    (["--log-level", "error"], set[str](), "error"),
]


@pytest.mark.parametrize(("given", "told", "level"), LEVELS)
@pytest.mark.parametrize("form", [None, "text", "json"])
def test_events_are_logged_from_the_level_that_it_tells(
    tmp_path: Path, form: str | None, given: list[str], told: set[str], level: str
) -> None:
    """Files whose names have line feeds forge no lines."""
    save_plan(tmp_path / "a.pretzel", 1.0)
    (tmp_path / "b\npretzel: loaded c.txt").write_text("no model")
    given = ["--set", "drain_delay=0", *given, *(["--log-format", form] if form else [])]
    with started(*SERVE, tmp_path, "--port", "0", *given) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" at ")[1].strip()
        assert asked(f"{url}/v2/log-level") == {"level": level}
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    lines = [line for line in said.splitlines() if "compiled the code" not in line]
    starts = {
        None: "pretzel: (\\w+)",
        "text": r"\S+ \S+ [A-Z]+ pretzel.serve: (\w+)",
        "json": r'.*"message":"(\w+)',
    }
    found = [re.match(starts[form], line) for line in lines]
    assert [each[1] for each in found if each] == sorted(told, key=_ORDER.index), said
    assert len(lines) == len(told), said


_ORDER = ["loaded", "refused", "finishing"]


def test_strict_ends_where_something_is_wrong(pretzel: Pretzel, tmp_path: Path) -> None:
    (tmp_path / "broken.pretzel").write_bytes(b"no plan")
    ran = pretzel("serve", tmp_path, "--strict", "--port", "0")
    assert ran.code == 1
    assert "refused broken@1" in ran.err
    assert "1 of 1 models cannot be loaded" in ran.err


def test_a_graph_that_no_worker_can_link_is_told_of(pretzel: Pretzel, tmp_path: Path) -> None:
    """The process above them has loaded its file, and links nothing."""
    graph(tmp_path, "a", "b", 1)
    model(tmp_path / "b.pretzel", 1000, "y")
    ran = pretzel("serve", tmp_path, "--strict", "--port", "0", "--workers", "2")
    assert ran.code == 1
    assert "refused a@1: a worker cannot load this; a@1; model 'b' needs x, y" in ran.err
    assert "1 of 2 models cannot be loaded" in ran.err


def test_a_port_that_is_taken(pretzel: Pretzel, server: tuple[object, str], tmp_path: Path) -> None:
    save_plan(tmp_path / "a.pretzel", 1.0)
    port = re.findall(r"\d+", server[1])[-1]
    ran = pretzel("serve", tmp_path, "--port", port)
    assert ran.code == 1
    assert "cannot listen" in ran.err
    assert "loaded" not in ran.err, "it is known before models are loaded"


@pytest.mark.parametrize("workers", [1, 2])
def test_tokens_that_cannot_be_read(pretzel: Pretzel, tmp_path: Path, workers: int) -> None:
    save_plan(tmp_path / "a.pretzel", 1.0)
    none = tmp_path / "none"
    ran = pretzel("serve", tmp_path, "--port", "0", "--tokens", none, "--workers", str(workers))
    assert ran.code == 1
    assert "tokens cannot be read" in ran.err
    assert "loaded" not in ran.err


def test_settings() -> None:
    def made(*texts: str) -> Any:
        return server_settings(argparse.Namespace(host="::1", port=0, tokens=None, set=list(texts)))

    assert made("max_body=1M", "idle_seconds=2.5", "reuse_port=true").max_body == 1 << 20


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "x", "", "1e300"])
def test_seconds_of_the_commands_are_finite(text: str, pretzel: Pretzel) -> None:
    for command, option in (("serve", "--poll"), ("cluster", "--wait"), ("cluster", "--lease")):
        ran = pretzel(command, *["up"] * (command == "cluster"), "x", f"{option}={text}")
        assert ran.code == 2
        assert f"{text!r} is not a number from 0" in ran.err


def test_counts_of_the_commands_have_no_fractions(pretzel: Pretzel) -> None:
    for option in ("--memory", "--workers", "--executors", "--port", "--set=max_body"):
        ran = pretzel("serve", "x", f"{option}=1.5")
        assert ran.code == 2
        assert "1.5" in ran.err
    with pytest.raises(ClusterError, match="number of replicas"):
        Scale(1.5, 3)  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("max_bdy=1", "did you mean 'max_body'"),
        ("max_body=x", "max_body is an integer"),
        ("max_body", "settings are"),
        ("nothing=1", "no setting"),
        ("reuse_port=maybe", "reuse_port is"),
        ("port=99999", "port is an integer from 0 to 65535"),
        ("idle_seconds=-1", "idle_seconds is a finite number, 0.001 or more"),
    ],
)
def test_a_wrong_setting_is_a_wrong_argument(
    pretzel: Pretzel, tmp_path: Path, setting: str, said: str
) -> None:
    ran = pretzel("serve", tmp_path, "--set", setting)
    assert ran.code == 2
    assert said in ran.err
    assert f"--set {setting}" in ran.err
