"""Every cell of both tables has tests that there are, or says why there are none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import matrices


@pytest.mark.parametrize("path", matrices.MATRICES, ids=lambda path: path.stem)
def test_no_cell_is_empty(path: Path) -> None:
    """A state that nobody has tried is where a product fails that its tests find right."""
    made = matrices.read(path)
    assert not list(made.problems())
    assert all(len(each.reason.split()) >= 3 for each in made.cells if each.reason)


def test_what_is_missing_is_found(tmp_path: Path) -> None:
    """An empty cell, and a test that is not there."""
    path = tmp_path / "table.toml"
    path.write_text(
        'title = "T"\n[columns]\nold = "old"\nnew = "new"\nnone = "none"\n[rows.thing]\n'
        'old = ["test_matrices.py::test_that_there_is_not"]\nnone = "for a good reason"\n'
    )
    made = matrices.read(path)
    assert [each.mark for each in made.cells] == ["1", "?", "-"]
    assert list(made.problems()) == [
        "T: thing, old: there is no test test_matrices.py::test_that_there_is_not",
        "T: thing, new: no test and no reason",
    ]
    assert str(made).splitlines()[2].split() == ["thing", "1", "?", "-"]
