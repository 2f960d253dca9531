"""A socket in the file system: who may connect, what it replaces, and that nothing is left."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.server import ServerError, listen
from runtime.http.wire import unix_socket
from tests.runtime.http.certificates import Authority
from tests.runtime.http.client import Reply, replies
from tests.runtime.plans import shift

ASKED = b"POST /predict/m HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n[0,1,2,3]"


def connected(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(60)
    made.connect(str(path))
    return made


def ask(path: Path, asked: bytes = ASKED) -> Reply:
    with connected(path) as connection:
        connection.sendall(asked)
        return replies(connection)[0]


def test_a_server_at_a_path(tmp_path: Path) -> None:
    path = tmp_path / "pretzel.sock"
    settings = ServerSettings(host=f"unix:{path}", max_unread=0.0, unix_mode="620")
    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0))
        for _ in range(2):  # the path is free again
            with Server(runtime, settings) as server:
                assert (server.url, server.port) == (f"unix:{path}", 0)
                assert path.stat().st_mode & 0o777 == 0o620
                assert ask(path).json == {"moved": [1.0, 2.0, 3.0, 4.0], "top": 4.0}
                with pytest.raises(ServerError, match="cannot listen here") as refused:
                    Server(runtime, settings).start()
                assert refused.value.found == "another server listens there"
                assert ask(path).status == 200
            assert not path.exists()


def test_TLS_at_a_path(tmp_path: Path) -> None:  # noqa: N802 (its name)
    path, authority = tmp_path / "pretzel.sock", Authority(tmp_path)
    certificate, key = authority.server()
    settings = ServerSettings(host=f"unix:{path}", tls_cert=certificate, tls_key=key)
    trusted = authority.trusted()
    with (
        Runtime(executors=1) as runtime,
        Server(runtime, settings),
        trusted.wrap_socket(connected(path), server_hostname="localhost") as made,
    ):
        made.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert replies(made)[0].json == {"live": True}


def test_what_is_left_of_a_killed_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pretzel.sock"
    settings = ServerSettings(host=f"unix:{path}")
    listen(settings).close()  # as if killed: the file stays
    assert path.is_socket()
    with listen(settings) as first:
        unix_socket.remove_file(settings.host)
        assert path.is_socket(), "somebody listens there"
        first.close()
        second = listen(settings)
        unix_socket.close(second)
        assert not path.exists()


def _file(path: Path) -> None:
    path.write_text("a letter")


def _link(path: Path) -> None:
    path.with_name("letter").write_text("a letter")
    path.symlink_to(path.with_name("letter"))


@pytest.mark.parametrize(
    ("name", "there", "found"),
    [
        ("s", _file, "there is a file that is not a socket"),
        ("s", _link, "there is a file that is not a socket"),
        ("none/s", None, "No such file or directory"),
        ("x" * 120, None, "AF_UNIX path too long"),
    ],
)
def test_a_path_that_cannot_be_had(
    tmp_path: Path, name: str, there: Callable[[Path], None] | None, found: str
) -> None:
    path = tmp_path / name
    if there is not None:
        there(path)
    with pytest.raises(ServerError, match="cannot listen here") as refused:
        listen(ServerSettings(host=f"unix:{path}"))
    assert (refused.value.where, refused.value.found) == (f"unix:{path}", found)
    assert "107 bytes" in str(refused.value.hint)
    unix_socket.remove_file(f"unix:{path}")
    assert path.exists() is (there is not None)


def test_a_full_queue_is_somebody_who_listens(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(str(path))
        unix_socket.remove_file(f"unix:{path}")
        assert path.exists()
        for each in waiting:
            each.close()
