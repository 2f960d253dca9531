"""docs/adding-an-operator.md, done for real in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import ROOT

pytestmark = pytest.mark.once

PAGE = (ROOT / "docs" / "adding-an-operator.md").read_text(encoding="utf-8")
FILE, ROW = re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
NEEDED = ("flour", "objectstore", "oven", "scripts", "tests", "docs", "pyproject.toml")

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
import numpy as np, flour, shop
from sklearn.pipeline import make_pipeline
from sklearn.linear_model import Ridge

X = np.random.default_rng(0).normal(size=(30, 3))
model = make_pipeline(shop.Squash(), Ridge()).fit(X, X[:, 0])
plan = flour.from_sklearn(model).plan()
assert all(stage.native for stage in plan.stages)
np.testing.assert_allclose(plan.run(X)["value"], model.predict(X), rtol=1e-12)
assert flour.vector("x", 3).softsign().show().count("Softsign") == 1
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the sources, without what tools made."""
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


def run(tree: Path, *arguments: str) -> str:
    """Run Python in the copy, on the code cache that all tests share."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_file_and_one_row_are_enough(tree: Path) -> None:
    (tree / "flour" / "ops" / "softsign.py").write_text(FILE, encoding="utf-8")
    cases = tree / "tests" / "cases.py"
    text = cases.read_text(encoding="utf-8")
    text = text.replace("from flour.ops import (\n", "from flour.ops import (\n    softsign,\n", 1)
    text = text.replace("CASES: list[Case] = [\n", "CASES: list[Case] = [\n" + ROW, 1)
    cases.write_text(text, encoding="utf-8")
    (tree / "shop.py").write_text(SHOP, encoding="utf-8")

    assert "flour/fluent" in run(tree, "scripts/generate.py", "docs/12-operators.md")
    assert "`Softsign()`" in (tree / "docs" / "12-operators.md").read_text(encoding="utf-8")
    tests = ("tests/flour/test_cases.py", "tests/oven/test_cases.py")
    report = run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "Softsign", *tests)
    assert int(re.findall(r"(\d+) passed", report)[0]) >= 12
    run(tree, "-c", USE)


def test_a_wrong_operator_is_caught(tree: Path) -> None:
    wrong = FILE.replace("{one(x.dtype)} + abs", "{one(x.dtype)} - abs")
    assert wrong != FILE
    (tree / "flour" / "ops" / "softsign.py").write_text(wrong, encoding="utf-8")
    cases = tree / "tests" / "cases.py"
    text = cases.read_text(encoding="utf-8")
    text = text.replace("from flour.ops import (\n", "from flour.ops import (\n    softsign,\n", 1)
    cases.write_text(
        text.replace("CASES: list[Case] = [\n", "CASES: list[Case] = [\n" + ROW, 1),
        encoding="utf-8",
    )
    with pytest.raises(AssertionError, match="failed"):
        run(
            tree,
            *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "Softsign"),
            "tests/oven/test_cases.py",
        )
