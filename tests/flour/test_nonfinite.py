"""Steps that can make NaN, infinity or numbers beyond float32 x estimators that refuse those.

For every pair, and rows in every form, scikit-learn raises and so does the plan, or both answer the
same. Where a check is needed follows from what operators state about their results
(`Extent` in flour/core/types.py), which holds for every case of every operator's (tests/cases.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn import (
    decomposition,
    ensemble,
    impute,
    kernel_approximation,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    svm,
    tree,
)
from sklearn import preprocessing as pre
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline, make_union

import flour
import oven
from flour.core.errors import InputError, UnsupportedSetting
from flour.core.sparse import densify
from flour.core.types import ANYTHING, FLOATS, LARGEST, LARGEST_SINGLE, Extent, Scalar, Vector
from flour.ops.bases import Elementwise
from flour.ops.elementwise import Add, AsFloat, Cast, Divide, Multiply, Subtract
from flour.sklearn.validation import RefusedInput, with_checks
from tests.case import Case
from tests.cases import CASES

rng = np.random.default_rng(0)
#: Positive numbers, of which the second column's are between 0 and 1.
TRAIN = np.exp(rng.normal(size=(60, 3))) * 0.1
TRAIN[:, 1] = rng.uniform(0.1, 0.9, 60)
TARGET = (TRAIN[:, 0] > 0.1).astype(int)
SHOWN, ROW, COLUMN = 7, 4, 1
ODD = (0.0, -0.5, -1.0, 1.0, 1000.0, 1e30, 1e39, 1e160, 1e199, np.nan, np.inf, -np.inf)
ODD_SINGLE = (0.0, -0.5, 1000.0, 1e30, 1e38, 3.3e38, np.nan, np.inf, -np.inf)


def function(of: Any, **arguments: Any) -> pre.FunctionTransformer:
    """A FunctionTransformer, with the arguments of its function."""
    return pre.FunctionTransformer(of, kw_args=arguments or None)


FUNCTIONS = (
    *("exp", "expm1", "log", "log10", "log1p", "log2", "sqrt", "sin", "cos", "tan", "sinh"),
    *("cosh", "tanh", "rint", "arcsin", "arccos", "arctan", "arcsinh", "arctanh", "absolute"),
    *("fabs", "negative", "square", "sign", "floor", "ceil", "trunc", "reciprocal", "degrees"),
    *("radians", "isnan"),
)
MAKERS: dict[str, Any] = {
    **{name: function(getattr(np, name)) for name in FUNCTIONS},
    "arccosh": make_pipeline(function(np.exp), function(np.arccosh)),
    "clip after exp": make_pipeline(function(np.exp), function(np.clip, a_min=-5, a_max=5)),
    "several functions": make_pipeline(
        function(np.sinh), function(np.negative), function(np.expm1)
    ),
    "checked function": pre.FunctionTransformer(np.square, validate=True),
    "standard": pre.StandardScaler(),
    "min max": pre.MinMaxScaler(),
    "min max, clipped": pre.MinMaxScaler(clip=True),
    "max abs": pre.MaxAbsScaler(),
    "robust": pre.RobustScaler(),
    "unit rows": pre.Normalizer(),
    "largest one": pre.Normalizer("max"),
    "binarizer": pre.Binarizer(threshold=0.3),
    "box-cox": pre.PowerTransformer("box-cox"),
    "box-cox, not scaled": pre.PowerTransformer("box-cox", standardize=False),
    "yeo-johnson": pre.PowerTransformer(),
    "polynomial": pre.PolynomialFeatures(3),
    "quantiles": pre.QuantileTransformer(n_quantiles=9),
    "normal quantiles": pre.QuantileTransformer(n_quantiles=9, output_distribution="normal"),
    "spline": pre.SplineTransformer(extrapolation="linear"),
    "bins": pre.KBinsDiscretizer(3, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
    "PCA": decomposition.PCA(2),
    "truncated SVD": decomposition.TruncatedSVD(2),
    "RBF sampler": kernel_approximation.RBFSampler(n_components=4, random_state=0),
    "Nystroem": kernel_approximation.Nystroem(n_components=4, random_state=0),
    "additive chi2": kernel_approximation.AdditiveChi2Sampler(),
    "skewed chi2": kernel_approximation.SkewedChi2Sampler(n_components=3, random_state=0),
    "mean": impute.SimpleImputer(),
    "zero is missing": impute.SimpleImputer(missing_values=0.0),
    "with indicator": impute.SimpleImputer(add_indicator=True),
    "nearest": impute.KNNImputer(),
    "union": make_union(pre.StandardScaler(), function(np.exp)),
    "of columns": ColumnTransformer([("a", function(np.log), [1])], remainder="passthrough"),
    "dropped": ColumnTransformer([("a", pre.StandardScaler(), [0, 2])]),
    "nested": make_pipeline(pre.StandardScaler(), make_pipeline(function(np.sinh))),
}
#: Those whose features are sums.
SUMS = {"PCA", "truncated SVD", "RBF sampler"}
quiet = {"max_iter": 5, "random_state": 0}
READERS: dict[str, Any] = {
    "logistic": linear_model.LogisticRegression(),
    "scaler and ridge": make_pipeline(pre.StandardScaler(), linear_model.Ridge()),
    "SVC": svm.SVC(),
    "neighbours": neighbors.KNeighborsClassifier(3),
    "Gaussian": naive_bayes.GaussianNB(),
    "network": neural_network.MLPClassifier((3,), **quiet),
    "tree": tree.DecisionTreeClassifier(max_depth=3, random_state=0),
    "forest": ensemble.RandomForestClassifier(3, max_depth=3, random_state=0),
    "boosting": ensemble.GradientBoostingClassifier(n_estimators=3, random_state=0),
    "histograms": ensemble.HistGradientBoostingClassifier(max_iter=3),
    "scaler": pre.StandardScaler(),
    "projection": decomposition.PCA(1),
    "imputer": impute.SimpleImputer(),
    "discretiser": pre.KBinsDiscretizer(
        2, encode="ordinal", quantile_method="averaged_inverted_cdf"
    ),
    "voting": ensemble.VotingRegressor(
        [("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=2))]
    ),
    "stacking": ensemble.StackingRegressor(
        [("a", linear_model.LinearRegression())], linear_model.Ridge(), cv=2
    ),
}
#: Every maker and every reader, of those that take the maker's features.
FEW = [(maker, [*READERS][5 * place % len(READERS)]) for place, maker in enumerate(MAKERS)]
NATIVE = [
    *(("box-cox", "scaler and ridge"), ("expm1", "logistic"), ("standard", "tree")),
    *(("polynomial", "SVC"), ("of columns", "histograms"), ("square", "scaler")),
]
EVERY = [*product(MAKERS, READERS)]
Answer = Callable[[Any], dict[str, Any]]


class Pair(NamedTuple):
    """A pipeline, and what answers in its place: the program's definition, or plans."""

    original: Any
    ways: tuple[Answer, ...]

    def want(self, rows: Any) -> NDArray[np.float64] | None:
        """The original's answers; None where it refuses the rows."""
        ask = getattr(self.original, "predict", None) or self.original.transform
        with np.errstate(all="ignore"):
            try:
                return np.asarray(ask(rows), np.float64)
            except ValueError:
                return None

    def held(self, rows: Any, about: str, where: str) -> None:
        """Each answers as the original does, or refuses the rows as it does."""
        want = self.want(rows)
        for way in self.ways:
            if want is None:
                with pytest.raises(InputError, match=r"refuses (NaN|infinity|a number)") as caught:
                    pytest.fail(f"{about} is answered: {way(rows)}")
                assert where in str(caught.value.where)
                continue
            with np.errstate(all="ignore"):
                found = way(rows)
            name = next(each for each in ("label", "value", "features") if each in found)
            got = np.asarray(found[name], np.float64).reshape(want.shape)
            tolerance = 3e-3 if getattr(rows, "dtype", None) == np.float32 else 1e-7
            largest = np.abs(want[np.isfinite(want)]).max(initial=1.0)
            np.testing.assert_allclose(
                got, want, rtol=tolerance, atol=tolerance * min(largest, 1e30), err_msg=about
            )


