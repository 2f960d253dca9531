"""gRPC at 16 connections with 16 streams each, beside other servers, an echo, and over TLS.

    python -m bench grpc

h2load (Debian's nghttp2-client) asks, and servers take turns, so that a busy machine is busy for
all of them; without it nothing is measured. The best round of each counts.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.crew import Absent
from bench.experiments.end_to_end import Entry, started
from bench.goal import Goal
from bench.servers import SERVERS, ServerKind, open_inference
from bench.workload import Spec, saved

QUESTION = "One row over gRPC, beside grpcio, MLServer and an echo, and over TLS"
ROUNDS, CALLS, _PATIENCE = 4, 20_000, 120.0
_CONNECTIONS, _STREAMS = 16, 16
_INFER, _HEALTH = "/inference.GRPCInferenceService/ModelInfer", "/grpc.health.v1.Health/Check"
_ROUTE = "/v2/models/lin0/infer"


class _Way(NamedTuple):
    """A call that is measured: its server, what its port is ahead of that of HTTP, its path."""

    name: str
    kind: ServerKind
    ahead: int = 0
    path: str = _INFER
    least: float = 0.0
    """How many times as many calls of a small plan there should be."""
    secure: bool = False


_OURS, _LEAST = "a small plan", "our least call (health)"
_JSON, _TLS = "a small plan, JSON over HTTP/1.1", "over TLS"
_WAYS = {
    _OURS: _Way("pretzel", SERVERS["pretzel"]),
    f"{_OURS} {_TLS}": _Way("pretzel", SERVERS["pretzel"], secure=True),
    _JSON: _Way("pretzel", SERVERS["pretzel"], path=_ROUTE),
    f"{_JSON} {_TLS}": _Way("pretzel", SERVERS["pretzel"], path=_ROUTE, secure=True),
    _LEAST: _Way("pretzel", SERVERS["pretzel"], path=_HEALTH, least=0.5),
    "the barest echo": _Way("grpc_bare", ServerKind("", "main", lambda *_: b""), least=0.5),
    "grpcio's echo": _Way("grpc_grpcio", ServerKind("", "grpcio", lambda *_: b""), least=20.0),
    "MLServer": _Way("mlserver", SERVERS["mlserver"], 1, least=20.0),
}


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    if shutil.which("h2load") is None:
        print("nothing was measured: h2load is in Debian's nghttp2-client")
        return
    workload = saved(Spec("lin", 1, 0.1, 0))
    rates: dict[str, float] = {}
    costs: dict[str, float] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        bodies = {_INFER: folder / "row", _HEALTH: folder / "nothing", _ROUTE: folder / "json"}
        row = workload.inputs.data[0].tolist()
        raw = struct.pack(f"<{len(row)}d", *row)
        tensor = _field(1, b"X") + _field(2, b"FP64") + _field(3, bytes((1, len(row))))
        call = _field(1, b"lin0") + _field(5, tensor) + _field(7, raw)
        bodies[_INFER].write_bytes(struct.pack(">BI", 0, len(call)) + call)
        bodies[_HEALTH].write_bytes(bytes(5))
        bodies[_ROUTE].write_bytes(open_inference(0, row).partition(b"\r\n\r\n")[2])
        files = _certificate(folder)
        entries: dict[tuple[str, bool], Entry] = {}
        for title, way in _WAYS.items():
            try:
                if (key := (way.name, way.secure)) not in entries:
                    arguments = [str(workload.folder), "1", *(files if way.secure else ())]
                    entries[key] = started(way.name, way.kind, arguments, stack)
                rates[title], costs[title] = 0.0, inf
            except Absent as problem:
                print(f"{title}: left out, {problem}")
        for _ in range(ROUNDS):
            for title, before in rates.items():
                way = _WAYS[title]
                entry = entries[way.name, way.secure]
                began = _processor_seconds(entry.process)
                rate = _rate(way, entry.port + way.ahead, bodies[way.path])
                cost = (_processor_seconds(entry.process) - began) / CALLS
                rates[title], costs[title] = max(before, rate), min(costs[title], cost)
    for title, rate in rates.items():
        print(f"# {title}: {rate:,.0f} calls a second, {costs[title] * 1e6:.1f} us each")
    yield from _goals(rates, costs)


def _goals(rates: Mapping[str, float], costs: Mapping[str, float]) -> Iterator[Goal]:
    for plain in (_OURS, _JSON):
        if secure := rates.get(f"{plain} {_TLS}"):
            yield Goal(f"{plain}, {_TLS}, of its rate without, x", secure / rates[plain], 0.7)
    for title, rate in rates.items():
        if least := _WAYS[title].least:
            yield Goal(f"{_OURS}, calls a second of {title}, x", rates[_OURS] / rate, least)
            cost = costs[title] / costs[_OURS]
            yield Goal(f"{_OURS}, processor time of {title}, x", cost, least)


def _field(number: int, data: bytes) -> bytes:
    """A field of protobuf, of fewer than 16,384 bytes."""
    size = len(data)
    length = bytes((size,)) if size < 0x80 else bytes((size & 0x7F | 0x80, size >> 7))
    return bytes((number << 3 | 2,)) + length + data


def _processor_seconds(process: int | None) -> float:
    """The time that a process has had, with all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _certificate(folder: Path) -> list[str]:
    """The files of a certificate of a day, and of its key."""
    names = [str(folder / name) for name in ("server.pem", "server.key")]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = ["openssl", "req", "-x509", "-days", "1", "-subj", "/CN=localhost", *kind]
    subprocess.run(
        [*command, "-out", names[0], "-keyout", names[1]],
        check=True,
        timeout=_PATIENCE,
        capture_output=True,
    )
    return names


def _rate(way: _Way, port: int, body: Path) -> float:
    """Calls a second; all have to be answered well."""
    asked = ["h2load", f"-c{_CONNECTIONS}", f"-d{body}", f"-n{CALLS}"]
    if way.path == _ROUTE:
        asked += ["--h1", "-Hcontent-type: application/json"]
    else:
        asked += [f"-m{_STREAMS}", "-Hcontent-type: application/grpc", "-Hte: trailers"]
    asked.append(f"http{'s' * way.secure}://127.0.0.1:{port}{way.path}")
    done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=_PATIENCE)
    if f"{CALLS} succeeded" not in done.stdout:
        raise RuntimeError(f"not every call was answered: {done.stdout[-500:]}")
    found = re.search(r"([\d.]+) req/s", done.stdout)
    return float(found[1]) if found else 0.0
