"""Intervals and sets that hold the truth as often as they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

import pretzel
from flour.core.errors import ParameterError, TypeMismatch
from flour.sklearn.estimators.conformal import conformal_quantile

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6000, 4))
Y: Any = X[:, 0] - X[:, 1] + RNG.normal(size=6000)
KINDS = np.array(["low", "middle", "high"])[np.digitize(Y, [-1, 1])]
TRAIN, HELD, NEW = slice(0, 1000), slice(1000, 3000), slice(3000, 6000)


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_intervals_hold_the_truth_so_often(coverage: float) -> None:
    model = pretzel.compile(Ridge().fit(X[TRAIN], Y[TRAIN]))
    careful = model.conformal(X[HELD], Y[HELD], coverage=coverage)
    made = careful.run(X[NEW])
    assert np.array_equal(made["value"], model.predict(X[NEW]))
    assert np.array_equal(careful.predict(X[NEW]), made["value"])
    widest = np.sort(np.abs(Y[HELD] - model.predict(X[HELD])))
    width = widest[int(np.ceil(2001 * coverage)) - 1]
    assert np.array_equal(made["upper"], made["value"] + width)
    assert np.array_equal(made["lower"], made["value"] - width)
    inside = (made["lower"] <= Y[NEW]) & (made["upper"] >= Y[NEW])
    assert abs(inside.mean() - coverage) < 0.03


def test_sets_hold_the_class_so_often() -> None:
    model = pretzel.compile(LogisticRegression().fit(X[TRAIN], KINDS[TRAIN]))
    careful = model.conformal(X[HELD], KINDS[HELD], coverage=0.9)
    made = careful.run(X[NEW])
    classes = ["high", "low", "middle"]
    inside = made["set"][np.arange(3000), [classes.index(kind) for kind in KINDS[NEW]]]
    assert abs(inside.mean() - 0.9) < 0.03
    assert 1 < made["set"].sum(axis=1).mean() < 3
    assert np.array_equal(careful.predict(X[NEW]), model.predict(X[NEW]))


def test_what_cannot_be_shown_is_refused() -> None:
    model = pretzel.compile(Ridge().fit(X[TRAIN], Y[TRAIN]))
    with pytest.raises(ParameterError, match=r"8 rows for 0.9[\s\S]*9 rows or more"):
        model.conformal(X[:8], Y[:8])
    assert model.conformal(X[:9], Y[:9]).outputs == ("value", "lower", "upper")
    for coverage in (1.0, 0, float("nan"), "0.9", None):
        with pytest.raises(ParameterError, match="between 0 and 1"):
            model.conformal(X[HELD], Y[HELD], coverage=coverage)  # type: ignore[arg-type]  # it is what is refused
    for truth in (Y[:1], Y[1000:2999], 3.0, np.stack([Y[HELD]] * 2, axis=1)):
        with pytest.raises(ParameterError, match=r"each row has one truth[\s\S]*for 2000 rows"):
            model.conformal(X[HELD], truth)
    with pytest.raises(ParameterError, match="NaN or infinity"):
        model.conformal(X[HELD], np.where(Y[HELD] > 2, np.nan, Y[HELD]))
    column = model.conformal(X[HELD], Y[HELD, None]).run(X[:3])
    assert np.array_equal(column["upper"], model.conformal(X[HELD], Y[HELD]).run(X[:3])["upper"])
    kinds = pretzel.compile(LogisticRegression().fit(X[TRAIN], KINDS[TRAIN]))
    for each, truth in ((model, Y), (kinds, KINDS)):
        with pytest.raises(ParameterError, match=r"0 rows for 0.9[\s\S]*9 rows or more"):
            each.conformal(X[:0], truth[:0])
    with pytest.raises(ParameterError, match="for 2000 rows"):
        kinds.conformal(X[HELD], KINDS[1000:2999])
    with pytest.raises(ParameterError, match="class that the model does not know"):
        kinds.conformal(X[:20], ["odd"] * 20)
    with pytest.raises(TypeMismatch, match="regressors of one value"):
        pretzel.compile(StandardScaler().fit(X)).conformal(X[HELD], Y[HELD])


def test_the_place_of_a_quantile_is_not_moved_by_rounding() -> None:
    # 0.9 * 10 is 9.000000000000002 or 9, as it is computed.
    assert conformal_quantile(range(9), 0.9) == 8
    assert conformal_quantile(range(99), 0.07) == 6
