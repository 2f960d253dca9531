"""A bounded dict keeps the entries that were made last."""

from __future__ import annotations

from oven.plans.skeleton import Bounded


def test_a_new_entry_removes_the_oldest() -> None:
    kept: Bounded[str, int] = Bounded(2)
    for number, name in enumerate("abc"):
        kept[name] = number
    assert kept == {"b": 1, "c": 2}
    assert kept.first("c", 7) == 2, "the value that is there"
    assert kept.first("d", 3) == 3
    assert kept == {"c": 2, "d": 3}
