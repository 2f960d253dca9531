"""The work of importing an estimator in memory, in calls: a clock would tell of the machine.

scripts/import_times.py measures the time.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import objectstore

_OURS = tuple(str(Path(str(each.__file__)).parent) for each in (flour, objectstore))
X = np.random.default_rng(0).normal(size=(200, 6))
y = (X[:, 0] > X[:, 1]).astype(int)


def calls(estimator: Any) -> int:
    """The calls that our code makes or is when it imports the estimator once more."""
    flour.from_sklearn(estimator)  # modules are imported, and what never changes is known
    count = 0

    def noted(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(_OURS):
            count += 1

    former = sys.getprofile()
    sys.setprofile(noted)
    try:
        flour.from_sklearn(estimator)
    finally:
        sys.setprofile(former)
    return count


@pytest.mark.parametrize(
    ("estimator", "limit"),
    [
        (Ridge(), 1_000),
        (make_pipeline(StandardScaler(), LogisticRegression()), 3_000),
        (RandomForestClassifier(5), 2_900),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_import_makes_few_calls(estimator: Any, limit: int) -> None:
    assert calls(estimator.fit(X, y)) < limit


@pytest.mark.parametrize(
    ("few", "many", "each"),
    [
        (RandomForestClassifier(5), RandomForestClassifier(55), 50),
        (
            HistGradientBoostingClassifier(max_iter=5),
            HistGradientBoostingClassifier(max_iter=55),
            30,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_another_tree_makes_few_more_calls(few: Any, many: Any, each: int) -> None:
    assert calls(many.fit(X, y)) - calls(few.fit(X, y)) < 50 * each
