"""The example: drift is detected, a version is trained and rolled out, and no request is lost."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.house import ROOT


@pytest.mark.apart
@pytest.mark.parametrize("table", ["adult", "telco"])
def test_the_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "retraining")
    monkeypatch.delitem(sys.modules, "circle", raising=False)
    ended = import_module("circle").run(tmp_path, table)
    assert ended.before > 0.85
    assert ended.during < 0.65
    assert ended.after > 0.75
    assert ended.reason.startswith("drift of ")
    assert ended.rollout == "done"
    assert ended.failed == 0
    assert ended.asked > 500
