"""numpy's functions of whole numbers: in their own dtype, as numpy has it, or refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import flour
import oven
from flour.core.errors import FlourError, TypeMismatch, WrongDtype
from flour.data.coerce import native_types

WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
SAME = ("absolute", "negative", "square", "sign", "floor", "ceil", "trunc", "isnan")
FLOATS = ("exp", "log1p", "sqrt", "tanh", "arctan", "rint", "fabs", "degrees", "deg2rad")
NARROW = np.array([[1, 100], [-128, 3], [5, 50]], np.int8)
SQUARE = FunctionTransformer(np.square)


def extremes(dtype: str) -> Any:
    """The ends of a dtype and some numbers between them."""
    if dtype == "bool":
        return np.array([[True, False], [False, True]])
    info = np.iinfo(dtype)
    return np.array([[info.min, 3], [info.max, info.max // 2], [7, 100], [0, 1]], dtype)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # theirs, of what wraps or is no number
@pytest.mark.parametrize("name", [*SAME, *FLOATS, "reciprocal"])
@pytest.mark.parametrize("dtype", WHOLE)
def test_dtypes_and_values_are_numpys(dtype: str, name: str) -> None:
    rows = extremes(dtype)
    fitted = FunctionTransformer(getattr(np, name)).fit(rows)
    bits = np.dtype(dtype).itemsize * 8
    refused = (
        name == "reciprocal"
        or (bits == 8 and name in FLOATS)
        or (dtype == "bool" and name != "isnan")
    )
    for sample in (None, rows):
        if refused:
            with pytest.raises(TypeMismatch, match=r"float16|floats|needs numbers"):
                flour.from_sklearn(fitted, sample).reference(rows)
            continue
        made = flour.from_sklearn(fitted, sample).reference(rows)["features"]
        want = fitted.transform(rows)
        assert made.dtype == want.dtype
        np.testing.assert_allclose(made, want, rtol=1e-6)


@pytest.mark.parametrize("name", SAME[:4])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64"])
def test_native_code_wraps_too(dtype: str, name: str) -> None:
    rows = extremes(dtype)
    fitted = FunctionTransformer(getattr(np, name)).fit(rows)
    plan = oven.bake(flour.from_sklearn(fitted))
    want = fitted.transform(rows)
    np.testing.assert_array_equal(
        (plan.variants.of(rows) or plan).wait().run(rows)["features"], want
    )
    np.testing.assert_array_equal(plan.run(rows)["features"], want)
    one = plan.run(rows[1:2])["features"]
    assert one.dtype == want.dtype
    np.testing.assert_array_equal(one, want[1:2])


def frames() -> dict[str, Any]:
    frame = pd.DataFrame(NARROW, columns=["a", "b"])
    return {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "arrow": pa.Table.from_pandas(frame),
        "columns": {"a": NARROW[:, 0], "b": NARROW[:, 1]},
        "floats": frame.astype(float),
        "long and floats": frame.astype({"a": "int64", "b": float}),
    }


@pytest.mark.parametrize("form", frames())
def test_frames(form: str) -> None:
    frame = frames()[form]
    numbers = np.asarray(pd.DataFrame(frame) if isinstance(frame, dict) else frame)
    fitted = SQUARE.fit(frames()["pandas"])
    plan = oven.bake(flour.from_sklearn(fitted))
    for _ in range(2):
        made = plan.run(frame)["features"]
        assert made.dtype == numbers.dtype
        np.testing.assert_array_equal(made, np.square(numbers))
        plan.wait()


@pytest.mark.parametrize("other", ["int16", "float32", "bool"])
def test_a_narrow_column_beside_another_is_refused(other: str) -> None:
    frame = pd.DataFrame(NARROW, columns=["a", "b"]).astype({"b": other})
    plan = oven.bake(flour.from_sklearn(SQUARE.fit(frame)))
    with pytest.raises(WrongDtype, match="a dtype of its own") as found:
        plan.run(frame)
    assert "int8" in str(found.value.found)
    plan.run(frame.astype(float))
    nameless = oven.bake(flour.from_sklearn(SQUARE.fit(NARROW)))
    with pytest.raises(WrongDtype, match="a dtype of its own"):
        nameless.run(frame)


def test_batches_of_arrow() -> None:
    table = pa.Table.from_pandas(frames()["pandas"])
    for rows in (NARROW, frames()["pandas"]):
        made = oven.bake(flour.from_sklearn(SQUARE.fit(rows))).run_arrow(table)
        got = np.stack([*map(np.asarray, pa.table(made)["features"].to_pylist())])
        np.testing.assert_array_equal(got, np.square(NARROW))


def test_other_steps_take_other_dtypes() -> None:
    frame = pd.DataFrame(NARROW, columns=["a", "b"]).astype({"b": "int16"})
    steps = [("square", SQUARE, ["a"]), ("scale", StandardScaler(), ["b"])]
    fitted = ColumnTransformer(steps).fit(frame)
    made = oven.bake(flour.from_sklearn(fitted, frame)).run(frame)["features"]
    np.testing.assert_allclose(made, fitted.transform(frame))


def test_steps_behind_and_saved_plans(tmp_path: Path) -> None:
    fitted = make_pipeline(FunctionTransformer(), SQUARE, LinearRegression()).fit(
        NARROW, [1.0, 2, 3]
    )
    plan = oven.bake(flour.from_sklearn(fitted), exact=True)
    plan.save(tmp_path / "square.plan")
    for each in (plan, oven.load(tmp_path / "square.plan")):
        np.testing.assert_allclose(each.run(NARROW)["value"], fitted.predict(NARROW))
        wide = NARROW.astype(float)
        np.testing.assert_allclose(each.run(wide)["value"], fitted.predict(wide))


def test_lists_are_floats() -> None:
    plan = oven.bake(flour.from_sklearn(SQUARE.fit(NARROW)))
    np.testing.assert_array_equal(plan.run(NARROW.tolist())["features"], NARROW.astype(float) ** 2)


def test_rows_of_a_type_that_no_operator_has_are_to_blame() -> None:
    fitted = FunctionTransformer(np.reciprocal).fit(NARROW)
    plan = oven.bake(flour.from_sklearn(fitted))
    for run in (plan.run, plan.wait().run):
        with pytest.raises(TypeMismatch, match=r"rows of this type\n  at     \$\n.*on floats"):
            run(NARROW)


def test_half_precision_is_refused() -> None:
    with pytest.raises(FlourError, match="float16"):
        oven.bake(flour.from_sklearn(SQUARE.fit(NARROW))).run(NARROW.astype(np.float16))


def test_clipped_whole_numbers_stay_whole() -> None:
    settings = {"a_min": -5, "a_max": 60}
    fitted = FunctionTransformer(np.clip, kw_args=settings).fit(NARROW)
    for dtype in ("int8", "int64", "float64"):
        rows = NARROW.astype(dtype)
        made = flour.from_sklearn(fitted).reference(rows)["features"]
        assert made.dtype == dtype
        np.testing.assert_array_equal(made, fitted.transform(rows))


def test_other_estimators_read_whole_numbers_as_floats() -> None:
    """One plan answers arrays of all dtypes where no function of numpy's reads them."""
    plan = oven.bake(flour.from_sklearn(StandardScaler().fit(NARROW)))
    assert native_types(plan.inputs, NARROW) == plan.inputs


def test_hints_name_what_there_is() -> None:
    with pytest.raises(FlourError, match="numpy's own functions") as refused:
        flour.from_sklearn(FunctionTransformer(len), sample=NARROW)
    named = re.findall(r"np\.(\w+)", refused.value.hint or "")
    assert len(named) > 20
    assert all(hasattr(np, name) for name in named)
    with pytest.raises(TypeMismatch, match=r"astype\(float\)"):
        flour.from_sklearn(FunctionTransformer(np.abs), sample=NARROW > 0)


def test_the_identity_over_columns_of_several_kinds() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "s": ["x", "y"]})
    got = flour.from_sklearn(FunctionTransformer().fit(frame), frame).reference(frame)["features"]
    assert [list(each) for each in got.values()] == [[1.0, 2.0], ["x", "y"]]
