"""The front: an address that stays, where a client learns which replicas there are.

A request that comes here wakes a cluster without replicas, waits until there is one, and is passed
on. It is for clients that know nothing of replicas, for the first request, and a backup of HAProxy;
replicas themselves answer many times as fast.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from flour.core.errors import FlourError
from runtime.cluster.serving.bodies import HOMES, PATH, Homes, ReplicaAnswer, Roster
from runtime.cluster.serving.client import ClusterClient
from runtime.errors import ClusterError
from runtime.http.guard.guards import TokenFile
from runtime.http.server import listening, url_of
from runtime.http.wire.interfaces import Need
from runtime.http.wire.messages import JSON, Request, Response
from runtime.http.wire.settings import ServerSettings
from runtime.http.wire.tls import TlsFiles, context_of_peers, names_of

#: Headers that belong to one connection.
_SHAKE_SECONDS = 10.0
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "host"})


class Front:
    """Passes requests on, from threads."""

    def __init__(
        self,
        host: str,
        port: int,
        told: tuple[Callable[[], Roster], Callable[[], Homes]],
        wake: Callable[[], Roster],
        settings: ServerSettings | None = None,
    ) -> None:
        """Listen; `told` are what clients are told, `wake` returns when there is a replica.

        `settings` are those of the replicas, of which `tokens`, `max_body` and the files of TLS
        hold here as well.
        """
        (self.members, self.homes), self.wake = told, wake
        http = settings or ServerSettings()
        required, self.max_body = http.tokens_required, http.max_body
        self.tokens = None
        if http.tokens:
            need = Need("read", None, scoped=True)
            self.tokens = TokenFile(http.tokens, required=required, need_of=lambda _: need)
        self._settings = http
        self._tls = TlsFiles(http, ("http/1.1",)) if http.tls_cert else None
        with listening(host, port):
            self._server = _FrontServer((host, port), _Handler)
        self._server.front = self
        self._started = False
        known = context_of_peers(http) if self._tls else None
        self.client = ClusterClient(look=self.members, homes=self.homes, refresh=0.05, tls=known)

    @property
    def url(self) -> str:
        """Its address."""
        host, port = self._server.server_address[:2]
        return url_of(str(host), port, tls=self._tls is not None)

    def secured(self, connection: socket.socket) -> socket.socket:
        """A new connection inside TLS, if that is spoken here; files are looked at before."""
        if self._tls is None:
            return connection
        if self._tls.renew():
            self.client.tls = context_of_peers(self._settings)
        connection.settimeout(_SHAKE_SECONDS)
        return self._tls.context.wrap_socket(connection, server_side=True)

    def start(self) -> None:
        """Answer from threads, if that was not begun before."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._server.serve_forever, name="front", daemon=True).start()

    def passed_on(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> ReplicaAnswer:
        """The answer of a replica, which is waited for where there is none."""
        if not self.members().ready():
            self.wake()
        try:
            return self.client.request(method, path, body, headers)
        except ClusterError:
            if self.members().ready():
                raise
        self.wake()
        return self.client.request(method, path, body, headers)

    def stop(self) -> None:
        """Stop listening."""
        if self._started:
            self._server.shutdown()
        self._server.server_close()


class _FrontServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    front: Front

    def finish_request(self, request: object, client_address: object) -> None:
        """Answer the requests of a connection, on its thread."""
        assert isinstance(request, socket.socket), "this server listens by TCP"
        with suppress(OSError), self.front.secured(request) as connection:
            super().finish_request(connection, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    server: _FrontServer

    def _answer(self) -> None:
        front = self.server.front
        path = self.path.partition("?")[0]
        if path in {PATH, HOMES}:
            self._tell(path)
            return
        length, most = self.headers.get("content-length", "0"), front.max_body
        if not length.isdigit() or int(length) > most or "transfer-encoding" in self.headers:
            self.close_connection = True
            told = f"the front passes on bodies of a known length, of {most} bytes or less"
            self._send(413, {}, msgspec.json.encode({"error": told}))
            return
        body = self.rfile.read(int(length)) or None
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        try:
            found = front.passed_on(self.command, self.path, body, headers)
        except FlourError as problem:
            said = msgspec.json.encode({"error": str(problem)})
            self._send(503, {"content-type": JSON, "retry-after": "1"}, said)
            return
        self._send(found.status, found.headers, found.body)

    def _tell(self, path: str) -> None:
        """Answer who the replicas are, or the homes of models; it takes a token where they do."""
        front, given = self.server.front, self.headers.items()
        headers = {name.lower().encode(): value.encode("latin-1") for name, value in given}
        asked = Request(self.command, path, "", headers, b"")
        if isinstance(self.connection, ssl.SSLSocket):
            asked.certified = names_of(self.connection)
        refused = None if front.tokens is None else front.tokens(asked)
        told = front.members() if path == PATH else front.homes()
        answer = refused or Response(msgspec.json.encode(told))
        more = {"content-type": answer.content_type, **dict(answer.headers)}
        self._send(answer.status, more, answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _answer  # noqa: N815 (its names)

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _HOP | {"content-length"}:
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
        """Say nothing."""
