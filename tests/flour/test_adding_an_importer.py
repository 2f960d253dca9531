"""docs/contributing/adding-an-importer.md, done for real in a copy of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tree_copy import blocks, copied, insert, put, run

pytestmark = pytest.mark.once

MODULE, ROW = blocks("contributing/adding-an-importer.md")

USE = """
import sys
import flour, oven
assert "flour.boosters.scorecard" not in sys.modules

raw = b'{"points": [1.5, -2.0], "start": 10.0}'
plan = oven.bake(flour.from_scorecard(raw))
assert plan.run([[2.0, 1.0]])["value"].tolist() == [11.0]
try:
    flour.from_scorecard(b'{"points": 3}')
except flour.FlourError as problem:
    assert "this is no scorecard" in str(problem)
else:
    raise AssertionError("a damaged file was read")
"""


def test_one_module_and_one_row_are_enough(tmp_path: Path) -> None:
    tree = copied(tmp_path / "tree")
    put(tree, "flour/boosters/scorecard.py", MODULE)
    insert(tree, "flour/__init__.py", "\n\ndef __getattr__", ROW)
    run(tree, "-c", USE)

    models = tmp_path / "models"
    models.mkdir()
    put(models, "credit.scorecard", '{"points": [1.5, -2.0], "start": 10.0}')
    put(tmp_path, "rows.csv", "a,b\n2,1\n0,0\n")
    file, rows, plan = models / "credit.scorecard", tmp_path / "rows.csv", tmp_path / "c.pretzel"
    said = run(
        tree, *("-m", "runtime", "import", str(file), "--output", str(plan), "--verify", str(rows))
    )
    assert "2 rows" in said
    assert "scorecard" in run(tree, "-m", "runtime", "ls", str(models))
    assert "11" in run(tree, "-m", "runtime", "predict", str(plan), str(rows))