def fitted(original: Any, rows: Any, *ways: str) -> Pair:
    """A pipeline that is fitted, and its program run in these ways."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # few iterations, and overflow
        made = clone(original).fit(rows, TARGET)
    program = flour.from_sklearn(made, rows)
    exact = {"native": False, "exact": True}
    baked = (oven.bake(program, exact=exact[way]).run for way in ways)
    return Pair(made, tuple(baked) or (program.reference,))


def compared(maker: str, reader: str, dtype: str, *ways: str) -> None:
    """Blocks with an odd number in the middle, and its row by itself."""
    pair = fitted(make_pipeline(MAKERS[maker], READERS[reader]), TRAIN.astype(dtype), *ways)
    for odd in ODD if dtype == "float64" else ODD_SINGLE:
        if dtype == "float32" and 1e30 < odd < np.inf and (maker in SUMS or reader == "stacking"):
            continue  # docs/reference/scikit-learn.md: sums in float32 are of numbers up to 1e30
        rows = TRAIN[:SHOWN].astype(dtype)
        rows[ROW, COLUMN] = odd
        pair.held(rows, f"{odd} in a block", f"[{ROW}]")
        if odd in (-1.0, 1000.0, np.inf):
            pair.held(rows[ROW : ROW + 1], f"{odd} in a row", "[0]")


@pytest.mark.parametrize(
    ("maker", "reader", "how"),
    [
        *((*pair, ("float64",)) for pair in FEW),
        *((*pair, ("float32",)) for pair in FEW[::4]),
        *((*pair, ("float64", "native")) for pair in NATIVE),
    ],
)
def test_refused_where_the_original_refuses(maker: str, reader: str, how: tuple[str, ...]) -> None:
    compared(maker, reader, *how)


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("maker", "reader"), EVERY)
def test_every_pair(maker: str, reader: str, dtype: str) -> None:
    try:
        compared(maker, reader, dtype, "native", "exact")
    except UnsupportedSetting as problem:  # a naive Bayes of columns that are constant
        pytest.skip(problem.what)


# --- categories that make NaN ---------------------------------------------------------------------

FRAME = pd.DataFrame(
    {
        "size": rng.uniform(1.0, 2.0, 60),
        "town": rng.choice(["Oslo", "Rome"], 60),
        "sort": rng.choice(np.array(["a", "b", np.nan], object), 60),
    }
)
FRAME.loc[FRAME["sort"] == "nan", "sort"] = np.nan
UNKNOWN = {"handle_unknown": "use_encoded_value", "unknown_value": np.nan}


def encoded(columns: list[str], **how: Any) -> ColumnTransformer:
    """Categories of some columns as their ordinals, beside the number."""
    parts = [("codes", pre.OrdinalEncoder(**how), columns), ("plain", "passthrough", ["size"])]
    return ColumnTransformer(parts)


@pytest.mark.parametrize("reader", READERS)
def test_an_unknown_category_is_refused_as_nan(reader: str) -> None:
    pair = fitted(make_pipeline(encoded(["town"], **UNKNOWN), READERS[reader]), FRAME)
    rows = FRAME.head(SHOWN).copy()
    pair.held(rows, "known towns", "")
    rows.loc[ROW, "town"] = "Bern"
    pair.held(rows, "an unknown town", f"[{ROW}]")
    pair.held(rows.iloc[[ROW]], "an unknown town in a row", "[0]")


def test_a_dict_and_a_frame_are_told_the_column() -> None:
    original = make_pipeline(encoded(["town"], **UNKNOWN), linear_model.LogisticRegression())
    pair = fitted(original, FRAME, "native")
    rows = FRAME.head(SHOWN).copy()
    rows.loc[ROW, "town"] = "Bern"
    pair.held(rows, "a frame", f"$.town[{ROW}]")
    (ask,) = pair.ways
    with pytest.raises(InputError, match="LogisticRegression refuses NaN") as caught:
        ask({name: [*rows[name]] for name in rows})
    assert caught.value.where == f"$.town[{ROW}]"


@pytest.mark.parametrize("reader", ["logistic", "forest", "histograms", "imputer"])
def test_a_missing_category_stays_missing(reader: str) -> None:
    # Fitted on gaps: what refuses NaN cannot be fitted, so an imputer fills what it reads.
    steps = [impute.SimpleImputer()] if reader == "logistic" else []
    original = make_pipeline(encoded(["sort"]), *steps, READERS[reader])
    pair = fitted(original, FRAME)
    rows = FRAME.head(SHOWN).copy()
    rows["sort"] = ["a", np.nan, "b", "a", np.nan, "b", "a"]
    pair.held(rows, "missing sorts", "")


# --- the facts that operators state ---------------------------------------------------------------


@pytest.fixture
def as_who_asks_does() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def states(case: Case) -> bool:
    """Whether an operator says what its results are for some numbers that are finite."""
    kinds = [*case.inputs]
    given = [Extent(nan=False, largest=10.0) for _ in kinds]
    with np.errstate(all="ignore"):  # as who asks does
        return dtype_of(case) in FLOATS and case.op.extent(given, kinds) != ANYTHING


def dtype_of(case: Case) -> str:
    """The dtype of an operator's answer, empty where it has none."""
    return getattr(case.op.infer(*case.inputs), "dtype", "")


