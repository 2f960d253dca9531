"""The log of changes: who asked for which, with what answer; and that nobody evades it."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runtime import Runtime
from runtime.http import Server, ServerSettings
from tests.house import until
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import Folder
from tests.runtime.plans import shift

ALICE, BOB = "a" * 20, "b" * 20


class Slow(Folder):
    """A folder that loads models when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()

    def load(self, name: str) -> None:
        self.begun.set()
        assert self.go.wait(60)
        super().load(name)


@contextmanager
def serving(place: Path, folder: Folder, **settings: Any) -> Iterator[tuple[Client, Any]]:
    tokens, log = place / "tokens", place / "audit.jsonl"
    tokens.write_text(f"alice {ALICE} read,change\nbob {BOB} predict,read\n")

    def lines(count: int) -> list[dict[str, Any]]:
        until(lambda: len(log.read_text().splitlines()) >= count)
        return [json.loads(each) for each in log.read_text().splitlines()]

    made = ServerSettings(port=0, tokens=tokens, audit_log=log, **settings)
    with Runtime(executors=1) as runtime:
        runtime.register("iris", shift(1.0))
        runtime.register("iris", shift(2.0))
        with Server(runtime, made, repository=folder) as server:
            yield Client(server.port), lines


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "X-Request-Id": "r-1"}


def test_changes_and_attempts_are_written(tmp_path: Path) -> None:
    with serving(tmp_path, Folder()) as (client, lines):
        promote, load = "/v2/models/iris/promote", "/v2/repository/models/{}/load"
        asked: list[tuple[str, str, bytes, dict[str, str], int]] = [
            ("POST", load.format("iris"), b"{}", bearer(ALICE), 200),
            ("POST", load.format("none"), b"", bearer(ALICE), 404),
            ("PUT", "/v2/models/iris/route", b'{"champion": "1"}', bearer(ALICE), 200),
            ("POST", f"{promote}?version=2", b"", bearer(ALICE), 200),
            ("POST", promote, b"{" + b" " * 9999, bearer(BOB), 403),
            ("POST", promote, b"{}", {}, 401),
        ]
        for method, path, body, headers, status in asked:
            assert client.ask(method, path, body, headers).status == status, path
        assert client.ask("GET", "/v2/models", None, bearer(ALICE)).status == 200
        assert client.post("/predict/iris", [0, 1, 2, 3], bearer(BOB)).status == 200
        told = lines(6)
    assert len(told) == 6, "no other request is a change"
    for line, (method, path, body, headers, status) in zip(told, asked, strict=True):
        assert (line["method"], line["status"]) == (method, status)
        assert (line["path"], line["peer"]) == (path.partition("?")[0], "127.0.0.1")
        assert line["time"].startswith("20")
        assert line["seconds"] >= 0
        assert line["model"] == ("none" if "none" in path else "iris")
        assert line["id"] == headers.get("X-Request-Id", line["id"])
        assert line.get("change", "") == (body.decode()[:500] or path.partition("?")[2])
    assert [each.get("client") for each in told] == [*["alice"] * 4, "bob", None]
    errors = [each.get("error", "") for each in told]
    assert errors[1] == "there is no model 'none' in the folder"
    assert errors[4:] == ["this token does not allow that", "this needs a token"]
    assert not any(errors[each] for each in (0, 2, 3))
    assert ALICE not in (tmp_path / "audit.jsonl").read_text()


def test_who_hangs_up_is_written_down(tmp_path: Path) -> None:
    folder = Slow()
    with serving(tmp_path, folder, known_at_once=1) as (client, lines):
        folder.go.clear()
        with client.raw() as connection:
            head = "POST /v2/repository/models/spare/load HTTP/1.1\r\nhost: x\r\n{}\r\n"
            token = f"Authorization: Bearer {ALICE}\r\n"
            connection.sendall(head.format(token).encode())
            assert folder.begun.wait(60)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        (line,) = lines(1)
        assert (line["client"], line["status"], line["model"]) == ("alice", 499, "spare")
        assert line["error"] == "the client hung up before it was answered"
        folder.go.set()
        until(lambda: folder.states["spare"] == "READY")
        path = "/v2/repository/models/spare/unload"
        assert client.post(path, {}, bearer(ALICE)).status == 200, "it is no longer on its way"
        assert [each["status"] for each in lines(2)] == [499, 200]
