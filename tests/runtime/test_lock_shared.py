"""Who owns a process may have its threads share the interpreter's lock in shorter turns."""

from __future__ import annotations

import sys

import pytest

from runtime.http.wire.loop_fairness import SWITCH_SECONDS, lock_shared


@pytest.mark.parametrize(("usual", "meanwhile"), [(0.005, SWITCH_SECONDS), (1e-4, 1e-4)])
def test_turns_are_shorter_meanwhile_and_never_longer(usual: float, meanwhile: float) -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(usual)
        with lock_shared():
            assert sys.getswitchinterval() == pytest.approx(meanwhile, abs=5e-6)
        assert sys.getswitchinterval() == pytest.approx(usual, abs=5e-6)
    finally:
        sys.setswitchinterval(before)
