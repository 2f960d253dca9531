"""Histories: bounded, and undone one standing change at a time."""

from __future__ import annotations

from runtime.routing.history import KEPT, History, extended, rolled_back
from runtime.routing.route import Route


def test_old_changes_are_dropped_and_the_kept_ones_undone() -> None:
    history: History = ()
    for number in range(KEPT + 50):
        history = extended(history, "route", Route(f"m@{number}"), "", number)
    assert [each.number for each in history] == list(range(50, KEPT + 50))
    undone = rolled_back(history, "", 0)
    champions = []
    while undone is not None:
        champions.append(undone[-1].route.champion)
        history, undone = undone, rolled_back(undone, "", 0)
    # Each rollback is a change, too, and drops an old one: both ends meet in the middle.
    assert champions[:2] == [f"m@{KEPT + 48}", f"m@{KEPT + 47}"]
    assert len(history) == KEPT
    assert len(champions) == KEPT // 2
