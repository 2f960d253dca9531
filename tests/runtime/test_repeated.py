"""A failure that comes again and again is logged less and less often."""

from __future__ import annotations

from runtime.repeated import Repeated


def test_the_first_second_fourth_and_so_on_are_due() -> None:
    failures = Repeated()
    due = [number for number in range(1, 1001) if failures.is_due(OSError)]
    assert due == [2**power for power in range(10)]


def test_each_kind_is_counted_by_itself_and_can_be_over() -> None:
    failures = Repeated()
    assert failures.is_due("one")
    assert failures.is_due("other")
    assert failures.is_due("one")
    assert not failures.is_due("one")
    failures.is_over("one")
    failures.is_over("never met")
    assert failures.is_due("one")
