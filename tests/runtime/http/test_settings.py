"""Every setting of a server has an effect, or is refused when the server is made."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import fields
from math import nan
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import flour
from flour.core.errors import ParameterError
from flour.data.batch import Batch
from runtime import Runtime
from runtime.errors import BadRegistration
from runtime.http import Server, ServerSettings
from runtime.http.routes import HttpRoute
from runtime.http.server import ServerError, listen
from runtime.http.watch.logs import LogLines
from runtime.http.watch.metrics_energy import Packages
from runtime.http.watch.telemetry import check
from runtime.http.wire.interfaces import ModelState
from runtime.http.wire.messages import Request, Response
from runtime.service.answerers import InferCall
from runtime.service.version import ModelVersion
from tests.house import until
from tests.runtime.http.answering import Passing
from tests.runtime.http.certificates import Authority
from tests.runtime.http.client import Client, Reply
from tests.runtime.plans import shift, shift_flow

ALICE, BOB = "a" * 20, "b" * 20
ROW = [0.0, 1.0, 2.0, 3.0]
BODY = json.dumps(ROW).encode()
POST = b"POST /predict/m HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


class Recorded(Passing):
    """Answers as the runtime does, or never, and notes the rows of each call."""

    def __init__(self, runtime: Runtime, *, ever: bool = True) -> None:
        super().__init__(runtime)
        self.rows, self.ever, self.quick = list[int](), ever, self._never

    def _never(self, version: ModelVersion, batch: Batch) -> None:
        """Nothing is over at once."""

    def answer(self, call: InferCall) -> Future[dict[str, Any]]:
        self.rows.append(call.batch.rows)
        return super().answer(call) if self.ever else Future()


class House:
    """A model, a server for it with some settings, and a client; all are closed in the end."""

    def __init__(self, place: Path, patch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self.place, self.patch, self._stack = place, patch, stack
        self.runtime = stack.enter_context(Runtime(executors=1))
        self.runtime.register("m", shift(1.0))
        self.server: Server

    def serve(
        self, *, ever: bool | None = None, routes: Sequence[HttpRoute] = (), **settings: Any
    ) -> Client:
        """A client of a server with these settings; `ever` tells whether answers come at all."""
        self.answering = None if ever is None else Recorded(self.runtime, ever=ever)
        settings.setdefault("port", 0)
        made = Server(
            self.runtime,
            ServerSettings(**settings),
            answering=self.answering,
            routes=routes,
            repository=Partly(),
        )
        self.server = self._stack.enter_context(made)
        return Client(made.port)

    def statuses(self, count: int, headers: dict[str, str] | None = None, **settings: Any) -> Any:
        """The answers to so many requests, one after the other."""
        client = self.serve(**settings)
        return [client.post("/predict/m", ROW, headers).status for _ in range(count)]

    def tokens(self, text: str = f"alice {ALICE}\nbob {BOB} predict\n") -> Path:
        path = self.place / "tokens"
        path.write_text(text, encoding="utf-8")
        return path

    def after(self, sent: bytes, seconds: float, **settings: Any) -> bytes:
        """What a client hears so many seconds after it has sent this; empty if it is cut off."""
        client = self.serve(**settings)
        with client.raw() as connection:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n" + sent)
            said = b""
            while not said.endswith(b'{"live":true}'):
                said += connection.recv(1000)
            loop = self.server.loop
            loop.call_soon_threadsafe(self.server.check, perf_counter() + seconds)
            connection.settimeout(0.2)
            with suppress(TimeoutError):
                return connection.recv(1000)
            return b"nothing"

    @contextmanager
    def hanging(self, client: Client, head: bytes = b"") -> Iterator[None]:
        """While a request waits for its answer."""
        with client.raw() as connection:
            sent = POST % len(BODY)
            connection.sendall(sent.replace(b"\r\n\r\n", b"\r\n" + head + b"\r\n") + BODY)
            until(lambda: self.server.service.waiting == 1)
            yield
            # Hang up, so that nothing is left to wait for.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Partly:
    """A folder with a model that is served and one whose files are refused."""

    def index(self) -> Sequence[ModelState]:
        return ModelState("m"), ModelState("bad", state="UNAVAILABLE", reason="no", refused=True)

    def load(self, name: str) -> None:
        """There is nothing to load."""

    def unload(self, name: str) -> None:
        """Nothing is unloaded."""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(tmp_path, monkeypatch, stack)


Probe = Callable[[House], None]
PROBES: dict[str, Probe] = {}


def probe(*names: str) -> Callable[[Probe], Probe]:
    """Register the probe of these settings."""

    def register(made: Probe) -> Probe:
        PROBES.update(dict.fromkeys(names, made))
        return made

    return register


# --- listening ------------------------------------------------------------------------------------


@probe("host")
def _(house: House) -> None:
    port = house.serve(host="127.0.0.2").port
    assert house.server.url == f"http://127.0.0.2:{port}"
    socket.create_connection(("127.0.0.2", port), 5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


@probe("port", "reuse_port")
def _(house: House) -> None:
    port = house.serve(reuse_port=True).port
    assert house.serve(port=port, reuse_port=True).port == port
    with pytest.raises(ServerError, match="cannot listen here"):
        house.serve(port=port)
    for host in ("256.1.1.1", "192.0.2.1"):  # no address, and one of no machine
        with pytest.raises(ServerError, match="cannot listen here") as refused:
            house.serve(host=host)
        assert str(refused.value.hint).startswith("host is an address")


@probe("unix_mode")
def _(house: House) -> None:
    for mode in ("600", "666"):
        house.serve(host=f"unix:{house.place / mode}", unix_mode=mode)
        assert f"{(house.place / mode).stat().st_mode & 0o777:o}" == mode


@probe("tls_cert", "tls_key", "tls_client_ca", "tls_client_required")
def _(house: House) -> None:
    authority = Authority(house.place)
    certificate, key = authority.server()
    given: Any = {"tls_cert": certificate, "tls_key": key, "tls_client_ca": authority.file}
    for required in (True, False):
        client = house.serve(tls_client_required=required, **given)
        client.context = authority.trusted()
        with pytest.raises(OSError) if required else nullcontext():
            assert client.get("/v2").status == 200


@probe("backlog")
def _(house: House) -> None:
    with listen(ServerSettings(port=0, backlog=7)) as listener:
        assert _backlog(listener) == 7
        settings = ServerSettings(port=0, backlog=9)
        with Server(house.runtime, settings, sockets=[listener]):
            assert _backlog(listener) == 9


def _backlog(listener: socket.socket) -> int:
    """What Linux tells of a listening socket."""
    told = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    return int(struct.unpack_from("I", told, 28)[0])


@probe("max_connections")
def _(house: House) -> None:
    client = house.serve(max_connections=1)
    with client.raw():
        until(lambda: house.server.connections == 1)
        assert client.post("/predict/m", ROW).status == 503


@probe("max_header")
def _(house: House) -> None:
    client = house.serve(max_header=300)
    assert client.get("/v2", long="x" * 400).status == 431
    assert client.get("/v2", long="x" * 10).status == 200


@probe("max_body")
def _(house: House) -> None:
    client = house.serve(max_body=len(BODY))
    assert client.post("/predict/m", BODY).status == 200
    assert client.post("/predict/m", BODY + b" ").status == 413
    packed = gzip.compress(b" " * 9 + BODY)
    assert client.post("/predict/m", packed, {"Content-Encoding": "gzip"}).status == 413


@probe("header_seconds")
def _(house: House) -> None:
    assert b" 408 " in house.after(b"GET /v2 HTTP/1.1\r\n", 5.0, header_seconds=2)
    assert house.after(b"GET /v2 HTTP/1.1\r\n", 5.0) == b"nothing"


@probe("body_seconds", "body_rate")
def _(house: House) -> None:
    half = POST % 20 + b" " * 10
    assert b" 408 " in house.after(half, 5.0, body_seconds=2)
    assert house.after(half, 5.0, body_seconds=2, body_rate=1) == b"nothing"


@probe("idle_seconds")
def _(house: House) -> None:
    assert house.after(b"", 5.0, idle_seconds=2) == b""
    assert house.after(b"", 5.0) == b"nothing"


@probe("write_seconds")
def _(house: House) -> None:
    size = 32 << 20
    route = HttpRoute("GET", "/long", lambda *_: Response(bytes(size), content_type="x/y"), "Long")
    for seconds, whole in ((2.0, False), (30.0, True)):
        client = house.serve(routes=[route], write_seconds=seconds)
        with client.raw() as connection:
            connection.sendall(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n")
            assert connection.recv(1) == b"H"
            loop = house.server.loop
            loop.call_soon_threadsafe(house.server.check, perf_counter() + 5.0)
            connection.settimeout(20.0)
            got = 0
            with suppress(ConnectionResetError):
                while got < size and (part := connection.recv(1 << 20)):
                    got += len(part)
        assert (got >= size) is whole


@probe("drain_delay")
def _(house: House) -> None:
    client = house.serve(drain_delay=0.4)
    ending = threading.Thread(target=house.server.stop)
    ending.start()
    until(lambda: house.server.service.leaving)
    assert client.get("/v2/health/ready").status == 503
    ending.join(60)
    with pytest.raises(ConnectionError):
        client.get("/v2/health/ready")


@probe("drain_seconds")
def _(house: House) -> None:
    client = house.serve(ever=False, drain_seconds=0.05)
    with house.hanging(client):
        began = time.monotonic()
        house.server.stop()
        assert time.monotonic() - began < 20.0, "it waits 30 s by default"


@probe("compress_above")
def _(house: House) -> None:
    for above, coded in ((4, True), (1 << 20, False)):
        reply = house.serve(compress_above=above).get("/metrics", **{"Accept-Encoding": "gzip"})
        assert ("content-encoding" in reply.headers) is coded


@probe("cache_bytes")
def _(house: House) -> None:
    for size, asked in ((0, 3), (1 << 16, 1)):
        assert house.statuses(3, ever=True, cache_bytes=size) == [200] * 3
        assert house.answering is not None
        assert len(house.answering.rows) == asked


@probe("batch_wait", "batch_rows")
def _(house: House) -> None:
    house.patch.setattr("runtime.http.answer.batching.INSTANT", -1.0)  # as if all took long
    client = house.serve(ever=True, batch_wait=60.0, batch_rows=4)
    body = json.dumps([ROW, ROW])
    threads = [threading.Thread(target=client.post, args=("/predict/m", body.encode()))]
    threads.append(threading.Thread(target=client.post, args=("/predict/m", body.encode())))
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert house.answering is not None
    assert house.answering.rows == [4]


@probe("batch_objective")
def _(house: House) -> None:
    house.patch.setattr("runtime.http.answer.batching.INSTANT", -1.0)
    client = house.serve(ever=True, batch_wait=60.0, batch_objective=0.001)
    began = time.monotonic()
    assert client.post("/predict/m", [ROW, ROW]).status == 200
    assert time.monotonic() - began < 30.0


@probe("explain_rate", "explain_rows")
def _(house: House) -> None:
    house.runtime.register("line", flour.vector("x", 2).linear([[1.0, 2.0]], [0.0]))

    def explained(rows: int, **settings: Any) -> int:
        values = {"name": "x", "datatype": "FP64", "shape": [rows, 2], "data": [1.0] * 2 * rows}
        body = {"inputs": [values], "parameters": {"explain": True}}
        return house.serve(**settings).post("/v2/models/line/infer", body).status

    assert explained(2) == 200
    assert explained(2, explain_rate=0) == 403
    assert explained(2, explain_rows=1) == 400


@probe("answers")
def _(house: House) -> None:
    house.runtime.register("kept", shift_flow(1.0), notes={"keep": {}}, background=False)
    client = house.serve(answers=house.place / "answers")
    until(lambda: "x-answer-id" in client.post("/predict/kept", ROW).headers)
    assert [*(house.place / "answers").glob("kept-0/*")]


@probe("tenant_header")
def _(house: House) -> None:
    house.runtime.register("m", shift(5.0), 2, activate=False)
    house.runtime.route("m", "m@1", tenants={"b": "m@2"})
    client = house.serve(tenant_header="X-Who")
    assert client.post("/predict/m", ROW, {"x-who": "b"}).json["top"] == 8.0
    assert client.post("/predict/m", ROW, {"x-tenant": "b"}).json["top"] == 4.0


# --- who is let in --------------------------------------------------------------------------------


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@probe("tokens", "tokens_required")
def _(house: House) -> None:
    assert house.statuses(1, tokens=house.tokens()) == [401]
    assert house.statuses(1, bearer(ALICE), tokens=str(house.tokens())) == [200]
    assert house.statuses(1, tokens=house.tokens(), tokens_required=False) == [200]
    assert house.statuses(1, bearer("x"), tokens=house.tokens(), tokens_required=False) == [401]


@probe("anonymous_rate", "rate_burst")
def _(house: House) -> None:
    assert house.statuses(3, anonymous_rate=0.01) == [200, 429, 429]
    assert house.statuses(5, anonymous_rate=0.01, rate_burst=300) == [200] * 3 + [429] * 2


@probe("known_rate")
def _(house: House) -> None:
    limits: dict[str, Any] = {
        "tokens": house.tokens(),
        "known_rate": 0.01,
        "tokens_required": False,
    }
    assert house.statuses(3, bearer(ALICE), **limits) == [200, 429, 429]
    assert house.statuses(3, **limits) == [200] * 3


@probe("anonymous_at_once", "known_at_once")
def _(house: House) -> None:
    limits: dict[str, Any] = {"tokens": house.tokens(), "tokens_required": False}
    client = house.serve(ever=False, anonymous_at_once=1, **limits)
    with house.hanging(client):
        assert client.post("/predict/m", ROW).status == 429
    client = house.serve(ever=False, known_at_once=1, **limits)
    with house.hanging(client, b"Authorization: Bearer " + ALICE.encode() + b"\r\n"):
        assert client.post("/predict/m", ROW, bearer(ALICE)).status == 429


@probe("new_bytes_a_day")
def _(house: House) -> None:
    client = house.serve(new_bytes_a_day=len(BODY))
    bodies = (BODY, BODY, BODY + b" ", BODY)
    assert [client.post("/predict/m", body).status for body in bodies] == [200, 200, 429, 200]
    assert client.get("/v2/health/ready").status == 200


@probe("max_waiting")
def _(house: House) -> None:
    client = house.serve(ever=False, max_waiting=1)
    with house.hanging(client):
        assert client.post("/predict/m", ROW).status == 503


@probe("max_unread")
def _(house: House) -> None:
    for seconds, late in ((0.0, False), (0.2, True), (0.5, False)):
        house.serve(max_unread=seconds)
        assert house.server.service.is_late(0.3, None) is late


# --- what is seen of it ---------------------------------------------------------------------------


@probe("ready_needs_all")
def _(house: House) -> None:
    for needed, status in ((False, 200), (True, 503)):
        client = house.serve(ready_needs_all=needed)
        if status == 200:
            until(lambda: client.get("/v2/health/ready").status == 200)  # noqa: B023 (it is called here)
        assert client.get("/v2/health/ready").status == status


@probe("metrics", "triton_metrics", "core_watts", "carbon_grams")
def _(house: House) -> None:
    def told(**settings: Any) -> Reply:
        client = house.serve(**settings)
        client.post("/predict/m", ROW)
        return client.get("/metrics")

    nothing = Packages(house.place / "none")  # a machine that does not tell its energy
    house.patch.setattr("runtime.http.watch.metrics_energy.Packages", lambda: nothing)
    assert told(metrics=False).status == 404
    words = (b"nv_inference", b"energy_joules_total", b"carbon_grams_total")
    for settings, seen in (
        ({}, [False, False, False]),
        ({"triton_metrics": True}, [True, False, False]),
        ({"core_watts": 10.0}, [False, True, False]),
        ({"core_watts": 10.0, "carbon_grams": 400.0}, [False, True, True]),
    ):
        body = told(**settings).body
        assert [word in body for word in words] == seen


@probe("status_page")
def _(house: House) -> None:
    for shown, status in ((True, 200), (False, 404)):
        client = house.serve(status_page=shown)
        assert [client.get(path).status for path in ("/", "/explain/m")] == [status] * 2


@probe("access_log", "access_log_share")
def _(house: House) -> None:
    for share, lines in ((1.0, 4), (0.5, 2)):
        path = house.place / f"log{share}"
        assert house.statuses(4, access_log=path, access_log_share=share) == [200] * 4
        house.server.stop()
        assert len(path.read_text("utf-8").splitlines()) == lines


@probe("default_model")
def _(house: House) -> None:
    house.runtime.register("n", shift(1.0))
    clients = [house.serve(default_model=each) for each in ("m", None)]
    assert [each.post("/invocations", {"inputs": [ROW]}).status for each in clients] == [200, 404]


@probe("audit_log", "log_format", "log_level")
def _(house: House) -> None:
    audit, log = house.place / "audit", logging.getLogger("pretzel")
    for name in ("handlers", "propagate", "level"):
        house.patch.setattr(log, name, getattr(log, name))
    asking = house.serve(audit_log=audit, log_format="json", log_level="warning")
    asking.post("/v2/models/m/rollback", {})
    house.server.stop()
    assert json.loads(audit.read_text())["path"] == "/v2/models/m/rollback"
    assert (type(log.handlers[0].formatter), log.level) == (LogLines, logging.WARNING)


@probe("tracing", "trace_stages")
def _(house: House) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    house.patch.setattr(trace, "get_tracer_provider", lambda: provider)
    counts = []
    for settings in ({}, {"tracing": True}, {"tracing": True, "trace_stages": 1.0}):
        assert house.statuses(1, **settings) == [200]
        counts.append(len(spans.get_finished_spans()))
        spans.clear()
    provider.shutdown()
    assert 0 == counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("name", {made: name for name, made in PROBES.items()}.values())
def test_settings_have_an_effect(name: str, house: House) -> None:
    PROBES[name](house)


def test_every_setting_has_a_probe_and_no_probe_is_of_one_that_is_gone() -> None:
    assert PROBES.keys() == {each.name for each in fields(ServerSettings)}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tokens": "none"}, "the tokens cannot be read"),
        ({"tokens": "."}, "not a file of tokens"),
        ({"access_log": "none/log"}, "the access log cannot be written"),
        ({"audit_log": "none/log"}, "the audit log cannot be written"),
        ({"tokens": "empty"}, "a file of tokens has a client"),
        ({"answers": "empty/below"}, "answers cannot be kept here"),
        ({"answers": "/proc/answers"}, "answers cannot be kept here"),
    ],
)
def test_what_is_missing_is_said_when_the_server_is_made(
    house: House, settings: dict[str, str], said: str
) -> None:
    (house.place / "empty").write_text("# nobody\n\n", encoding="utf-8")
    found = {name: house.place / text for name, text in settings.items()}
    for make in (lambda made: Server(house.runtime, made), check):
        with pytest.raises(ParameterError, match=said) as refused:
            make(ServerSettings(**found))  # type: ignore[arg-type]  # of these names
        assert str(next(iter(found.values()))) in str(refused.value.where)


# --- parts of the caller's own --------------------------------------------------------------------


def test_own_parts_add_to_what_the_settings_name(house: House) -> None:
    """Own guards are asked after the tokens; what answers is behind the cache."""
    seen: list[str] = []

    def guard(request: Request) -> None:
        seen.append(request.path)

    def observer(_request: Request, response: Response, _seconds: float) -> None:
        seen.append(str(response.status))

    answering = Recorded(house.runtime)
    settings = ServerSettings(port=0, tokens=house.tokens(), cache_bytes=1 << 16)
    own: Any = {"answering": answering, "guards": [guard], "observers": [observer]}
    with Server(house.runtime, settings, **own) as server:
        client = Client(server.port)
        statuses = [
            client.post("/predict/m", BODY, bearer(each)).status for each in (ALICE, ALICE, "x")
        ]
    assert statuses == [200, 200, 401]
    assert seen == ["/predict/m", "200", "/predict/m", "200", "401"]
    assert answering.rows == [1]


def test_notes_of_a_version_count_without_any_setting(house: House) -> None:
    house.runtime.register("kept", shift(1.0), notes={"cache_bytes": 1 << 16})
    client = house.serve(ever=True)
    assert [client.post("/predict/kept", BODY).status for _ in range(3)] == [200] * 3
    assert house.answering is not None
    assert house.answering.rows == [1]


@pytest.mark.parametrize(
    "notes",
    [
        *({"batch_wait": "2"}, {"batch_wait": -1}, {"cache_bytes": "1M"}),
        *({"batch_rows": True}, {"batch_objective": nan}),
    ],
)
def test_notes_that_do_not_fit_are_refused(house: House, notes: dict[str, object]) -> None:
    with pytest.raises(BadRegistration, match="a note is not of its type") as refused:
        house.runtime.register("n", shift(1.0), notes=notes)
    assert str(refused.value.found).startswith(f"{next(iter(notes))}=")
    assert refused.value.where == "n@1"
