"""A graph of models under the bench's client: ours answers as its steps do by hand."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from bench import client, environments
from bench.crew import Absent
from bench.experiments import graph_servers
from bench.servers import GRAPHS, graph_parts
from bench.wrk import race

pytestmark = pytest.mark.apart


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rounds, with no environments but ours."""
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    monkeypatch.setattr(graph_servers, "SECONDS", 0.1)
    monkeypatch.setattr(graph_servers, "ROUNDS", 1)


@pytest.mark.usefixtures("alone")
def test_servers_that_are_not_installed_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(graph_servers.measured()) == []
    said = capsys.readouterr().out
    others = [GRAPHS[name].title for name in GRAPHS if name != graph_servers.OURS]
    assert [line.partition(":")[0] for line in said.splitlines()] == others


@pytest.mark.usefixtures("alone")
def test_a_server_that_answers_otherwise_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "parts.pickle"
    parts = graph_parts.write(file)
    found = graph_servers._figures(graph_servers.OURS, file, parts)
    assert found.rate > 0
    assert 0 < found.p50 <= found.p99
    monkeypatch.setattr(graph_parts, "WEIGHTS", (0.5, 0.5))
    with pytest.raises(Absent, match="where scikit-learn says"):
        graph_servers._figures(graph_servers.OURS, file, parts)


def test_the_client_reads_bodies_in_pieces_also_from_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'{"outputs":[{"data":[1.5]}]}'
    pieces = b"%x\r\n%b\r\n" % (10, body[:10]) + b"%x\r\n%b\r\n0\r\n\r\n" % (18, body[10:])

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(head + pieces)
        writer.close()

    async def asked() -> None:
        server = await asyncio.start_server(answers, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            assert await asyncio.to_thread(client.answer, port, b"?\n") == [1.5]
            outcome = await asyncio.to_thread(race, port, [b"?\n"], 2, 0.1, ("env",))
            assert outcome.rate > 0

    asyncio.run(asked())
