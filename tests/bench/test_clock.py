"""The time of a run: shares of a budget, rounds that fit, what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import survey
from bench.clock import Clock, Needs, Took
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
    clock = Clock({"sa": Needs(1.0)}, None, time)
    assert clock.begin("sa")
    assert spend(clock, time, 100.0, 5) == 5
    assert not clock.late


def test_parts_share_what_is_left() -> None:
    time = Time()
    clock = Clock({"sa": Needs(30.0), "ac": Needs(10.0)}, 80.0, time)
    assert clock.begin("sa")  # three quarters are its own
    assert spend(clock, time, 10.0, 99, share=0.5) == 3
    assert spend(clock, time, 10.0, 99) == 3
    assert not clock.late, "the others' ten seconds are not touched yet"
    assert clock.end() == Needs(20.0, 20.0), "of six rounds, four were more than it needs"
    assert clock.begin("ac")
    assert spend(clock, time, 7.0, 99) == 2


def test_who_needs_longer_takes_it_from_rounds_that_others_would_do_more() -> None:
    time = Time()
    clock = Clock({"heavy_load": Needs(20.0), "ac": Needs(20.0)}, 80.0, time)
    assert clock.begin("heavy_load")
    found = []
    for time.now in (50.0, 61.0):  # beyond its share, but not of what the other needs; of that, too
        found.append(clock.late)
    assert found == [False, True]
    assert clock.end() == Needs(61.0), "the next run gives it as much"
    assert clock.begin("ac")


def test_who_was_cut_short_needs_no_less_than_it_was_known_to() -> None:
    time = Time()
    clock = Clock({"heavy_load": Needs(100.0, 9.0)}, 30.0, time)
    assert clock.begin("heavy_load")
    time.now = 31.0
    assert clock.late
    assert clock.end() == Needs(100.0, 9.0)


def test_a_round_is_done_even_late_and_parts_are_not() -> None:
    time = Time()
    clock = Clock({"sa": Needs(1.0), "ac": Needs(1.0)}, 10.0, time)
    assert clock.begin("sa")
    assert spend(clock, time, 50.0, 99) == 1
    clock.end()
    assert not clock.begin("ac")


def test_what_is_left_follows_the_pace() -> None:
    time = Time()
    clock = Clock({"sa": Needs(4.0, 3.0), "ac": Needs(20.0)}, None, time, rounds=3)
    assert clock.left() == 30.0
    clock.begin("sa")
    time.now = 5.0
    assert clock.left() == 25.0
    time.now = 20.0
    clock.end()
    assert clock.left() == 40.0, "the first part took twice as long as last time"


def test_nothing_takes_longer_than_the_budget() -> None:
    time = Time()
    clock = Clock({"sa": Needs(1000.0)}, 60.0, time)
    clock.begin("sa")
    time.now = 20.0
    assert clock.left() == 40.0


@pytest.mark.parametrize("found", ["", "{", '{"quick sa": 7.0}', '{"quick sa": [7.0, 1.0]}'])
def test_durations_are_kept(tmp_path: Path, found: str) -> None:
    """What a file of before says with a single number is measured anew."""
    path = tmp_path / "deeper" / "took.json"
    if found:
        path.parent.mkdir()
        path.write_text(found, encoding="utf-8")
    known = Needs(7.0, 1.0) if "[" in found else Needs(3.0)
    assert Took(path).get("quick sa", Needs(3.0)) == known
    Took(path).put("all", Needs(12.34, 1.0))
    assert Took(path).get("all", Needs(0.0)) == Needs(12.3, 1.0)


def test_guesses_grow_with_what_is_asked() -> None:
    specs = (Spec("sa", 250, 0.05),)
    few = survey.parts(Plan(specs), ["latency"])["sa"]
    assert survey.parts(Plan(specs, rounds=1000), ["latency"])["sa"] == few, "it is for one round"
    assert few.least < survey.parts(Plan((Spec("sa", 500, 0.05),)), ["latency"])["sa"].least < 600
    assert few.more > survey.parts(Plan(specs, turn=1.0), ["latency"])["sa"].more
    assert few.whole(3) == few.least + 2 * few.more
