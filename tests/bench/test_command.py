"""The command line: a short run from nothing to a report, and what it makes of options."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command
from bench import compare, experiments, machine, results
from bench.clock import Clock, Needs
from bench.report.figures import Figures
from bench.servers import SERVERS
from bench.session import Plan, Progress, about


@pytest.mark.apart
def test_quick(tmp_path: Path, bench_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRETZEL_BENCH_CACHE", str(bench_cache))
    out = tmp_path / "quick.jsonl"
    options = "quick --workloads lin --contestants pretzel,sklearn --count 2 --scale 0.05"
    limits = f"--rounds 1 --calls 5 --seconds 0.02 --out {out}"
    assert command.main([*options.split(), *limits.split()]) == 0
    figures = Figures(results.read(out))
    assert figures.contestants("latency", "lin") == ["pretzel", "sklearn"]
    for experiment in experiments.PHASES:
        assert figures.workloads(experiment) == ["lin"], experiment
    ours, theirs = (
        figures.value("latency", "lin", who, "hot_p50") for who in ("pretzel", "sklearn")
    )
    assert ours is not None
    assert theirs is not None
    assert 0 < ours < theirs
    assert figures.value("answers", "lin", "pretzel", "worst") == pytest.approx(0, abs=1e-9)
    page = (tmp_path / "quick" / "report.html").read_text(encoding="utf-8")
    assert "scikit-learn" in page
    assert "<svg" in page
    assert results.done(out) == {"lin"}


def test_what_was_cut_off_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    first = results.Run(out, {"kind": "quick"})
    first.add(results.Record("latency", "lin", "pretzel", "hot_p50", 1.0, "µs"))
    first.finish("lin")
    first.close()
    with out.open("a", encoding="utf-8") as file:
        file.write('{"experiment":"latency","worklo')
    assert len(results.read(out).records) == 1, "what was cut off is no figure"
    again = results.Run(out, {"kind": "quick"}, resume=True)
    assert again.done == {"lin"}
    again.add(results.Record("latency", "tab", "pretzel", "hot_p50", 2.0, "µs"))
    again.close()
    assert [each.workload for each in results.read(out).records] == ["lin", "tab"]


def asked(text: str) -> Plan:
    return command.plan_of(command.parser().parse_args(text.split()))


def test_options() -> None:
    assert [each.count for each in asked("all").specs] == [250, 250, 100, 50, 50]
    assert asked("all --budget 100").rounds > asked("all").rounds
    plan = asked("all --scale 0.1 --seed 3 --workloads sa,gbt --rounds 2")
    assert [(each.name, each.count, each.scale, each.seed) for each in plan.specs] == [
        ("sa", 250, 0.1, 3),
        ("gbt", 50, 0.1, 3),
    ]
    assert plan.rounds == 2
    assert len(plan.contestants) == 17
    assert {"pretzel", "sklearn", "onnxruntime"} <= set(asked("quick").contestants)
    assert {each.name for each in asked("quick").specs} == {"sa", "ac", "tab", "lin", "gbt"}


@pytest.mark.parametrize("name", experiments.EVERY)
def test_every_experiment_has_its_question(name: str) -> None:
    module = experiments.find(name)
    assert module.QUESTION
    assert hasattr(module, "measure" if name in experiments.PHASES else "run")


def test_a_run_says_how_everybody_is_set_up() -> None:
    told = about("quick", asked("quick"))["settings"]
    assert set(asked("quick").contestants) | set(SERVERS) == set(told)
    assert all(told.values())


def test_nothing_unknown() -> None:
    with pytest.raises(LookupError, match="there are memory"):
        experiments.find("nothing")
    with pytest.raises(SystemExit):
        command.main(["dance"])


def test_comparing_takes_files_and_commits(
    tmp_path: Path, bench_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETZEL_BENCH_CACHE", str(bench_cache))
    ran: list[list[str]] = []

    def run(command: list[str], *, cwd: Path, env: dict[str, str], check: bool) -> None:
        assert check
        assert env["PYTHONPATH"] == str(cwd)
        assert (cwd / "bench" / "__main__.py").exists(), "the commit's files are there"
        ran.append(command)

    git = subprocess.run

    def either(command: list[str], **more: Any) -> Any:
        return (git if command[0] == "git" else run)(command, **more)

    monkeypatch.setattr("bench.compare.subprocess.run", either)
    known = tmp_path / "known.jsonl"
    known.touch()
    assert compare.run_of(str(known)) == known
    if machine.commit() == "unknown":
        pytest.skip("this is no checkout")
    out = compare.run_of("HEAD", ["--rounds", "1"])
    assert ran[0][1:4] == ["-m", "bench", "quick"]
    assert ran[0][4:6] == ["--rounds", "1"]
    assert ran[0][-1] == str(out)
    assert not out.with_suffix("").exists(), "the working tree is gone"
    with pytest.raises(SystemExit, match="neither a file of results nor a commit"):
        compare.run_of("no-such-thing")


def test_a_commit_is_that_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured before, and what is written about it, changes nothing that runs."""

    def git(*arguments: str) -> str:
        named = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(
            named, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    monkeypatch.setattr("bench.machine.ROOT", tmp_path)
    files = ("code.py", "README.md", "docs/performance.svg", "bench/results/reference.jsonl")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before", encoding="utf-8")
    git("init", "-q")
    assert machine.commit() == "unknown", "nothing was committed"
    git("add", ".")
    git("commit", "-q", "-m", "one")
    known = git("rev-parse", "--short=10", "HEAD")
    for name in files[1:]:
        (tmp_path / name).write_text("after", encoding="utf-8")
    (tmp_path / files[-1]).unlink()
    assert machine.commit() == known
    (tmp_path / "code.py").write_text("after", encoding="utf-8")
    assert machine.commit() == f"{known}-dirty"


def test_the_bar_says_what_is_left() -> None:
    now = 0.0
    clock = Clock({"sa": Needs(60.0), "ac": Needs(60.0)}, None, lambda: now)
    clock.begin("sa")
    now = 60.0
    bar = Progress(clock, io.StringIO())
    assert bar.line("sa") == "[############............] 1:00, 1:00 left  sa"
