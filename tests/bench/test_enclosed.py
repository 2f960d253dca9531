"""A network of its own: heard by nobody outside, asked from inside, and gone with its server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench import enclosed
from bench.crew import Absent
from bench.servers import SCRATCH, open_inference
from tests.house import until

PORT = 8123
#: It answers in pieces, as Ray Serve does, and leaves a file where those are to go.
_SERVER = f"""
import http.server, pathlib
pathlib.Path({str(SCRATCH)!r}, "left behind").write_text("x")
class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200 if "/lin0/" in self.path else 404)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        body = b'{{"outputs": [{{"data": [0.25, 0.75]}}]}}'
        self.wfile.write(b"%x\\r\\n%b\\r\\n0\\r\\n\\r\\n" % (len(body), body))
http.server.HTTPServer(("0.0.0.0", {PORT}), Answers).serve_forever()
"""


def test_it_is_asked_from_inside_only() -> None:
    try:
        before = enclosed.starting()
    except Absent as problem:
        pytest.skip(str(problem))
    process = subprocess.Popen([*before, sys.executable, "-c", _SERVER])
    try:
        until(lambda: process.poll() is not None or enclosed.listens(process.pid, PORT))
        assert process.poll() is None
        entering = enclosed.entering(process.pid)
        assert enclosed.answer(entering, PORT, open_inference(0, [1.0])) == [0.25, 0.75]
        with pytest.raises(ConnectionError, match="status 404"):
            enclosed.answer(entering, PORT, open_inference(1, [1.0]))
        with socket.socket() as outside:
            assert outside.connect_ex(("127.0.0.1", PORT)) != 0
        assert not Path(SCRATCH, "left behind").exists()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (server,) = children.read_text(encoding="ascii").split()
    finally:
        process.kill()
        process.wait(60)
    until(lambda: not Path(f"/proc/{server}").exists())


def test_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "nsenter" else name)
    with pytest.raises(Absent, match="nsenter is not installed"):
        enclosed.starting()
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(enclosed, "_SETTING_UP", "echo not permitted >&2; exit 3")
    with pytest.raises(Absent, match="which this user may not have: "):
        enclosed.starting()
