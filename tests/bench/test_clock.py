"""The time of a run: shares of a budget, rounds that fit, what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import survey
from bench.clock import Clock, Took
from bench.session import Plan
from bench.workload import Spec


class Time:
    """Passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def spend(clock: Clock, time: Time, each: float, most: int, share: float = 1.0) -> int:
    """How many rounds of so many seconds there are."""
    count = 0
    for _ in clock.rounds(most, share):
        time.now += each
        count += 1
    return count


def test_without_a_budget_every_round_is_done() -> None:
    time = Time()
    clock = Clock({"sa": 1.0}, None, time)
    assert clock.begin("sa")
    assert spend(clock, time, 100.0, 5) == 5
    assert not clock.late


def test_parts_share_what_is_left() -> None:
    time = Time()
    clock = Clock({"sa": 30.0, "ac": 10.0}, 80.0, time)
    assert clock.begin("sa")  # three quarters are its own
    assert spend(clock, time, 10.0, 99, share=0.5) == 3
    assert spend(clock, time, 10.0, 99) == 3
    assert clock.late
    assert clock.end() == 60.0
    assert clock.begin("ac")
    assert spend(clock, time, 7.0, 99) == 2


def test_a_round_is_done_even_late_and_parts_are_not() -> None:
    time = Time()
    clock = Clock({"sa": 1.0, "ac": 1.0}, 10.0, time)
    assert clock.begin("sa")
    assert spend(clock, time, 50.0, 99) == 1
    clock.end()
    assert not clock.begin("ac")


def test_what_is_left_follows_the_pace() -> None:
    time = Time()
    clock = Clock({"sa": 10.0, "ac": 20.0}, None, time)
    assert clock.left() == 30.0
    clock.begin("sa")
    time.now = 5.0
    assert clock.left() == 25.0
    time.now = 20.0
    clock.end()
    assert clock.left() == 40.0, "the first part took twice as long as last time"


def test_nothing_takes_longer_than_the_budget() -> None:
    time = Time()
    clock = Clock({"sa": 1000.0}, 60.0, time)
    clock.begin("sa")
    time.now = 20.0
    assert clock.left() == 40.0


@pytest.mark.parametrize("found", ["", "{", '{"quick sa": 7.0}'])
def test_durations_are_kept(tmp_path: Path, found: str) -> None:
    path = tmp_path / "deeper" / "took.json"
    if found:
        path.parent.mkdir()
        path.write_text(found, encoding="utf-8")
    assert Took(path).get("quick sa", 3.0) == (7.0 if "7" in found else 3.0)
    Took(path).put("all", 12.34)
    assert Took(path).get("all", 0.0) == 12.3


def test_as_many_rounds_as_fit_are_guessed_to_be_a_few() -> None:
    """Or every workload would seem too long for any budget."""
    specs = (Spec("sa", 250, 0.05),)
    few = survey.parts(Plan(specs, rounds=5), ["latency"])
    assert survey.parts(Plan(specs, rounds=1000), ["latency"]) == few
    assert survey.parts(Plan(specs, rounds=1), ["latency"])["sa"] < few["sa"] < 600
