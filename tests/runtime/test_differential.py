"""Random pipelines over mixed frames answer and refuse as the originals do, in every form of rows.

The soak has a million rows over three hundred pipelines; the short run is the beginning of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import is_regressor
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import Lasso, LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics.pairwise import nan_euclidean_distances
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import flour
import oven
from flour.core.errors import FlourError, NotNumeric, NotRectangular, WrongDtype
from runtime.verify import compare
from tests.forms import blocks, single_rows

Make = Callable[[], Any]
NUMBERS: list[Make] = [
    *(StandardScaler, RobustScaler, MaxAbsScaler, PowerTransformer, PolynomialFeatures),
    *(Normalizer, SimpleImputer, lambda: "passthrough", lambda: MinMaxScaler(clip=True)),
    *(Binarizer, lambda: KNNImputer(n_neighbors=2), lambda: SimpleImputer(strategy="median")),
    *(lambda: QuantileTransformer(n_quantiles=20), lambda: KBinsDiscretizer(4)),
    lambda: SplineTransformer(extrapolation="constant"),
    lambda: make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()),
]
TEXTS: list[Make] = [
    *(OrdinalEncoder, TargetEncoder, lambda: OneHotEncoder(drop="first")),
    lambda: OneHotEncoder(min_frequency=3, handle_unknown="infrequent_if_exist"),
    lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    lambda: make_pipeline(
        SimpleImputer(strategy="constant", fill_value="none"),
        OneHotEncoder(handle_unknown="ignore"),
    ),
]
DOCUMENTS: list[Make] = [TfidfVectorizer, lambda: CountVectorizer(analyzer="char_wb")]
MODELS: list[Make] = [
    *(LogisticRegression, RidgeClassifier, Ridge, GaussianNB, LinearSVC, SVC),
    *(lambda: RandomForestClassifier(5, max_depth=4), lambda: RandomForestRegressor(4)),
    *(lambda: GradientBoostingClassifier(n_estimators=4), lambda: ExtraTreesClassifier(5)),
    *(lambda: HistGradientBoostingClassifier(max_iter=4), DecisionTreeClassifier),
    *(KNeighborsClassifier, KNeighborsRegressor, LinearDiscriminantAnalysis, SVR, Lasso),
    *(lambda: MLPClassifier((4,), max_iter=9), lambda: BaggingClassifier(n_estimators=3)),
    lambda: make_pipeline(SelectKBest(k=2), LogisticRegression()),
    lambda: StackingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], cv=2),
    lambda: VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="soft"),
    lambda: VotingRegressor([("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=4))]),
]
WHOLE = {"e": "int8", "f": "uint8", "g": "int16", "h": "uint16", "i": "int32", "j": "uint64"}
TEXT_COLUMNS = ["s", "t", "text"]


def frame(rng: np.random.Generator, rows: int, *, holes: bool, odd: bool) -> pd.DataFrame:
    """Columns of every kind; with missing values, and with infinities and huge numbers."""
    made = pd.DataFrame(
        {
            "a": rng.normal(size=rows) * 3,
            "b": rng.integers(-3, 4, rows),
            "c": rng.normal(size=rows).astype("float32"),
            "d": rng.random(rows) < 0.5,
            "s": pd.Series(rng.choice(["x", "y", "zz", "é"], rows), dtype=object),
            "t": pd.Series(rng.choice(["u", "v"], rows), dtype=object),
            "text": pd.Series(
                rng.choice(["a cat", "the dog sat", "", "dog é"], rows), dtype=object
            ),
        }
        | {name: rng.integers(0, 9, rows).astype(kind) for name, kind in WHOLE.items()}
    )
    if holes:
        made.loc[rng.random(rows) < 0.2, "a"] = np.nan
        made.loc[rng.random(rows) < 0.2, "s"] = None
    if odd:
        made.loc[rng.random(rows) < 0.05, "a"] = np.inf
        made.loc[rng.random(rows) < 0.05, "c"] = 1e18  # its square is a float32, too
    return made


def pick(rng: np.random.Generator, makes: list[Make]) -> Any:
    """One of them, made."""
    return makes[rng.integers(len(makes))]()


def pipeline(rng: np.random.Generator, train: pd.DataFrame) -> tuple[Any, pd.DataFrame] | None:
    """A fitted pipeline and what it was fitted on; None where the library refuses to fit it."""
    kinds = ["a", "b", "c", "d", rng.choice(list(WHOLE))]
    numbers = [str(name) for name in rng.permutation(kinds)][: rng.integers(1, 6)]
    texts = [str(name) for name in rng.permutation(["s", "t"])][: rng.integers(0, 3)]
    cut = rng.integers(1, len(numbers) + 1)
    parts: list[tuple[Any, Any]] = [(pick(rng, NUMBERS), numbers[:cut])]
    parts += [(pick(rng, NUMBERS), numbers[cut:])] if numbers[cut:] else []
    parts += [(pick(rng, TEXTS), [*texts])] if texts else []
    if rng.random() < 0.2:
        parts += [(pick(rng, DOCUMENTS), "text")]
        texts.append("text")
    model, dense = pick(rng, MODELS), float(rng.integers(2))
    if "Neighbors" in type(model).__name__:
        dense = 0.0  # of equally near sparse rows, numpy's argpartition chooses
    made = make_pipeline(make_column_transformer(*parts, sparse_threshold=dense), model)
    labels = np.array([["no", "yes", "maybe"], ["0", "1", "1"]][rng.integers(2)])
    target = rng.normal(size=len(train)) if is_regressor(model) else rng.choice(labels, len(train))
    rows = train[[str(name) for name in rng.permutation([*numbers, *texts])]]
    try:
        return made.fit(rows, target), rows
    except (ValueError, TypeError):
        return None


def forms(rows: pd.DataFrame) -> Iterator[tuple[str, Any, pd.DataFrame]]:
    """The rows in every form, and some of them alone: what it is called, the data, the frame."""
    for name, data in blocks(rows):
        yield name, data, rows
    for place in range(4):
        one = rows.iloc[[place]]
        yield "a series", rows.iloc[place], one
        yield "a frame of one row", one, one
        for name, data in single_rows(rows, place):
            yield f"a row as {name}", data, one


HOSTILE = [None, np.nan, pd.NA, True, "", "1.5", "never seen", -1e18, 1e-30]
HOSTILE += [2**53 + 1, 2**63, [], [1.0], {}, b"x", 1j, object()]
#: Refusals of a value's type, or of one that its column's type does not hold: the original converts
#: some of these.
STRICTER = (WrongDtype, NotNumeric, NotRectangular)
ODD_ROW = "a row with"


def hostile(rng: np.random.Generator, rows: pd.DataFrame) -> Iterator[tuple[str, Any]]:
    """Single rows with an odd value, without a column, or with one more: the name, and the row."""
    row = dict(zip(rows, rows.astype(object).to_numpy()[0].tolist(), strict=True))
    for value in HOSTILE:
        name = str(rng.choice(list(rows)))
        if isinstance(value, list) and len(row) == 1:
            continue  # that is a column
        yield f"{ODD_ROW} {value!r} for {name}", {**row, name: value}
    gone = str(rng.choice(list(rows)))
    yield f"without {gone}", {name: value for name, value in row.items() if name != gone}
    yield "with one more", {**row, "other": [1, {"x": None}]}
    yield "nothing", {}


def outcome(call: Callable[[Any], Any], data: Any, error: type[Exception] = Exception) -> Any:
    """What a call returns, or the error with which it refuses its data."""
    try:
        return call(data)
    except error as problem:
        return problem


def as_read(row: dict[str, Any]) -> pd.DataFrame:
    """The row as a frame whose columns of strings are of objects; NA and no number are NaN."""
    rows = pd.DataFrame(
        [
            {
                name: np.nan if v is pd.NA or (v is None and name not in TEXT_COLUMNS) else v
                for name, v in row.items()
            }
        ]
    )
    return rows.astype({name: object for name in rows if name in TEXT_COLUMNS})


class Held(NamedTuple):
    """An original with its plan, and what is said of it."""

    original: Any
    sample: pd.DataFrame
    plan: Any
    about: str

    def wanted(self, rows: pd.DataFrame) -> Any:
        """What the original answers, or the error with which it refuses the rows."""
        return outcome(self.original.predict, rows)

    def compare(self, way: Callable[[Any], Any], given: Any, want: Any, form: str) -> Any:
        """What is answered, or refused; it fails where the original does otherwise."""
        got = outcome(way, given, FlourError)
        where = f"{self.about}, {form}"
        if "assignment destination is read-only" in str(want):
            return got  # a slip of scikit-learn over bools from pandas
        if isinstance(got, Exception) or isinstance(want, Exception):
            strict = form.startswith(ODD_ROW) and isinstance(got, STRICTER)
            alike = isinstance(got, Exception) and (strict or isinstance(want, Exception))
            assert alike, f"{where}: {got!r} in place of {want!r}"
            return got
        answers = got if isinstance(got, dict) else dict(zip(self.plan.outputs, got, strict=True))
        output = "value" if "value" in answers else "label"
        bad = compare(output, np.atleast_1d(answers[output]), want, 1e-6)
        assert bad is None, f"{where}: {bad}"
        return got


def held(rng: np.random.Generator, about: str, *, holes: bool) -> Held:
    """A random pipeline, fitted and imported; the library refuses to fit some, which are not it."""
    fitted = None
    while fitted is None:
        fitted = pipeline(rng, frame(rng, 80, holes=holes, odd=False))
    original, sample = fitted
    plan = oven.bake(flour.from_sklearn(original, sample), background=False)
    return Held(original, sample, plan, f"{about}, {original}")


def is_tied(original: Any, rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Rows with a cell that a KNNImputer fills from one of several neighbours, as near as others.

    Which of them it takes is up to numpy's argpartition, and so to the processor.
    """
    tied = np.zeros(len(rows), bool)
    for _, step, columns in original[0].transformers_:
        if not isinstance(step, KNNImputer):
            continue
        given, known = rows[columns].to_numpy(float, copy=True), step._fit_X
        given[np.isinf(given)] = np.nan  # it refuses these rows
        near = nan_euclidean_distances(given, known)
        for row, column in zip(*np.nonzero(np.isnan(given)), strict=True):
            found = np.sort(near[row, ~np.isnan(known[:, column])])
            found, count = found[~np.isnan(found)], step.n_neighbors
            squares = found[count - 1 : count + 1] ** 2  # of equal ones the last bits may differ
            tied[row] |= np.isclose(squares[:-1], squares[1:], rtol=1e-9, atol=1e-9).any()
    return tied


