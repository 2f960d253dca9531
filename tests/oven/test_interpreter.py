"""Entries are there in every process of an interpreter that they know, from source or byte code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.house import run_python

FOUND = """
from oven.entry.interpreter import object_layout
print(object_layout() is not None)
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="no entries for an interpreter not tried")
@pytest.mark.skipif(sys.platform != "linux", reason="entries are for machines that tests run on")
def test_entries_are_there_from_source_and_from_byte_code(tmp_path: Path) -> None:
    """Strings of byte code have no hash until it is asked for, those just compiled have."""
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    assert [run_python(FOUND, environment=kept).strip() for _ in range(2)] == ["True", "True"]
    assert list(tmp_path.rglob("interpreter.*.pyc"))