def takes_floats(case: Case) -> bool:
    """Whether its inputs are ordinary floats."""
    kinds = case.inputs
    plain = all(isinstance(kind, Vector | Scalar) and kind.dtype in FLOATS for kind in kinds)
    return plain and case.draw is None


STATING = [case for case in CASES if takes_floats(case) and states(case)]


def numbers(kind: Any, extent: Extent, count: int = 64) -> Any:
    """Numbers of this extent, its ends among them."""
    width = kind.width if isinstance(kind, Vector) else 1
    most = min(extent.largest, float(np.finfo(kind.dtype).max))
    picked = [-most, most, 0.0, -0.0, 0.5, -0.5, *([np.nan] if extent.nan else [])]
    infinite = [np.inf, -np.inf] if np.isinf(extent.largest) else []
    values = rng.choice([*picked, *infinite, *rng.uniform(-1, 1, 9) * most], (count, width))
    column = values.astype(kind.dtype)
    return column if isinstance(kind, Vector) else column[:, 0]


@pytest.mark.usefixtures("as_who_asks_does")
@pytest.mark.parametrize("case", STATING, ids=lambda case: case.name)
def test_no_result_is_beyond_the_stated_extent(case: Case) -> None:
    for extent in (Extent(False, 3.0), Extent(False, 1e200), Extent(True, np.inf)):
        within(case, extent)


