"""Scalers and element-wise transforms answer as scikit-learn's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KernelCenterer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import flour
import oven
from flour.core.errors import TypeMismatch, UnsupportedSetting
from tests.estimators import check

rng = np.random.default_rng(7)
X = rng.normal(size=(80, 5)) * [1, 100, 0.01, 1, 3] + [0, 50, 0, 0, 0]
X[:, 3] = 2.0  # a constant column
HOLES = np.where(rng.random(X.shape) < 0.2, np.nan, X)
COUNTS = rng.integers(0, 4, size=(80, 5)).astype(float)
POSITIVE = np.abs(X) + 0.5
CSR = sp.csr_array(COUNTS * (rng.random(COUNTS.shape) < 0.5))
LABELS = X[:, 0] > 0

LINEAR = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    StandardScaler(with_std=False),
    StandardScaler(with_mean=False, with_std=False),
    MinMaxScaler(),
    MinMaxScaler(feature_range=(-2, 5), clip=True),
    MaxAbsScaler(),
    MaxAbsScaler(clip=True),
    RobustScaler(),
    RobustScaler(with_centering=False, quantile_range=(10.0, 60.0), unit_variance=True),
    RobustScaler(with_scaling=False),
]


@pytest.mark.parametrize("scaler", LINEAR, ids=str)
@pytest.mark.parametrize("holes", [False, True], ids=["whole", "holes"])
def test_scalers_are_equal_to_the_last_bit(scaler: Any, *, holes: bool) -> None:
    data = HOLES if holes else X
    check(scaler.fit(data), 2 * data - 1, tolerance=0)


@pytest.mark.parametrize("scaler", LINEAR, ids=str)
def test_float32_is_computed_as_the_library_does(scaler: Any) -> None:
    narrow = X.astype(np.float32)
    made = flour.from_sklearn(scaler.fit(X)).reference(narrow)["features"]
    expected = scaler.transform(narrow)
    assert made.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(
    "scaler",
    [
        StandardScaler(with_mean=False),
        MaxAbsScaler(),
        MaxAbsScaler(clip=True),
        RobustScaler(with_centering=False),
        Normalizer(),
        Normalizer("l1"),
        Normalizer("max"),
        Binarizer(threshold=1.0),
    ],
    ids=str,
)
def test_sparse_data(scaler: Any) -> None:
    check(scaler.fit(CSR), 3 * CSR, sample=CSR)
    check(scaler.fit(CSR), (3 * CSR).astype(np.float32), sample=CSR)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_rows_of_length_one(norm: str) -> None:
    data = X.copy()
    data[3] = 0
    data[4] = 1e-17  # below the library's notion of zero
    check(Normalizer(norm).fit(data), data)


@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.5])
def test_binarizer(threshold: float) -> None:
    check(Binarizer(threshold=threshold).fit(X), X, tolerance=0)
    whole = COUNTS.astype(np.int64)
    check(Binarizer(threshold=threshold).fit(whole), whole, sample=whole, tolerance=0)


def test_binarizer_needs_its_sparse_zeros_to_stay_zeros() -> None:
    fitted = Binarizer(threshold=-1.0).fit(X)
    with pytest.raises(TypeMismatch, match="threshold"):
        flour.from_sklearn(fitted, sample=CSR)


@pytest.mark.parametrize("method", ["yeo-johnson", "box-cox"])
@pytest.mark.parametrize("standardize", [False, True])
def test_power_transforms(method: str, *, standardize: bool) -> None:
    data = POSITIVE[:, [0, 1, 4]]
    fitted = PowerTransformer(method=method, standardize=standardize).fit(data)
    holes = np.where(rng.random(data.shape) < 0.2, np.nan, data)
    check(fitted, holes)
    fitted.lambdas_ = np.array([0.0, 2.0, 1.0])
    check(fitted, holes if method == "box-cox" else holes - 2)
    check(PowerTransformer(method=method).fit(data.astype(np.float32)), data.astype(np.float32))


@pytest.mark.parametrize("output", ["uniform", "normal"])
@pytest.mark.parametrize("count", [1, 2, 9, 80])
def test_quantiles(output: str, count: int) -> None:
    data = np.column_stack([HOLES, COUNTS[:, :2]])
    fitted = QuantileTransformer(n_quantiles=count, output_distribution=output).fit(data)
    near = data[:20] + 1e-8
    check(fitted, np.concatenate([data, 2 * data - 1, near]))


@pytest.mark.parametrize("output", ["uniform", "normal"])
def test_quantiles_of_sparse_data(output: str) -> None:
    data = sp.csc_array(CSR * 1.7)
    fitted = QuantileTransformer(n_quantiles=9, output_distribution=output).fit(data)
    check(fitted, sp.csr_array(data), sample=CSR)


def test_quantiles_of_dense_data_are_not_those_of_sparse_data() -> None:
    program = flour.from_sklearn(QuantileTransformer(n_quantiles=9).fit(X))
    with pytest.raises(TypeMismatch, match="sparse"):
        program.reference(CSR)


def test_quantiles_of_a_column_without_values() -> None:
    data = X.copy()
    data[:, 1] = np.nan
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        fitted = QuantileTransformer(n_quantiles=9).fit(data)
    check(fitted, X)


def test_kernel_centerer() -> None:
    fitted = KernelCenterer().fit(rbf_kernel(X[:30, :1]))
    check(fitted, rbf_kernel(X[:, :1], X[:30, :1]))


FUNCTIONS = [
    *(np.abs, np.fabs, np.negative, np.square, np.sign, np.floor, np.ceil, np.trunc, np.isnan),
    *(np.exp, np.expm1, np.log, np.log10, np.log1p, np.log2, np.sqrt, np.sin, np.cos, np.tan),
    *(np.sinh, np.cosh, np.tanh, np.rint, np.reciprocal, np.arcsin, np.arccos, np.arctan),
    *(np.arcsinh, np.arccosh, np.arctanh, np.degrees, np.radians, np.deg2rad, np.rad2deg),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions_of_numpy(function: Any) -> None:
    with np.errstate(invalid="ignore"):  # some are for numbers up to 1, or from 1 on
        check(FunctionTransformer(function).fit(POSITIVE), POSITIVE / 30)


def test_clipping_has_arguments_of_its_own() -> None:
    clip = FunctionTransformer(np.clip, kw_args={"a_min": -0.5, "a_max": 1})
    check(clip.fit(X), X, tolerance=0)


def test_no_function_passes_on() -> None:
    check(FunctionTransformer().fit(X), X, tolerance=0)
    check(
        FunctionTransformer(np.log1p, accept_sparse=True, validate=True).fit(CSR), CSR, sample=CSR
    )


@pytest.mark.parametrize("function", [lambda x: x + 1, np.cumsum], ids=["lambda", "cumsum"])
def test_other_functions_are_refused(function: Any) -> None:
    with pytest.raises(UnsupportedSetting, match="Python code"):
        flour.from_sklearn(FunctionTransformer(function, validate=True).fit(X))
    with pytest.raises(UnsupportedSetting, match="arguments"):
        flour.from_sklearn(FunctionTransformer(np.log, kw_args={"where": True}).fit(POSITIVE))


@pytest.mark.parametrize("scaler", [*LINEAR[:1], MinMaxScaler(), RobustScaler()], ids=str)
def test_in_a_pipeline_over_a_frame_with_its_columns_in_another_order(scaler: Any) -> None:
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = make_pipeline(scaler, Normalizer(), LogisticRegression()).fit(frame, LABELS)
    program = check(model, frame)
    turned = program.reference(frame[list("edcba")])
    np.testing.assert_array_equal(turned["label"], model.predict(frame))


finite = st.floats(-1e6, 1e6)


@settings(max_examples=25)
@given(rows=st.lists(st.tuples(finite, finite), min_size=2, max_size=8), data=st.data())
def test_any_data(rows: list[tuple[float, float]], data: st.DataObject) -> None:
    fitted = data.draw(
        st.sampled_from([StandardScaler(), MinMaxScaler(), MaxAbsScaler(), RobustScaler()])
    ).fit(np.array(rows))
    other = data.draw(st.lists(st.tuples(finite, finite), min_size=1, max_size=8))
    check(fitted, np.array(other), tolerance=0)


def test_whole_numbers_count_as_float64_whatever_the_sample_was() -> None:
    narrow = X.astype(np.float32)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(narrow, LABELS)
    for rows in (np.rint(X).astype(np.int64), np.rint(X).astype(np.int16), X > 0):
        check(model, rows, sample=narrow)
        check(StandardScaler().fit(pd.DataFrame(narrow)), pd.DataFrame(rows).to_numpy())


def test_a_dense_block_for_a_sample_of_sparse_whole_numbers() -> None:
    counts = CSR.astype(np.int64)
    program = flour.from_sklearn(MaxAbsScaler().fit(counts), sample=counts)
    for rows in (counts, counts.toarray()):
        assert sp.issparse(program.reference(rows)["features"]) == sp.issparse(rows)


@pytest.mark.parametrize("sample", ["array", "frame", None])
def test_a_frame_is_computed_in_its_own_width(sample: Any) -> None:
    narrow = pd.DataFrame(X.astype(np.float32), columns=list("abcde"))
    samples = {"array": narrow.to_numpy(), "frame": narrow, None: None}
    for data in (narrow, narrow.to_numpy()):
        model = StandardScaler().fit(data)
        program = flour.from_sklearn(model, samples[sample])
        for made in (program.reference, oven.bake(program).run):
            assert made(narrow)["features"].dtype == np.float32
            for wide in (narrow.astype(float), narrow.astype("Float64"), narrow.astype(int)):
                want = np.asarray(wide, float) if data is not narrow else wide
                got = made(wide)["features"]
                assert got.dtype == np.float64
                np.testing.assert_allclose(got, model.transform(want), rtol=1e-12)