def hold(seed: int, rows: int) -> int:
    """Hold one random pipeline to its original; how many rows were compared."""
    rng = np.random.default_rng(seed)
    holes = bool(rng.integers(2))
    made = held(rng, f"seed {seed}", holes=holes)
    entry, compared = made.plan.entry(), 0
    for gaps, odd in ((holes, False), (True, False), (True, True)):
        data = frame(rng, rows, holes=gaps, odd=odd)[list(made.sample)]
        data = data[~is_tied(made.original, data)]
        whole = made.wanted(data)
        for form, given, as_frame in forms(data):
            want = whole if as_frame is data else made.wanted(as_frame)
            for way in (entry, made.plan.run) if as_frame is data else (entry,):
                made.compare(way, given, want, f"{form}, gaps {gaps}, odd {odd}")
                compared += len(as_frame)
    for form, row in hostile(rng, made.sample):
        made.compare(entry, row, made.wanted(as_read(row)), form)
    return compared


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(6))
def test_random_pipelines_answer_as_the_originals(seed: int) -> None:
    hold(seed, 40)


@pytest.mark.soak
def test_a_million_rows_of_random_pipelines() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sum(hold(seed, 40) for seed in range(300)) > 1_000_000


@pytest.mark.parametrize("scaler", [QuantileTransformer(n_quantiles=9), MaxAbsScaler()])
def test_missing_numbers_that_a_step_passes_on_are_refused_by_the_next(scaler: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    program = flour.from_sklearn(make_pipeline(scaler, Ridge()).fit(rows, rows[:, 0]))
    with pytest.raises(ValueError, match="Ridge refuses NaN"):
        oven.bake(program).run([[1.0, np.nan]])


def test_trees_over_sparse_rows_refuse_missing_numbers() -> None:
    """Over dense ones they take them."""
    rows = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0] * 9, "s": ["x", "y", "z", "x"] * 9})
    for threshold in (0.0, 1.0):
        columns = make_column_transformer(
            ("passthrough", ["a"]), (OneHotEncoder(), ["s"]), sparse_threshold=threshold
        )
        original = make_pipeline(columns, DecisionTreeClassifier()).fit(rows, rows["s"])
        row = pd.DataFrame({"a": [np.nan], "s": ["x"]})
        want = outcome(original.predict, row)
        got = outcome(oven.bake(flour.from_sklearn(original, rows)).run, row)
        refused = [isinstance(each, ValueError) for each in (want, got)]
        assert refused == [threshold == 1.0] * 2