@pytest.mark.parametrize("kind", [Add, Subtract, Multiply, Divide])
def test_one_fitted_number_tells_the_extent_of_arithmetic(kind: type[Elementwise]) -> None:
    odd, own = [0.0, -0.0, np.nan, np.inf, -np.inf, LARGEST, 5e-324], np.random.default_rng(1)
    sizes = (1e-300, 1e-9, 1.0, 1e9, 1e300)
    operands = [own.normal(size=3) * size for size in sizes]
    operands += [np.array([2.0, each]) for each in odd]
    operands += [np.array([3, -4]), np.ones(2, np.float32), np.empty(0)]
    largest = (0.0, 1.0, 1e15, LARGEST_SINGLE, 1e200, LARGEST, np.inf)
    for operand, most, nan, dtype in product(operands, largest, (False, True), FLOATS):
        given = [Extent(nan, most)], [Vector(len(operand), dtype)]
        op = kind(operand)
        with np.errstate(all="ignore"):
            assert op.extent(*given) == Elementwise.extent(op, *given), (operand, most, dtype)


@pytest.mark.parametrize("op", [AsFloat(), Cast("float64"), Cast("float32")], ids=repr)
def test_the_extent_of_a_cast_is_that_of_its_ends(op: Cast) -> None:
    for most, nan, dtype in product((1.0, 1e30, 1e200, np.inf), (False, True), (*FLOATS, "int64")):
        given = [Extent(nan, most)], [Vector(2, dtype)]
        with np.errstate(all="ignore"):
            assert op.extent(*given) == Elementwise.extent(op, *given), (most, nan, dtype)


