"""docs/contributing/adding-an-operator.md, done for real in a copy of the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tree_copy import blocks, copied, insert, put, run, run_tests

pytestmark = [pytest.mark.once, pytest.mark.apart]

FILE, ROW, KERNEL = blocks("contributing/adding-an-operator.md")

SHOP = '''
"""The shop's own estimator."""
from sklearn.base import BaseEstimator, TransformerMixin

class Squash(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        self.middle_ = X.mean(axis=0)
        return self

    def transform(self, X):
        X = X - self.middle_
        return X / (1 + abs(X))
'''

USE = """
import numpy as np, flour, oven, shop
from sklearn.pipeline import make_pipeline
from sklearn.linear_model import Ridge

X = np.random.default_rng(0).normal(size=(30, 3))
model = make_pipeline(shop.Squash(), Ridge()).fit(X, X[:, 0])
plan = oven.bake(flour.from_sklearn(model))
assert all(stage.native for stage in plan.program.stages)
np.testing.assert_allclose(plan.run(X)["value"], model.predict(X), rtol=1e-12)
assert flour.show(flour.vector("x", 3).softsign()).count("Softsign") == 1
gaps = __import__("gaps").Gaps([1.0, 2.0, 0.1])(flour.vector("x", 3, dtype="float32"))
X, own = X.astype("float32"), oven.bake(gaps)
assert (own.run(X)["output"] == gaps.reference(X)["output"]).all() and own.program.stages[0].native
"""

EXPORTS = """
import sys
sys.path[:0] = [".", "scripts"]
import onnx_export_page
from tests.cases import CASES
print(onnx_export_page.line("Softsign", [each for each in CASES if each.op.name == "Softsign"]))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the sources."""
    return copied(tmp_path / "tree")


def add(tree: Path, file: str) -> None:
    """Add the operator as the page says: one file, one row."""
    put(tree, "flour/ops/softsign.py", file)
    insert(tree, "tests/cases.py", "    source,\n", "    softsign,\n")
    insert(tree, "tests/cases.py", "    # --- flour/core/source.py", ROW)


def test_one_file_and_one_row_are_enough(tree: Path) -> None:
    add(tree, FILE)
    put(tree, "shop.py", SHOP)
    put(tree, "gaps.py", KERNEL)

    page = "docs/reference/operators.md"
    assert "flour/language/fluent" in run(tree, "scripts/generate.py", page)
    assert re.search(r"`Softsign\(\)` .*`\.softsign\(\)`", (tree / page).read_text("utf-8"))
    tests = ("tests/flour/test_cases.py", "tests/oven/test_cases.py")
    assert run_tests(tree, "-k", "Softsign", *tests) >= 4
    run(tree, "-c", USE)
    (tree / "shop.py").unlink()
    # Two rules are left out: they are about names in tests, of which the page changes one row.
    about_tests = "not golden_files and not private_names"
    assert run_tests(tree, "-k", about_tests, "tests/test_house_rules.py") > 20
    assert re.search(r"\| Softsign \| 2 \| – \| not exportable", run(tree, "-c", EXPORTS))


def test_a_wrong_operator_is_caught(tree: Path) -> None:
    wrong = FILE.replace("{one(x.dtype)} + abs", "{one(x.dtype)} - abs")
    assert wrong != FILE
    add(tree, wrong)
    with pytest.raises(AssertionError, match="failed"):
        run_tests(tree, "-k", "Softsign", "tests/oven/test_cases.py")
