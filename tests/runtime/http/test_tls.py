"""TLS: answers inside it, files that change under connections, files that are wrong, names."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from flour.core.errors import ParameterError
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.watch.telemetry import check
from runtime.http.wire import tls as tls_module
from runtime.http.wire.messages import Request
from runtime.http.wire.tls import TlsFiles
from tests.house import until
from tests.runtime.http.certificates import Authority
from tests.runtime.http.frames import Talk, head
from tests.runtime.plans import shift


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("certificates"))
    made.server()
    made.sign("client", "shop", "DNS:shop.example.com", "URI:spiffe://house/shop")
    return made


def files(authority: Authority, **more: Any) -> ServerSettings:
    """The settings of a server with TLS."""
    here = authority.folder
    names = {"tls_cert": here / "server.pem", "tls_key": here / "server.key", "port": 0}
    return ServerSettings(**{**names, "max_unread": 0.0, **more})


@contextmanager
def serving(settings: ServerSettings, *guards: Any) -> Iterator[Server]:
    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0))
        with Server(runtime, settings, guards=guards) as server:
            yield server


def ask(connection: HTTPSConnection, rows: int = 1, path: str = "/predict/m") -> tuple[int, Any]:
    body = json.dumps([[0.0, 1.0, 2.0, 3.0]] * rows)
    connection.request("POST", path, body, {"Accept": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def serial(connection: HTTPSConnection) -> object:
    assert isinstance(connection.sock, ssl.SSLSocket)
    return (connection.sock.getpeercert() or {}).get("serialNumber")


def test_answers_are_those_of_a_plain_connection(authority: Authority) -> None:
    """Of small bodies, of bodies beyond the parser, after refused ones, and of several at once."""
    with serving(files(authority, max_body=8 << 20)) as server:
        assert server.url == f"https://127.0.0.1:{server.port}"
        with closing(authority.connection(server.port)) as connection:
            for rows in (1, 3, 100_000, 2):
                status, answers = ask(connection, rows)
                assert (status, len(answers)) == (200, rows)
                assert answers[-1] == {"moved": [1.0, 2.0, 3.0, 4.0], "top": 4.0}
            assert ask(connection, 1, "/predict/nobody")[0] == 404
            assert isinstance(connection.sock, ssl.SSLSocket)
            once = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n"
            connection.sock.sendall(once * 3)
            said = b""
            while said.count(b'{"live":true}') < 3:
                said += connection.sock.recv(4096)
            connection.close()
            connection.request("POST", "/predict/m", b" " * (9 << 20))
            assert connection.getresponse().status == 413
        until(lambda: server.connections == 0)


def test_what_is_not_TLS_or_an_old_one_is_refused(authority: Authority) -> None:  # noqa: N802
    with serving(files(authority, header_seconds=0.3)) as server:
        old = authority.trusted()
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        client = HTTPSConnection("127.0.0.1", server.port, timeout=60, context=old)
        with closing(client), pytest.raises((ssl.SSLError, ConnectionError)):
            client.connect()
        for said in (b"\x16\x03\x01 no handshake", b"no method", b"GET", b""):  # and silent ones
            with socket.create_connection(("127.0.0.1", server.port), 60) as plain:
                plain.sendall(said)
                assert b"HTTP" not in plain.recv(100)
        modern = authority.trusted()
        modern.set_alpn_protocols(["h3", "http/1.1"])
        plain = socket.create_connection(("127.0.0.1", server.port), 60)
        with modern.wrap_socket(plain, server_hostname="localhost") as secured:
            assert secured.selected_alpn_protocol() == "http/1.1"
            assert secured.version() == "TLSv1.3"


@pytest.mark.parametrize("run", [asyncio.run, None])
@pytest.mark.parametrize(
    "said", [b"GET /v2 HTTP/1.1\r\n\r\n", b"DELETE /", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
def test_a_plain_request_is_told_that_the_port_speaks_tls(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, said: bytes, run: Any
) -> None:
    """On any event loop, even if it comes in two parts; and the server closes first."""
    if run is not None:
        monkeypatch.setattr("runtime.http.server.run", run)
    with serving(files(authority, header_seconds=30.0)) as server:
        with socket.create_connection(("127.0.0.1", server.port), 10) as plain:
            plain.sendall(said[:2])
            time.sleep(0.05)
            plain.sendall(said[2:])
            answer = http.client.HTTPResponse(plain)
            answer.begin()
            assert (answer.status, answer.getheader("connection")) == (400, "close")
            assert (answer.getheader("content-type") or "").startswith("text/plain")
            assert b"speaks TLS" in answer.read()
            assert plain.recv(100) == b""
        until(lambda: server.connections == 0)
        with closing(authority.connection(server.port)) as connection:
            assert ask(connection)[0] == 200


def test_the_end_does_not_wait_for_idle_clients(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.http.wire.connection._LINGER_SECONDS", 60.0)
    with serving(files(authority)) as server:
        idle = authority.connection(server.port)
        assert ask(idle)[0] == 200
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 15.0, "it would wait for the client's own end"
        idle.close()


def test_a_renewed_certificate_is_for_new_connections(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    with serving(files(authority)) as server, closing(authority.connection(server.port)) as kept:
        assert ask(kept)[0] == 200
        first = serial(kept)

        def renewed() -> object:
            with closing(authority.connection(server.port)) as new:
                assert ask(new)[0] == 200
                return serial(new)

        authority.server()
        server.reload()
        second = renewed()
        assert second != first
        assert (ask(kept)[0], serial(kept)) == (200, first)
        key.write_text("half of a key")
        server.reload()
        server.reload()
        assert renewed() == second
        (said,) = (each for each in caplog.messages if "former certificate stays" in each)
        assert str(key) in said
        certificate.unlink()
        server.reload()
        assert renewed() == second
        authority.server()
        until(lambda: renewed() != second, "a changed file is not noticed")
        assert ask(kept)[0] == 200


def test_files_are_read_again_when_they_change_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.server()
    made = TlsFiles(files(authority, tls_client_ca=authority.file))
    context = made.context
    assert not made.renew()
    assert made.context is context
    authority.file.write_text(authority.file.read_text() * 2)
    assert made.renew()
    assert made.context is not context
    assert made.renew(forced=True)


def encrypted(path: Path) -> None:
    command: list[str | Path] = ["openssl", "ec", "-in", path, "-out", path]
    command += ["-aes256", "-passout", "pass:secret"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def strangers(path: Path) -> None:
    Authority(path.parent).sign("stranger")[1].replace(path)


WRONG: list[tuple[str, Callable[[Path], object], str, str]] = [
    ("tls_cert", Path.unlink, "the certificate of the server cannot be read", "No such file"),
    ("tls_cert", lambda path: path.write_text("no"), "certificate of the server", "no certificate"),
    ("tls_key", Path.unlink, "the key of the certificate cannot be read", "No such file"),
    ("tls_key", encrypted, "the key of the certificate cannot be read", "it has a password"),
    ("tls_key", lambda path: path.write_text("no"), "this is not the key", "PEM lib"),
    ("tls_key", strangers, "this is not the key", "key values mismatch"),
    ("tls_client_ca", lambda path: path.write_text(""), "authorities of clients", "no certificate"),
    ("tls_client_ca", Path.unlink, "authorities of clients cannot be read", "No such file"),
]


@pytest.mark.parametrize(("name", "damage", "what", "found"), WRONG)
def test_a_wrong_file_is_named(
    tmp_path: Path, name: str, damage: Callable[[Path], object], what: str, found: str
) -> None:
    authority = Authority(tmp_path)
    authority.server()
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(authority.file.read_bytes())
    settings = files(authority, tls_client_ca=authorities)
    check(settings)
    path = Path(str(getattr(settings, name)))
    damage(path)
    with pytest.raises(ParameterError, match=what) as refused:
        check(settings)
    assert refused.value.where == str(path)
    assert found in str(refused.value.found)
    with Runtime(executors=1) as runtime, pytest.raises(ParameterError, match=what):
        Server(runtime, settings)


def test_a_certificate_that_is_too_weak_is_blamed_itself(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:512", "-nodes", "-subj", "/CN=x"]
    subprocess.run(
        [*command, "-out", certificate, "-keyout", key], check=True, capture_output=True, timeout=60
    )
    with pytest.raises(ParameterError, match="the certificate cannot be used") as refused:
        TlsFiles(files(authority))
    assert (refused.value.where, refused.value.found) == (str(certificate), "ee key too small")


@pytest.mark.parametrize("name", ["tls_key", "tls_client_ca"])
def test_no_file_is_without_a_certificate(name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name} is of a server with tls_cert") as refused:
        ServerSettings(**{name: "x.pem"})  # type: ignore[arg-type]  # of these names
    assert refused.value.where == f"ServerSettings.{name}"


@pytest.mark.parametrize("required", [True, False])
def test_clients_have_names(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, required: bool
) -> None:
    """Handshakes that fail are counted by their reason, and logged once in a few seconds."""
    caplog.set_level(logging.INFO, "pretzel.http")
    seen: list[tuple[str, ...]] = []

    def guard(request: Request) -> None:
        seen.append(request.certified)

    settings = files(authority, tls_client_ca=authority.file, tls_client_required=required)
    known = (authority.folder / "client.pem", authority.folder / "client.key")
    with serving(settings, guard) as server:
        with closing(authority.connection(server.port, known)) as connection:
            assert ask(connection)[0] == 200
        assert seen == [("shop.example.com", "spiffe://house/shop", "shop")]
        strange = Authority(tmp_path).sign("client", "shop")
        for certificate, comes in ((None, not required), (strange, False)):
            with closing(authority.connection(server.port, certificate)) as connection:
                if comes:
                    assert ask(connection)[0] == 200
                    assert seen[-1] == ()
                else:
                    with pytest.raises(OSError):
                        ask(connection)
        reasons = {"certificate verify failed", "peer did not return a certificate"}
        expected = dict.fromkeys(sorted(reasons)[: 1 + required], 1)
        until(lambda: server.service.handshakes.counts == expected)
        assert server.service.metrics is not None
        families = asyncio.run(server.service.metrics.everywhere())
        (failed,) = (each for each in families if "handshake" in each.name)
        assert {dict(labels)["reason"]: n for labels, n in failed.samples} == expected
        (line,) = (each for each in caplog.messages if "handshake" in each)
        assert line.startswith("a TLS handshake with 127.0.0.1 failed: ")
    assert tls_module.names_of(None) == ()


def test_clients_that_agree_on_http_2_get_it(authority: Authority) -> None:
    """Their certificates count there as well, and everybody else gets HTTP/1.1."""
    seen: list[tuple[str, ...]] = []

    def guard(request: Request) -> None:
        seen.append(request.certified)

    context = ssl.create_default_context(cafile=str(authority.file))
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(authority.folder / "client.pem", authority.folder / "client.key")

    def wrapped(plain: socket.socket) -> socket.socket:
        made = context.wrap_socket(plain, server_hostname="localhost")
        assert made.selected_alpn_protocol() == "h2"
        return made

    with serving(files(authority, tls_client_ca=authority.file), guard) as server:
        with closing(Talk(server.port, wrapped=wrapped)) as talk:
            heard = talk.ask(head("POST", "/predict/m"), b"[0.0, 1.0, 2.0, 3.0]")
            assert heard.headers[":status"] == "200"
        assert seen[0][0] == "shop.example.com"
        known = (authority.folder / "client.pem", authority.folder / "client.key")
        with closing(authority.connection(server.port, known)) as connection:
            assert ask(connection)[0] == 200


def test_a_name_in_a_certificate_has_rights(authority: Authority, tmp_path: Path) -> None:
    """With a file of clients those of its line; without one, all."""
    (tmp_path / "clients").write_text(f"web cert:shop.example.com predict\nbob {'b' * 20}\n")
    known = (authority.folder / "client.pem", authority.folder / "client.key")
    settings: dict[str, Any] = {"tls_client_ca": authority.file, "tls_client_required": False}
    for tokens, certificate, statuses in (
        (tmp_path / "clients", known, (200, 403)),
        (tmp_path / "clients", None, (401, 401)),
        (None, known, (200, 501)),
    ):
        log = tmp_path / f"log-{tokens is None}-{certificate is None}"
        with serving(files(authority, tokens=tokens, access_log=log, **settings)) as server:
            connection = authority.connection(server.port, certificate)
            paths = ("/predict/m", "/v2/repository/models/m/unload")
            assert tuple(ask(connection, path=path)[0] for path in paths) == statuses
            connection.close()
        name = certificate and ("web" if tokens else "shop.example.com")
        assert json.loads(log.read_text().splitlines()[0]).get("client") == name
