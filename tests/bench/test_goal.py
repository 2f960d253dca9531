"""Goals as lines, and the exit status of a table of them."""

from __future__ import annotations

import pytest

from bench.goal import Goal, printed


@pytest.mark.parametrize(
    ("measured", "at_most", "met"),
    [(2.0, False, True), (1.9, False, False), (2.0, True, True), (2.1, True, False)],
)
def test_a_goal_is_met_at_its_limit(measured: float, at_most: bool, met: bool) -> None:  # noqa: FBT001 (a fact)
    goal = Goal("speed", measured, 2.0, at_most)
    assert goal.met == met
    assert ("<= 2" in str(goal)) == at_most
    assert str(goal).endswith("met" if met else "MISSED")


def test_a_missed_goal_is_an_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed([Goal("a", 2.0, 1.0)]) == 0
    assert printed([Goal("a", 2.0, 1.0), Goal("b", 0.5, 1.0)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 goals, 1 missed"
