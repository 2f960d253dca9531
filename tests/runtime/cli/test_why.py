"""`pretzel why`: answers that a server's workers have kept are told and computed again."""

from __future__ import annotations

import json
import signal
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import flour
from runtime import Runtime
from tests.house import started
from tests.runtime.cli.conftest import Pretzel
from tests.runtime.repository.folders import save_plan


def test_answers_of_workers_are_found_in_their_folders(tmp_path: Path, pretzel: Pretzel) -> None:
    models, answers = tmp_path / "models", tmp_path / "answers"
    save_plan(models / "a" / "a.pretzel", 1.0)
    (models / "a" / "notes.toml").write_text("[keep]\nmost_bytes = 1_000_000\n")
    given = ("--port", "0", "--json", "--workers", "2", "--set", f"answers={answers}")
    process = started(sys.executable, "-m", "runtime", "serve", models, *given)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        end, ids = time.monotonic() + 60, list[str]()
        while len({*answers.glob("a-*/answers-*.log")}) < 2 or len(ids) < 20:
            assert time.monotonic() < end
            request = urllib.request.Request(f"{url}/predict/a", b"[1.0, 0.0, 0.0, 0.0]")
            with urllib.request.urlopen(request, timeout=60) as response:
                ids += filter(None, [response.headers["X-Answer-Id"]])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate(timeout=60)
    for each in (ids[0], ids[-1]):
        ran = pretzel("why", each, "--answers", answers, "--json")
        assert ran.code == 0, ran.err
        assert ran.data["computed_again"] is True
        assert ran.data["inputs"] == [1.0, 0.0, 0.0, 0.0]
    ran = pretzel("why", "nobody-1", "--answers", answers)
    assert ran.code == 1
    assert "no answer of this id is kept here" in ran.err


@pytest.mark.parametrize("shown", [(), ("--html",)])
def test_what_was_kept_without_private_columns_is_told(
    tmp_path: Path, pretzel: Pretzel, shown: tuple[str, ...]
) -> None:
    row = flour.record(ssn=float, age=float)
    with Runtime() as runtime:
        runtime.register(
            "m", flour.outputs(score=row["ssn"] + row["age"]), notes={"private": ["ssn"]}
        )
        with runtime.keep("m", tmp_path):
            answer = getattr(runtime.predict("m", {"ssn": 17.25, "age": 2.0}), "id", "")
            runtime.why(answer)
            ran = pretzel("why", answer, "--answers", tmp_path, *shown)  # while it is written
    assert ran.code == 0, ran.err
    assert "not computed again: rows are missing" in ran.out
    assert "m@1" in ran.out
    assert "17.25" not in ran.out
    assert ("<table>" in ran.out) is bool(shown)
