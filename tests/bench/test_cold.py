"""The cold start: its goals, its table in the page, and what its parts measure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import onnx
import pytest

from bench import environments
from bench.cold import command, onnx_models, processes, pythons, sessions
from bench.cold.goals import Line, Told, at_most
from bench.cold.workloads import Workload, workloads
from bench.goal import Goal
from bench.report import markdown


def lines() -> Iterator[Line]:
    yield Told("serve", "20 plans")
    yield at_most("first answer, ms", 50.0, 12.34)
    yield at_most("worst, ms", 200.0, 210.0)


def test_a_missed_goal_is_the_exit_status_and_in_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "performance.md"
    begin, end = command.MARKS
    page.write_text(
        f"before\n{markdown.BEGIN}\n{markdown.END}\n{begin}\nformer figures\n{end}\nafter\n"
    )
    monkeypatch.setattr(command, "PERFORMANCE", page)
    monkeypatch.setattr(command, "_measured", lambda *_, **__: lines())
    assert command.main(report=True) == 1
    said = capsys.readouterr().out
    assert said.count("MISSED") == 1
    assert said.endswith("2 goals, 1 missed\n")
    text = page.read_text()
    assert "former" not in text
    assert "| worst, ms | 200 | 210 | **missed** |" in text
    assert "| first answer, ms | 50 | 12.3 | met |" in text
    assert "Processor: " in text
    assert text.startswith(f"before\n{markdown.BEGIN}\n{markdown.END}\n")


@pytest.mark.apart
def test_contestants_answer_in_new_processes(tmp_path: Path) -> None:
    workload = next(workloads())
    workload.write(tmp_path)
    with processes.new_user() as env:
        made = {
            who: processes.asked(
                Path(sys.executable), f"bench.cold.contestants.{who}", str(tmp_path), env=env
            )
            for who in ("pretzel", "original", "onnxruntime")
        }
    assert {"first", "at", "predicted", "full", "narrow", "compiled"} == set(made["pretzel"])
    assert all(each["first"] > 0 and each["at"] > 0 for each in made.values())


def test_what_a_contestant_cannot_do_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    with pytest.raises(processes.Failed, match="python -m bench environments treelite"):
        processes.best("tl2cgen", tmp_path)
    (tmp_path / "model.pickle").write_bytes(b"")
    module = "bench.cold.contestants.original"
    with pytest.raises(processes.Failed, match="EOFError"):
        processes.asked(Path(sys.executable), module, str(tmp_path), env=dict(os.environ))


def test_sessions_are_timed_beside_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    few = list(islice(onnx_models.models(3), 3))
    assert all(onnx.load_from_string(data).graph.node for _, data in few)
    assert len({name for name, _ in few}) == 3
    monkeypatch.setattr(onnx_models, "models", lambda _count: iter(few))
    made = list(sessions.measured())
    assert [line.limit for line in made if isinstance(line, Goal)] == [20.0, 200.0]
    assert sum("onnxruntime: median" in str(line) for line in made) == 1


def test_a_python_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    monkeypatch.setattr(pythons, "_in_turns", lambda *_: ({}, {}))
    said = [str(line) for line in pythons.measured()]
    assert len(said) == len(pythons.OTHERS)
    assert all("scripts/test-environments" in line for line in said)


def test_who_takes_part_in_what() -> None:
    text = Workload("text", object(), ["a"])
    assert list(command._others(text)) == ["original", "onnxruntime"]
    assert list(command._others(Workload("onnx", b"", None))) == ["onnxruntime"]
