"""docs/contributing/adding-a-rule.md, done for real in a copy of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tree_copy import blocks, copied, put, run, run_tests

pytestmark = [pytest.mark.once, pytest.mark.apart]

RULE, TEST = blocks("contributing/adding-a-rule.md")

USE = """
import numpy as np, flour, oven
from oven.optimise.rewrite import trace

flow = flour.vector("x", 3).abs().abs()
assert "abs_once" in trace(flow).fired
assert "abs_once" in trace(flow, exact=True).fired
assert oven.bake(flow).run([[-1.0, 2.0, -0.0]])["output"].tolist() == [[1.0, 2.0, 0.0]]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the sources with the rule's file."""
    tree = copied(tmp_path / "tree")
    put(tree, "oven/optimise/rules/abs_once.py", RULE)
    return tree


def test_one_file_and_one_test_are_enough(tree: Path) -> None:
    put(tree, "tests/oven/rules/test_abs_once.py", TEST)
    page = "docs/contributing/rules.md"
    assert page in run(tree, "scripts/generate.py", page)
    table = (tree / page).read_text(encoding="utf-8")
    assert "| `abs_once` | BITS | abs(abs(x)) → abs(x) |" in table
    assert run_tests(tree, "tests/oven/rules/test_abs_once.py") == 2
    every = (
        "-k",
        "abs_once or is_a_file or in_a_pass or page_about",
        "tests/oven/optimise/test_rewrite.py",
    )
    assert run_tests(tree, *every) == 6
    run(tree, "-c", USE)


def test_a_rule_without_a_test_is_found(tree: Path) -> None:
    with pytest.raises(AssertionError, match="is_a_file_and_has_a_test"):
        run_tests(tree, "-k", "is_a_file", "tests/oven/optimise/test_rewrite.py")
