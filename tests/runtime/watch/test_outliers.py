"""Outliers by range, Mahalanobis, PCA and trained detectors, as scikit-learn has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.preprocessing import StandardScaler

import flour
import oven
from flour.core.errors import FlourError
from runtime import Runtime
from runtime.http.watch.metrics_watch import families
from runtime.watch import Reference, mahalanobis, out_of_range, pca_residual

COLUMNS = ["age", "hours", "pay", "debt"]


def people(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, hours = rng.normal(40, 9, rows), rng.normal(30, 5, rows)
    pay = 2 * age + hours + rng.normal(size=rows)
    return pd.DataFrame(
        dict(zip(COLUMNS, (age, hours, pay, 3 * age + rng.normal(size=rows)), strict=True))
    )


USUAL, TODAY = people(3000, 0), people(500, 1)


def answers(flow: flour.Flow, rows: pd.DataFrame) -> dict[str, Any]:
    """What the program answers, compiled and by the reference interpreter."""
    found: dict[str, Any] = oven.bake(flow).run(rows)
    same = flow.reference(rows)
    np.testing.assert_array_equal(found["label"], same["label"])
    np.testing.assert_allclose(found["scores"], same["scores"], rtol=1e-12, atol=1e-12)
    return found


def test_mahalanobis_is_that_of_the_library() -> None:
    found = answers(mahalanobis(dict(USUAL), 0.01), TODAY)
    fitted = EmpiricalCovariance().fit(USUAL.to_numpy())
    usual, today = (fitted.mahalanobis(each.to_numpy()) for each in (USUAL, TODAY))
    want = np.quantile(usual, 0.99) - today
    np.testing.assert_allclose(found["scores"], want, rtol=1e-2, atol=1e-2)
    away = abs(want) > 0.1
    np.testing.assert_array_equal(found["label"][away], np.where(want < 0, -1, 1)[away])
    assert (oven.bake(mahalanobis(dict(USUAL), 0.01)).run(USUAL)["label"] == -1).sum() == 30


def test_what_components_leave_is_that_of_the_library() -> None:
    found = answers(pca_residual(dict(USUAL), 0.01), TODAY)
    scaler = StandardScaler().fit(USUAL.to_numpy())
    scaled = scaler.transform(USUAL.to_numpy())
    components = PCA(0.95).fit(scaled)
    usual, today = (
        ((each - components.inverse_transform(components.transform(each))) ** 2).sum(1)
        for each in (scaled, scaler.transform(TODAY.to_numpy()))
    )
    np.testing.assert_allclose(found["scores"], np.quantile(usual, 0.99) - today, atol=1e-9)


def test_range_takes_what_is_beyond_the_reference() -> None:
    found = answers(out_of_range(dict(USUAL)), TODAY)
    beyond = (USUAL.min() > TODAY) | (USUAL.max() < TODAY)
    np.testing.assert_array_equal(found["label"], np.where(beyond.any(axis=1), -1, 1))
    again = answers(out_of_range(dict(USUAL)), USUAL)
    assert (again["label"] == 1).all()


@pytest.mark.parametrize("make", [out_of_range, mahalanobis, pca_residual])
def test_holes_are_usual_and_infinity_is_not(make: Any) -> None:
    rows = pd.DataFrame([USUAL.mean()] * 4)
    rows.loc[rows.index[1], :] = np.nan
    rows.iloc[2, 0], rows.iloc[3, 1] = np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        assert answers(make(dict(USUAL)), rows)["label"].tolist() == [1, 1, -1, -1]


@pytest.mark.parametrize("make", [out_of_range, mahalanobis])
def test_a_column_that_never_changes_may_not(make: Any) -> None:
    rows = TODAY.assign(hours=5.0)
    flow = make(dict(USUAL.assign(hours=5.0)))
    assert (answers(flow, rows)["label"] == 1).mean() > 0.95
    assert (answers(flow, rows.assign(hours=6.0))["label"] == -1).all()


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    row = flour.record(age=float, hours=float, pay=float, debt=float)
    with Runtime() as made:
        made.register("m", flour.outputs(score=row["age"] + row["pay"]), background=False)
        yield made


FORMS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "frame": lambda rows: rows,
    "columns": lambda rows: {name: rows[name].to_numpy() for name in rows},
    "dicts": lambda rows: rows.to_dict("records"),
    "whole numbers": lambda rows: rows.round().astype({"age": "int64", "hours": "int32"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_planted_outliers_are_found_and_kept(runtime: Runtime, form: str) -> None:
    rows = TODAY.clip(USUAL.min(), USUAL.max(), axis=1)
    rows.loc[7, "pay"] = rows.loc[7, "pay"] + 40  # within its range, but not with that age
    rows.loc[9, "age"] = 300.0
    forest: Any = IsolationForest(random_state=0)
    forest.fit(USUAL)
    outliers = {"range": "range", "far": "mahalanobis", "rest": "pca"}
    chosen = {**outliers, "forest": flour.from_sklearn(forest, sample=USUAL)}
    given = FORMS[form](rows)
    with runtime.watch("m", reference=USUAL, outliers=chosen) as seen:
        runtime.predict("m", given, engine="inline")
        seen.fold()
        span, far, rest, trees = seen.outliers
        exact = form != "whole numbers"
        assert span.found == 1 or not exact
        assert span.strangest[0].row["age"] == 300.0
        assert [each.rows for each in seen.outliers] == [500] * 4
        assert [each.refused for each in seen.outliers] == [0] * 4
        for found in (far, rest):
            assert found.strangest[0].row["age"] == 300.0
            assert found.strangest[1].row["pay"] == pytest.approx(rows.loc[7, "pay"], abs=0.5)
            assert found.share < 0.02 or not exact
        if exact:
            assert trees.found == (forest.predict(rows) == -1).sum()
        scores = [each.score for each in trees.strangest]
        assert scores == sorted(scores)
        assert len(scores) == 20
        lines = {
            (family.name, dict(labels).get("detector")): value
            for family in families([runtime.endpoints.find("m")])
            for labels, value in family.samples
        }
        assert lines["pretzel_outlier_rows_total", "far"] == 500
        assert lines["pretzel_outliers_total", "far"] == far.found
        seen.restart()
        assert (far.rows, far.found, far.strangest) == (0, 0, [])


def test_arrays_without_names() -> None:
    with Runtime() as runtime:
        flow = flour.vector("x", 4).linear_regressor(np.ones(4))
        runtime.register("v", flow, background=False)
        wanted = ("range", "mahalanobis", "pca")
        with runtime.watch("v", reference=USUAL.to_numpy(), outliers=wanted) as seen:
            rows = TODAY.to_numpy().copy()
            rows[3] = 1e4
            runtime.predict("v", rows, engine="inline")
            seen.fold()
            for each in seen.outliers:
                assert each.strangest[0].row == {"0": 1e4, "1": 1e4, "2": 1e4, "3": 1e4}


def test_private_columns_are_neither_used_nor_kept() -> None:
    row = flour.record(age=float, hours=float, pay=float, debt=float)
    with Runtime() as runtime:
        flow = flour.outputs(score=row["age"] + row["pay"] + row["debt"])
        runtime.register("p", flow, background=False, notes={"private": ["pay"]})
        with runtime.watch("p", reference=USUAL, outliers=("range",)) as seen:
            rows = USUAL[:9].copy()
            rows["pay"] = 4711.25
            runtime.predict("p", rows, engine="inline")
            rows["age"] = 999.0
            runtime.predict("p", rows, engine="inline")
            seen.fold()
            (found,) = seen.outliers
            assert (found.rows, found.found) == (18, 9)
            assert "4711" not in str(found.strangest)
            assert "999" in str(found.strangest)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"outliers": "range"}, "a sequence"),
        ({"outliers": ("rang",)}, "range"),
        ({"outliers": {"mine": 3}}, "mine"),
        ({"outliers": ("range",), "reference": None}, "rows of the reference"),
        ({"outliers": ("pca",), "reference": {"age": [1.0, 2.0]}}, "two columns"),
        ({"outliers": ("pca",), "reference": Reference.of({"age": np.arange(9.0)})}, "of sketches"),
    ],
)
def test_what_cannot_be_told_is_refused(runtime: Runtime, given: Any, says: str) -> None:
    with pytest.raises(FlourError, match=says):
        runtime.watch("m", **{"reference": USUAL, **given})
