"""Worker processes tell no private values: on streams, in files, on pages, in crash reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import pytest

from runtime.cli import main
from tests.house import ROOT, until
from tests.runtime.http.client import Client
from tests.runtime.provenance import planted

pytestmark = pytest.mark.soak


def test_processes_tell_no_private_values(tmp_path: Path) -> None:
    models = tmp_path / "models"
    joblib.dump(planted.pipeline(), tmp_path / "m.joblib")
    rows = tmp_path / "rows.jsonl"
    planted.frame().to_json(rows, orient="records", lines=True)
    words = ["import", tmp_path / "m.joblib", "--trust-pickle", "--into", models]
    words += ["--verify", rows, "--private", ",".join(planted.PRIVATE)]
    assert main([*map(str, words)]) == 0
    notes = '[watch]\nsegments = ["city"]\noutliers = ["range"]\n[keep]\nsubject = "city"\n'
    (models / "m" / "notes.toml").write_text(notes)
    log = tmp_path / "access.log"
    command = [sys.executable, "-m", "runtime", "serve", str(models), "--port", "0", "--json"]
    command += ["--workers", "2", "--set", f"answers={tmp_path / 'answers'}"]
    command += ["--set", f"access_log={log}"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    texts: list[tuple[str, bytes]] = []
    try:
        assert process.stdout is not None
        client = Client(int(json.loads(process.stdout.readline())["url"].rpartition(":")[2]))
        for number in range(60):
            reply = client.post("/predict/m", json.dumps(planted.asked(number)).encode())
            texts.append(("predict", reply.body + str(reply.headers).encode()))
        time.sleep(1.0)  # what is kept is written five times a second
        pages = ("/", "/metrics", "/explain/m?step=logical", "/explain/m?step=optimised")
        texts += [(path, client.get(path).body) for path in pages]
        workers = _children(process.pid)
        assert workers
        os.kill(workers[-1], signal.SIGABRT)
        until(lambda: client.get("/v2/health/ready").status == 200)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate(timeout=60)
    texts.append(("streams", "".join(said).encode()))
    for path in tmp_path.rglob("*"):
        holds = path.suffix in {".joblib", ".jsonl", ".pretzel"} or "plans" in path.parts
        if path.is_file() and not holds:
            texts.append((str(path), path.read_bytes()))
    assert any("answers-" in where for where, _ in texts)
    every = [each for some in planted.TRAINED.values() for each in some]
    assert planted.found(texts, (*every, *planted.ASKED)) == {}


def _children(pid: int) -> list[int]:
    """The processes that a process has started, and that it listens to."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found]