def within(case: Case, extent: Extent) -> None:
    """What an operator makes of numbers of this extent is within what it states."""
    given = [numbers(kind, extent) for kind in case.inputs]
    most = [min(extent.largest, float(np.finfo(getattr(k, "dtype", "")).max)) for k in case.inputs]
    infinite = np.isinf(extent.largest)
    held = [Extent(extent.nan, np.inf if infinite else each) for each in most]
    kinds = [replace(k, sparse=False) if isinstance(k, Vector) else k for k in case.inputs]
    stated = case.op.extent(held, kinds)
    with np.errstate(all="ignore"):
        try:
            made = densify(case.op.reference(*given))
        except InputError:
            return  # a check: it lets nothing else pass
    sizes = np.abs(np.asarray(made, np.float64))
    assert stated.nan or not np.isnan(sizes).any()
    if case.op.name in {"Impute", "RequireFinite", "Trees"} or (
        case.op.name == "Linear" and dtype_of(case) == "float32"
    ):
        return  # overflow is left out of account
    end = LARGEST_SINGLE if dtype_of(case) == "float32" else LARGEST
    limit = stated.largest * (1 + 1e-6) if stated.largest <= end else np.inf
    assert not (sizes > limit).any()


def test_an_operator_that_says_nothing_is_checked_behind_itself() -> None:
    class Silent(Elementwise):
        """x, which the operator does not say."""

        def compute(self, x: NDArray[Any]) -> Any:
            return x

    x = flour.vector("x", 2)
    silent = Silent()(x)
    refused = RefusedInput("Model", nan=True, largest=LARGEST)
    program = with_checks(flour.outputs(y=silent), [(silent.node, refused)])
    assert str(program.outputs["y"].op.name) == "RequireFinite"


def test_what_overflows_behind_a_scaler_is_refused_ahead_of_it() -> None:
    original = make_pipeline(pre.StandardScaler(), tree.DecisionTreeClassifier())
    program = flour.from_sklearn(original.fit(TRAIN, TARGET))
    checks = [item for item in program.nodes() if item.op.name == "RequireFinite"]
    assert [item.inputs[0].op.name for item in checks] == ["Source"]
    limits = checks[0].op.fields()["largest"].array
    np.testing.assert_allclose(limits, LARGEST_SINGLE * original[0].scale_)


@pytest.mark.parametrize("degree", [3, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_kernel_that_overflows_is_refused_where_it_is_centred(degree: int, dtype: str) -> None:
    alone = decomposition.KernelPCA(2, kernel="poly", degree=degree)
    ahead = make_pipeline(alone, ensemble.HistGradientBoostingClassifier(max_iter=2))
    large = 1e14 if dtype == "float32" else 1e110
    bad = TRAIN[:5].astype(dtype)
    bad[3, 0] = large
    for fitted in (alone.fit(TRAIN.astype(dtype)), ahead.fit(TRAIN.astype(dtype), TARGET)):
        plan = oven.bake(flour.from_sklearn(fitted))
        for rows, where in ((bad, "$[3]"), (bad[3:4], "$[0]")):
            with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"contains (inf|NaN)"):
                getattr(fitted, "transform" if fitted is alone else "predict")(rows)
            with pytest.raises(InputError, match="KernelCenterer refuses") as refused:
                plan.run(rows)
            assert str(refused.value.where).startswith(where)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(
    "model", [naive_bayes.GaussianNB(), linear_model.LogisticRegression()], ids=["bayes", "linear"]
)
def test_powers_of_numbers_near_the_end_of_the_range(model: Any, *, scaled: bool) -> None:
    """They overflow with one sign and stay numbers with the other, as exponents have it."""
    signed = np.random.default_rng(0).normal(size=(90, 3))
    made = make_pipeline(pre.PowerTransformer(standardize=scaled), model)
    made.fit(signed, signed.sum(axis=1) > 0)
    plan, outcomes = oven.bake(flour.from_sklearn(made)), set()
    for far in (-1e300, 1e300, 1e308, -1e308):
        row = np.array([[far, 0.0, 0.0]])
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                want = made.predict_proba(row)
            except ValueError:
                outcomes.add("refused")
                with pytest.raises(InputError, match=r"refuses infinity\n.*\$\[0\]\[0\]"):
                    plan.run(row)
                continue
        outcomes.add("answered")
        np.testing.assert_allclose(plan.run(row)["probabilities"], want, rtol=1e-9)
    assert outcomes == {"refused", "answered"}
