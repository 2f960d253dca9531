"""TLS of our own on sockets: records in pieces, slow readers, damage, and ends of either side."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.wire import connection, tls_transport
from tests.house import until
from tests.runtime.http.certificates import Authority
from tests.runtime.plans import shift

ROW = [0.0, 1.0, 2.0, 3.0]
ANSWER = {"moved": [1.0, 2.0, 3.0, 4.0], "top": 4.0}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("certificates"))
    made.server()
    return made


@pytest.fixture
def server(authority: Authority) -> Iterator[Server]:
    certificate, key = (str(authority.folder / name) for name in ("server.pem", "server.key"))
    settings = ServerSettings(port=0, max_unread=0.0, tls_cert=certificate, tls_key=key)
    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0), background=False)
        with Server(runtime, settings) as made:
            yield made


class Peer:
    """A client that decides itself when encrypted bytes go."""

    def __init__(self, authority: Authority, port: int, *, last: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.coming, self.going = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = authority.trusted()
        if not last:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        self.tls = context.wrap_bio(self.coming, self.going, server_hostname="localhost")

    def shake(self, piece: int) -> None:
        """Shake hands, with so many bytes at once."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.send(piece)
                self.coming.write(self.socket.recv(65536))
            else:
                self.send(piece)
                return

    def send(self, piece: int = 1 << 20) -> None:
        """Send what is encrypted, with so many bytes at once."""
        data = self.going.read()
        for at in range(0, len(data), piece):
            self.socket.sendall(data[at : at + piece])

    def request(self, rows: object) -> None:
        """Encrypt a request."""
        body = json.dumps(rows).encode()
        head = f"POST /predict/m HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        self.tls.write(head.encode() + body)

    def read(self) -> bytes:
        """Bytes that are there, or come next; none once the server has said that it ends."""
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLWantReadError:
                data = self.socket.recv(65536)
                assert data, "the server ends without saying so"
                self.coming.write(data)

    def answers(self, count: int) -> list[object]:
        """The bodies of as many answers."""
        said = b""
        while True:
            said += self.read()
            parts = [each.partition(b"\r\n\r\n") for each in said.split(b"HTTP/1.1 ")[1:]]
            lengths = [
                re.search(rb"content-length: (\d+)", head, re.IGNORECASE) for head, _, _ in parts
            ]
            whole = [
                length is not None and len(body) == int(length[1])
                for length, (_, _, body) in zip(lengths, parts, strict=True)
            ]
            if len(whole) == count and all(whole):
                return [json.loads(body) for _, _, body in parts]


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_records_may_come_in_pieces(
    authority: Authority, server: Server, piece: int, *, last: bool
) -> None:
    """In TLS 1.3 and 1.2, several requests in one; then the client says that it ends."""
    peer = Peer(authority, server.port, last=last)
    peer.shake(piece)
    for rows in (1, 2, 3):
        peer.request([ROW] * rows)
    peer.send(piece)
    assert peer.answers(3) == [[ANSWER], [ANSWER] * 2, [ANSWER] * 3]
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    peer.send(piece)
    assert peer.read() == b""
    peer.socket.close()
    until(lambda: server.connections == 0)


def test_a_large_answer_waits_for_a_slow_reader(authority: Authority, server: Server) -> None:
    peer = Peer(authority, server.port)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    peer.shake(1 << 20)
    peer.request([ROW] * 100_000)
    peer.send()
    peer.request([ROW])
    peer.send()
    big, small = peer.answers(2)
    assert (big, small) == ([ANSWER] * 100_000, [ANSWER])
    peer.socket.close()
    until(lambda: server.connections == 0)


def test_a_damaged_record_ends_the_connection(
    authority: Authority, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(authority, server.port)
    peer.shake(1 << 20)
    peer.request(ROW)
    peer.send()
    assert peer.answers(1) == [ANSWER]
    peer.request(ROW)
    data = bytearray(peer.going.read())
    data[-1] ^= 1
    peer.socket.sendall(data)
    with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac"):
        peer.read()
    peer.socket.close()
    until(lambda: server.connections == 0)
    assert caplog.text == ""


def test_a_client_that_never_ends_is_ended(
    authority: Authority, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told that nothing more comes, and has a moment to say so, too."""
    monkeypatch.setattr(tls_transport, "_LINGER_SECONDS", 0.1)
    monkeypatch.setattr(connection, "_LINGER_SECONDS", 1e9)  # it would end it, too
    peer = Peer(authority, server.port)
    peer.shake(1 << 20)
    peer.tls.write(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    peer.send()
    assert peer.answers(1) == [{"live": True}]
    assert peer.read() == b""
    until(lambda: server.connections == 0)
    peer.socket.close()


@pytest.mark.parametrize("reason", ["", "closed", "timeout", "plain"])
def test_handshakes_that_begin_and_do_not_end_are_counted(
    authority: Authority, reason: str
) -> None:
    """One without a byte is none: a balancer may look whether the port is open."""
    certificate, key = (str(authority.folder / name) for name in ("server.pem", "server.key"))
    begun = b"GET / HTTP/1.1\r\n\r\n" if reason == "plain" else b"\x16\x03\x01\x02\x00\x01"
    settings = ServerSettings(port=0, header_seconds=0.5, tls_cert=certificate, tls_key=key)
    with Runtime(executors=1) as runtime, Server(runtime, settings) as server:
        with socket.create_connection(("127.0.0.1", server.port), 10.0) as peer:
            peer.sendall(begun if reason else b"")
            if reason in {"", "closed"}:
                peer.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                while peer.recv(4096):
                    pass
        expected = {reason: 1} if reason else {}
        until(lambda: server.service.handshakes.counts == expected)
    assert server.service.handshakes.counts == expected  # all connections have ended
