"""Clients against servers of ours, and against servers that fail in chosen ways."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import flour
import oven
from flour.core.errors import InputError, ParameterError
from flour.core.types import Type
from pretzel import AsyncClient, Client
from runtime import Runtime
from runtime.client import CallFailed, CallLate
from runtime.client.client import LONGEST_PAUSE, CallClock
from runtime.http import Server, ServerSettings
from tests.runtime.http.certificates import Authority
from tests.runtime.plans import shift

ROW = [1.0, 2.0, 3.0, 4.0]
FRAME = pd.DataFrame({"age": [20.0, 30.0, 40.0], "city": ["Oslo", "Rome", "Oslo"]}, index=[5, 6, 7])
TOKEN = "0123456789abcdef"
Asking = Callable[..., Any]


@contextmanager
def serving(**settings: Any) -> Iterator[Server]:
    kinds: dict[str, Type] = {"age": flour.Scalar(), "city": flour.Category()}
    row = flour.record("row", kinds)
    sizes = flour.outputs(older=row["age"].add(1.0), town=row["city"])
    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0), background=False)
        runtime.register("people", oven.bake(sizes), background=False)
        with Server(
            runtime, ServerSettings(**{"port": 0, "max_unread": 0.0, **settings})
        ) as server:
            yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[Server]:
    with serving() as server:
        yield server


def once(url: str, model: str, rows: Any, *, loop: bool, **more: Any) -> Any:
    """Return what either client says."""

    async def asked() -> Any:
        async with AsyncClient(url, **more) as client:
            return await client.predict(model, rows)

    if loop:
        return asyncio.run(asked())
    with Client(url, **more) as client:
        return client.predict(model, rows)


# --- rows and answers ----------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_answers_come_in_the_form_of_the_rows(plain: Server, protocol: str, *, loop: bool) -> None:
    def ask(rows: Any, model: str = "people") -> Any:
        return once(plain.url, model, rows, loop=loop, protocol=protocol)

    expected = {"older": [21.0, 31.0, 41.0], "town": ["Oslo", "Rome", "Oslo"]}
    framed = ask(FRAME)
    assert framed.index.tolist() == [5, 6, 7]
    assert {name: framed[name].tolist() for name in framed} == expected
    assert ask(pl.from_pandas(FRAME)).to_dict(as_series=False) == expected
    table = pa.Table.from_pandas(FRAME, preserve_index=False)
    assert ask(table).to_pydict() == ask(table.to_batches()[0]).to_pydict() == expected
    for columns in (FRAME.to_dict("list"), {name: FRAME[name] for name in FRAME}):
        assert {name: each.tolist() for name, each in ask(columns).items()} == expected
    moved = ask(np.array([ROW, ROW]), "m")["moved"]
    assert moved.tolist() == [[2.0, 3.0, 4.0, 5.0]] * 2
    rows = FRAME.to_dict("records")
    assert ask(rows) == [
        dict(zip(expected, each, strict=True)) for each in zip(*expected.values(), strict=True)
    ]
    assert ask({**rows[0], "age": np.float32(20.0)}) == {"older": 21.0, "town": "Oslo"}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_large_blocks_pass_windows(plain: Server, protocol: str) -> None:
    rows = np.arange(400_000.0).reshape(-1, 4)
    with Client(plain.url, protocol=protocol) as client:
        for _ in range(2):
            assert np.array_equal(client.predict("m", rows)["moved"], rows + 1.0)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_errors_say_what_the_server_says(plain: Server, protocol: str) -> None:
    with Client(plain.url, protocol=protocol) as client:
        with pytest.raises(CallFailed, match="nothing is registered as 'other'") as missing:
            client.predict("other", np.array([ROW]))
        assert missing.value.status == 404
        with pytest.raises(CallFailed, match="expected 4 columns"):
            client.predict("m", np.array([ROW[:3]]))
        with pytest.raises(InputError, match="numbers, or strings"):
            client.predict("people", {"age": [1.0, 2.0], "city": [None, "Oslo"]})
        named = client.predict("people", {"age": np.float64(1.0), "city": np.str_("Oslo")})
        assert np.ravel(named["town"]).tolist() == ["Oslo"]


# --- ways to a server ----------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("scheme", ["https", "grpcs"])
def test_tls_by_files(tmp_path: Path, scheme: str, *, loop: bool) -> None:
    authority = Authority(tmp_path)
    server, own = authority.server(), authority.sign("client", "shop")
    files = {"tls_cert": server[0], "tls_key": server[1], "tls_client_ca": authority.file}
    with serving(**files) as secured:
        url = secured.url.replace("https", scheme)
        known = {"ca": authority.file, "cert": own[0], "key": own[1]}
        assert once(url, "m", np.array([ROW]), loop=loop, **known)["top"].tolist() == [5.0]
        trusting = {**known, "ca": None, "verify": False}
        assert once(url, "m", np.array([ROW]), loop=loop, **trusting)["top"].tolist() == [5.0]
        for wrong in ({**known, "ca": None}, {"ca": authority.file}):
            with pytest.raises(CallFailed, match="does not answer"):
                once(url, "m", np.array([ROW]), loop=loop, attempts=1, **wrong)
    with pytest.raises(ParameterError, match="files of TLS"):
        Client(url, ca=tmp_path / "none.pem")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_unix_sockets_and_tokens(tmp_path: Path, protocol: str) -> None:
    tokens, mine = tmp_path / "clients", tmp_path / "token"
    tokens.write_text(f"shop {TOKEN} predict\n")
    mine.write_text(f"{TOKEN}\n")
    with serving(host=f"unix:{tmp_path}/s", tokens=tokens):
        url = f"unix://{tmp_path}/s"
        for token in (TOKEN, mine, lambda: TOKEN):
            with Client(url, protocol=protocol, token=token) as client:
                assert client.predict("m", np.array([ROW]))["top"].tolist() == [5.0]
        with Client(url, protocol=protocol, token=mine) as client:
            mine.write_text("another token that is not known")
            with pytest.raises(CallFailed, match="token") as refused:  # it is read again
                client.predict("m", np.array([ROW]))
            assert refused.value.status == 401


ADDRESSES = (
    "ftp://x",
    "http://",
    "unix:",
    "localhost:80",
    "grpc:///x",
    "http://[::1",
    "http://x?y=1",
)


@pytest.mark.parametrize("url", [*ADDRESSES, "http://me:secret@x", None, b"http://x"])
def test_addresses_that_are_none(url: Any) -> None:
    with pytest.raises(ParameterError, match="no address") as refused:
        Client(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_a_client_cannot_be_told(plain: Server, tmp_path: Path, protocol: str) -> None:
    for wrong in (0, -1, float("nan"), float("inf"), "1"):
        for name in ("timeout", "attempts", "connections"):
            with pytest.raises(ParameterError, match=name):
                Client(plain.url, protocol=protocol, **{name: wrong})  # type: ignore[arg-type]
        with Client(plain.url) as client, pytest.raises(ParameterError, match="timeout"):
            client.predict("m", ROW, timeout=wrong)  # type: ignore[arg-type]
    for token, said in ((tmp_path / "none", "No such file"), (b"x", "bytes"), ("日", "Latin-1")):
        with pytest.raises(ParameterError, match=said):
            once(plain.url, "m", ROW, loop=False, token=token, protocol=protocol)
    for model in ("", "\ud800", 3):
        with pytest.raises(ParameterError, match="a model has a name"):
            once(plain.url, model, ROW, loop=False, protocol=protocol)  # type: ignore[arg-type]


def test_threads_share_few_connections_and_forks_share_none(plain: Server) -> None:
    before = plain.connections
    with Client(plain.url, connections=2) as client, ThreadPoolExecutor(8) as pool:
        tops = pool.map(lambda each: client.predict("m", [each] * 4)["top"], range(200))
        assert list(tops) == [each + 1.0 for each in range(200)]
        assert plain.connections - before <= 2
        child = os.fork()
        if child == 0:
            os._exit(0 if client.predict("m", ROW)["top"] == 5.0 else 1)
        assert client.predict("m", ROW)["top"] == 5.0
        assert os.waitpid(child, 0)[1] == 0
        assert client.predict("m", ROW)["top"] == 5.0
    with pytest.raises(CallFailed, match="closed"):
        client.predict("m", ROW)


# --- servers that fail ---------------------------------------------------------------------------


class Failing:
    """A server that says one thing after the other; None breaks the connection off."""

    def __init__(self, *says: str | None) -> None:
        self._says, self.heard = list(says), list[bytes]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while self._says:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it is closed
                return
            with connection:
                self.heard.append(connection.recv(1 << 16))
                said = self._says.pop(0)
                if said is not None:
                    connection.sendall(said.replace("\n", "\r\n").encode())

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # which wakes `accept`
        self._listener.close()


LAST = "connection: close\ncontent-length"
BUSY = f'HTTP/1.1 {{}} Busy\nretry-after: {{}}\n{LAST}: 18\n\n{{{{"error":"a wait"}}}}'
GOOD = f'HTTP/1.1 200 OK\n{LAST}: 9\n\n{{"top":5}}'
CHUNKS = 'transfer-encoding: chunked\nconnection: close\n\n5\n{"top\n4;x\n":5}\n0\nt: x\n\n'
CHUNKED = f"HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\n{CHUNKS}"
UNTIL_CLOSED = 'HTTP/1.0 200 OK\n\n{"top":5}'


class Time:
    """A clock whose pauses take no time, and are remembered."""

    def __init__(self) -> None:
        self.moment, self.pauses = 0.0, list[float]()
        self.clock = CallClock(lambda: self.moment, self._sleep, lambda: 1.0)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.moment += seconds


@pytest.mark.parametrize(
    ("says", "pauses"),
    [
        ((BUSY.format(503, 3), GOOD), [3.1]),
        ((BUSY.format(429, 1), BUSY.format(503, 0), CHUNKED), [1.1, 0.2]),
        ((None, None, None, UNTIL_CLOSED), [0.1, 0.2, 0.4]),
        ((BUSY.format(503, "soon"), GOOD), [0.1]),
        (("HTTP/1.1 200 OK\ncontent-length: 99\n\n{", "nonsense\n\n", GOOD), [0.1, 0.2]),
    ],
)
def test_predictions_are_asked_again(says: tuple[str | None, ...], pauses: list[float]) -> None:
    time = Time()
    with closing(Failing(*says)) as server, Client(server.url, clock=time.clock) as client:
        assert client.predict("m", ROW) == {"top": 5}
        assert len(server.heard) == len(says)
    assert time.pauses == pytest.approx(pauses)


@pytest.mark.parametrize(
    ("first", "method", "asked"),
    [
        (None, "POST", 1),
        (BUSY.format(503, 0), "POST", 1),
        (BUSY.format(429, 0), "POST", 2),
        (BUSY.format(503, 0), "GET", 2),
        (BUSY.format(500, 0), "GET", 1),
    ],
)
def test_changes_are_asked_again_only_if_nothing_was_done(
    first: str | None, method: str, asked: int
) -> None:
    with closing(Failing(first, GOOD)) as server, Client(server.url, clock=Time().clock) as client:
        with pytest.raises(CallFailed) if first is None else nullcontext():
            client.request(method, "/v2/models/m/outcome", b"{}")
        assert len(server.heard) == asked


def test_the_deadline_bounds_everything() -> None:
    """Pauses that do not fit are not begun; silent servers are left; they are told what is left."""
    time = Time()
    with closing(Failing(BUSY.format(503, 60))) as server:
        with (
            Client(server.url, clock=time.clock) as client,
            pytest.raises(CallFailed, match="a wait"),
        ):
            client.predict("m", ROW)
        assert time.pauses == []
        assert b"timeout" not in server.heard[0]
    time = Time()
    with closing(Failing(*[BUSY.format(503, 4)] * 5)) as server:
        with (
            Client(server.url, clock=time.clock, timeout=10.0) as client,
            pytest.raises(CallFailed),
        ):
            client.predict("m", ROW)
        assert time.moment < 10.0
        told = [each.partition(b"timeout-ms: ")[2].partition(b"\r\n")[0] for each in server.heard]
        assert [int(each) for each in told] == [10_000, 5_900, 1_700]
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for protocol in ("http", "grpc"):
            with Client(url, protocol=protocol) as client, pytest.raises(CallLate):
                client.predict("m", np.array([ROW]), timeout=0.05)
        ended = Client(url)
        coming = pool.submit(ended.predict, "m", ROW)
        taken = [silent.accept()[0] for _ in range(3)]  # two have given up
        ended.close()
        with pytest.raises(CallFailed, match="closed"):
            coming.result(60)
        for each in taken:
            each.close()


def test_a_refused_connection_is_tried_until_attempts_end() -> None:
    time = Time()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with Client(url, clock=time.clock, attempts=4) as client:
        for protocol in (client.predict, client.request):
            time.pauses.clear()
            with pytest.raises(CallFailed, match="does not answer") as refused:
                protocol("POST", "/v2/repository/models/m/load")
            assert refused.value.status == 0
            assert len(time.pauses) == 3
            assert max(time.pauses) <= LONGEST_PAUSE


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_server_that_is_killed_and_comes_back(tmp_path: Path, protocol: str) -> None:
    where = {"host": f"unix:{tmp_path}/s"}
    with Client(f"unix://{tmp_path}/s", protocol=protocol) as client:
        with serving(**where):
            assert client.predict("m", np.array([ROW]))["top"].tolist() == [5.0]
        again = threading.Timer(0.3, lambda: None)
        again.start()
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(client.predict, "m", np.array([ROW]))
            again.join(60)
            with serving(**where):
                assert coming.result(60)["top"].tolist() == [5.0]


def test_a_limit_of_grpc_is_waited_for() -> None:
    time = Time()
    with serving(anonymous_rate=0.01, rate_burst=100.0) as limited:
        with Client(
            limited.url, protocol="grpc", clock=time.clock, attempts=2, timeout=500.0
        ) as client:
            assert client.predict("m", np.array([ROW]))["top"].tolist() == [5.0]
            with pytest.raises(CallFailed) as refused:
                client.predict("m", np.array([ROW]))
        assert refused.value.status == 429
        assert time.pauses == [pytest.approx(100, abs=2)]


def test_an_answer_of_another_server_is_told() -> None:
    page = f"HTTP/1.1 200 OK\n{LAST}: 6\n\n<html>"
    with (
        closing(Failing(page)) as server,
        Client(server.url) as client,
        pytest.raises(CallFailed, match="the answer cannot be read"),
    ):
        client.predict("m", ROW)


def test_headers_cannot_be_split(plain: Server) -> None:
    with Client(plain.url, token="x\r\nhost: y") as client, pytest.raises(ParameterError):
        client.predict("m", ROW)
