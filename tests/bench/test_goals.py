"""The table of goals: each is met, missed by so much, or not measured, by the run's figures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import overload
from bench.experiments import machines
from bench.open_loop import Outcome
from bench.report import told
from bench.report.figures import Figures
from bench.report.goals import goals
from bench.results import Read, Record

ABOUT = {"contestants": {"pretzel": "Pretzel", "mlserver": "MLServer", "echo": "bare echo"}}


def measured(*records: Record) -> dict[str, list[str]]:
    """Each goal's row by its name, of a run that has a figure for one of them at least."""
    known = Record("scale", "lin", "pretzel", "load", 30.0, "s", 20000)
    return {row[0]: row[1:] for row in goals(Figures(Read(ABOUT, (known, *records)))).rows}


def rate(who: str, connections: float, value: float) -> Record:
    """Requests a second of a server."""
    return Record("end_to_end", "lin", who, "rate", value, "1/s", connections)


def test_a_run_without_figures_for_goals_has_no_table() -> None:
    assert goals(Figures(Read(ABOUT, ()))).rows == []
    other = Record("ablations", "lin", "pretzel", "hot_p50", 1.0, "µs")
    assert goals(Figures(Read(ABOUT, (other,)))).rows == []


def test_servers_are_held_to_the_worse_number_of_connections() -> None:
    found = measured(
        *(rate("pretzel", 1, 6000), rate("pretzel", 16, 30000)),
        *(rate("mlserver", 1, 200), rate("mlserver", 16, 1500)),
        *(rate("echo", 1, 8000), rate("echo", 16, 60000)),
    )
    assert found["requests a second, by MLServer"] == ["≥ 25x", "20x (1.25x short)", "**missed**"]
    assert found["requests a second, by a bare echo"][1:] == ["0.5x (1.4x short)", "**missed**"]
    assert found["requests a second, by BentoML"] == ["≥ 10x", "–", "not measured"]


def test_the_memory_of_some_pipelines_is_not_compared_with_that_of_all() -> None:
    def memory(who: str, count: float, value: float) -> Record:
        return Record("memory", "ac", who, "added", value, "MiB", count)

    goal = "AC: memory below one session or object each"
    whole = memory("pretzel", 10, 5), memory("pretzel", 250, 100), memory("onnxruntime", 250, 3000)
    assert measured(*whole, memory("sklearn", 10, 1))[goal] == ["≥ 25x", "30x", "met"]
    assert measured(*whole, memory("sklearn", 250, 500))[goal][-1] == "**missed**"


def test_a_number_of_connections_that_only_one_has_is_not_compared() -> None:
    found = measured(rate("pretzel", 1, 6000), rate("mlserver", 16, 100))
    assert found["requests a second, by MLServer"] == ["≥ 25x", "–", "not measured"]
    found = measured(rate("pretzel", 1, 6000), rate("mlserver", 1, 200), rate("mlserver", 16, 1))
    assert found["requests a second, by MLServer"] == ["≥ 25x", "30x", "met"]


def test_latency_is_held_to_all_calls_and_to_the_means_of_pipelines() -> None:
    def latency(who: str, metric: str, value: float) -> Record:
        return Record("latency", "lin", who, metric, value, "µs")

    found = measured(
        *(latency("pretzel", "hot_p99", 2.0), latency("onnxruntime", "hot_p99", 10.0)),
        *(latency("pretzel", "hot_p99_of_means", 1.0),),
        *(latency("onnxruntime", "hot_p99_of_means", 40.0),),
    )
    rest = ", without SA, AC, TAB, GBT"
    assert found["hot p99 below tuned onnxruntime, geometric mean"][1:] == [
        f"5x (2x short){rest}",
        "**missed**",
    ]
    goal = "hot p99 of pipelines' means below tuned onnxruntime, geometric mean"
    assert found[goal][1:] == [f"40x{rest}", "met"]


@pytest.mark.parametrize(("waits", "verdict"), [(0.6, "met"), (1.5, "**missed**")])
def test_the_wait_of_sixteen_connections(waits: float, verdict: str) -> None:
    known = (
        Record("end_to_end", "lin", "pretzel", "p99", each, "ms", x)
        for each, x in [(5.0, 1.0), (waits, 16.0)]
    )
    assert measured(*known)["p99 of 16 connections"][-1] == verdict


