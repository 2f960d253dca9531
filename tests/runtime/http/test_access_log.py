"""The log of requests: what is in it, what never is, rotation, and what goes wrong."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from flour.core.errors import ParameterError
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.watch import access_log
from runtime.http.watch.access_log import AccessLog
from runtime.http.wire.messages import Request, Response
from tests.house import until
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import filled

TOKEN = "t" * 20


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def ask(path: str = "/v2") -> Request:
    request = Request("GET", path, "", {}, b"secret body")
    request.peer = "10.0.0.1"
    return request


def test_what_is_written(tmp_path: Path) -> None:
    log, tokens = tmp_path / "access.log", tmp_path / "tokens"
    tokens.write_text(f"alice {TOKEN}\n", encoding="utf-8")
    settings = ServerSettings(
        port=0, access_log=str(log), tokens=str(tokens), tokens_required=False
    )
    with Runtime(executors=1) as runtime:
        filled(runtime)
        with Server(runtime, settings) as server:
            client = Client(server.port)
            known = {"Authorization": f"Bearer {TOKEN}", "X-Request-Id": "abc-1"}
            answer = client.post("/predict/iris?key=hidden", [1, 2, 3, 4], known)
            client.get("/nobody")
    first, second = lines(log)
    assert datetime.fromisoformat(first.pop("time")).tzinfo is not None
    assert 0 < first.pop("seconds") < 30
    assert first == {
        "peer": "127.0.0.1",
        "method": "POST",
        "path": "/predict/iris",
        "status": 200,
        "bytes": len(answer.body),
        "client": "alice",
        "model": "iris",
        "version": "1",
        "id": "abc-1",
    }
    assert second.keys() == {"time", "peer", "method", "path", "status", "bytes", "seconds", "id"}
    assert second["status"] == 404
    text = log.read_text(encoding="utf-8")
    assert TOKEN not in text
    assert "hidden" not in text


def test_a_share_of_what_went_well_and_all_that_did_not(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "log"), 0.1)
    for number in range(100):
        log(ask(), Response(status=500 if number % 10 == 0 else 200), 0.001)
    log.close()
    statuses = [line["status"] for line in lines(tmp_path / "log")]
    assert statuses.count(500) == 10
    assert statuses.count(200) in {8, 9}  # a tenth of ninety, as floats add up


def test_lines_stay_lines(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "log"))
    log(ask('/a\n{"status": 200}\x00"é' + "x" * 2000), Response(), 0.001)
    log.close()
    (line,) = lines(tmp_path / "log")
    assert line["path"].startswith('/a\n{"status": 200}\x00"é')
    assert len(line["path"]) == access_log.LONGEST


def test_a_file_that_is_moved_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = AccessLog(str(path))
    log(ask("/one"), Response(), 0.001)
    log.flush()
    path.rename(tmp_path / "log.1")
    log(ask("/two"), Response(), 0.001)
    log.close()
    assert [line["path"] for line in lines(tmp_path / "log.1")] == ["/one"]
    assert [line["path"] for line in lines(path)] == ["/two"]


def test_it_is_written_without_being_asked(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "log"))
    log(ask(), Response(), 0.001)
    until(lambda: lines(tmp_path / "log"))
    assert len(lines(tmp_path / "log")) == 1
    log.close()


def test_a_file_that_is_there_is_appended_to(tmp_path: Path) -> None:
    for path in ("/one", "/two"):
        log = AccessLog(str(tmp_path / "log"))
        log(ask(path), Response(), 0.001)
        log.close()
    assert [line["path"] for line in lines(tmp_path / "log")] == ["/one", "/two"]


def test_too_many_at_once_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access_log, "MOST", 3)
    monkeypatch.setattr(access_log, "EVERY", 60.0)
    log = AccessLog(str(tmp_path / "log"))
    for _ in range(5):
        log(ask(), Response(), 0.001)
    log.close()
    assert len(lines(tmp_path / "log")) == 3
    assert "lost 2 lines" in caplog.text


def test_a_full_disk_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    log = AccessLog(str(full))
    for _ in range(3):
        log(ask(), Response(), 0.001)
        log.flush()
    log.close()
    assert caplog.text.count("cannot be written") == 1


def test_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    log = AccessLog("-")
    log(ask(), Response(b"12345"), 0.001)
    log.close()
    assert json.loads(capfd.readouterr().err)["bytes"] == 5


def test_a_file_that_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="the access log cannot be written") as refused:
        AccessLog(str(tmp_path / "none" / "log"))
    assert refused.value.hint


@pytest.mark.parametrize("name", ["access_log_share", "trace_stages"])
def test_shares_are_shares(name: str) -> None:
    with pytest.raises(ParameterError, match="is a finite number from 0 to 1"):
        ServerSettings(**{name: 1.5})  # type: ignore[arg-type]  # one of two fields