def test_the_peak_is_the_run_s_own() -> None:
    def answered(load: float, value: float) -> Record:
        return Record("heavy_load", "sa", "pretzel", "rows", value, "rows/s", load)

    goal = "SA: of the peak at twice the load"
    assert measured(answered(1, 100), answered(2, 96))[goal] == ["≥ 95 %", "96 %", "met"]
    assert measured(answered(1, 100), answered(2, 90))[goal][1:] == ["90 %", "**missed**"]
    assert measured(answered(1, 100))[goal][1:] == ["–", "not measured"]


def test_what_texts_have_in_common_is_counted_once() -> None:
    """The limit is dictionaries and weights as the run counted them, and 16 KiB a plan."""
    unique = Record("memory", "sa", "pretzel", "unique", 10.0, "MiB", 64)
    added = Record("memory", "sa", "pretzel", "added", 13.2, "MiB", 64)
    (row,) = (row for name, row in measured(unique, added).items() if name.startswith("SA: memory"))
    assert row == ["≤ 11 MiB", "13.2 MiB (1.2x over)", "**missed**"]


def test_loading_is_by_plan() -> None:
    def loading(name: str, seconds: float, plans: float) -> Record:
        return Record("load_time", name, "pretzel", "all", seconds, "s", plans)

    found = measured(loading("sa", 0.5, 50), loading("ac", 0.1, 50))
    goal = "500 plans of SA and AC, loaded with warm code, from 100"
    assert found[goal] == ["≤ 1 s", "3 s (3x over)", "**missed**"]
    first = [Record("load_time", name, "pretzel", "first", 0.15, "s") for name in ("sa", "ac")]
    found = measured(loading("sa", 0.5, 50), loading("ac", 0.1, 50), *first)
    assert found[goal][1] == "1.82 s (1.82x over)", "what comes with a first plan comes once"


def test_the_table_says_how_many() -> None:
    run = Read(ABOUT, (rate("pretzel", 1, 6000), rate("mlserver", 1, 200), rate("echo", 1, 9000)))
    table = goals(Figures(run))
    verdicts = [row[-1] for row in table.rows]
    assert table.told == f"1 met, 1 missed, {verdicts.count('not measured')} not measured."
    assert len(verdicts) == 2 + verdicts.count("not measured")


def test_words_on_where_ours_is_behind() -> None:
    assert told.behind([]) == ""
    assert told.behind([("C", "on LIN", 1.0)]) == "Ours is behind nowhere."
    assert (
        told.behind([("C", "on LIN", 0.5), ("D", "on SA", 3.0)])
        == "Ours is behind C on LIN (0.5x)."
    )
    many = [(f"L{i}", "on SA", i / 10) for i in range(1, 12)]
    text = told.behind(many)
    assert text.startswith("Ours is behind in 9 of 11 places, most of all L1 on SA (0.1x), ")
    assert "L7" not in text


@pytest.mark.parametrize(("wait", "met"), [(0.2, True), (0.4, False)])
def test_goals_of_overload(wait: float, met: bool) -> None:  # noqa: FBT001 (a fact)
    def turn(wait: float) -> overload.Turn:
        outcome = Outcome(2.0, {"200": 200, "503": 100}, [wait] * 200, [0.01] * 100)
        return overload.Turn(100.0, outcome, 0.3, (1.0, 1.0 if wait <= 0.3 else 2.0))

    found = overload.goals_of([turn(0.1), turn(wait), turn(0.5)], 300)
    assert [goal.measured for goal in found] == [1.0 if met else 0.0, 1.0 if met else 0.5, wait]
    assert [goal.met for goal in found] == [met, met, met]
    assert all(str(goal).endswith("  met" if met else "MISSED") for goal in found)


def test_a_missed_goal_is_an_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(_port: int, _body: Path, rate: float, *_: float) -> Outcome:
        return Outcome(1.0, {"200": 10}, [5.0 if rate else 0.1] * 10)

    @contextmanager
    def serving() -> Iterator[overload.Server]:
        yield overload.Server(0, os.getpid())

    monkeypatch.setattr(overload, "offered", offered)
    monkeypatch.setattr(overload, "serving", serving)
    assert overload.run(0.1) == 1


def test_cores_add_up_until_memory_is_full() -> None:
    assert machines.simulated(1e6, 100, 32, [200e9]) == 32e6
    assert machines.simulated(1e6, 10_000, 32, [200e9]) == 20e6
    assert machines.simulated(1e6, 10_000, 32, [200e9, 80e9]) == 28e6
