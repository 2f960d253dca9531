"""The smallest changes that change an answer, held against brute force and the originals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

import flour
import oven
import pretzel
from flour.core.errors import FlourError
from flour.data.frames import has_integers
from oven.explain import counterfactual
from oven.plans.counterfactual import Counterfactual
from runtime.watch import training_of

Rows = NDArray[np.float64]


def rows(columns: int = 4, count: int = 300) -> Rows:
    """Return rows of numbers."""
    return np.random.default_rng(columns).normal(size=(count, columns))


def labels(X: NDArray[Any], classes: int = 2) -> NDArray[np.int64]:
    """Return what depends on several columns together."""
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * np.sin(3 * X[:, -1])
    cuts = np.quantile(score, np.arange(1, classes) / classes)
    return np.asarray(np.digitize(score, cuts), np.int64)


def plan_of(fit: Any, X: Any) -> oven.Plan:
    """Return a model's plan."""
    return oven.bake(flour.from_sklearn(fit, sample=X))


def thresholds(fit: Any) -> list[list[float]]:
    """Return the values that each column of a fitted forest or booster is compared with."""
    if hasattr(fit, "booster_"):
        frame = fit.booster_.trees_to_dataframe()
        names, cuts = fit.booster_.feature_name(), frame["threshold"]
        return [sorted(set(cuts[frame["split_feature"] == name].dropna())) for name in names]
    if hasattr(fit, "get_booster"):
        frame = fit.get_booster().trees_to_dataframe()
        columns = range(fit.n_features_in_)
        return [sorted(set(frame["Split"][frame["Feature"] == f"f{j}"])) for j in columns]
    trees = getattr(fit, "estimators_", [fit])
    trees = [each.tree_ for each in np.ravel(np.asarray(trees, dtype=object))]
    columns = range(fit.n_features_in_)
    return [sorted({t for e in trees for t in e.threshold[e.feature == j]}) for j in columns]


def around(cuts: Sequence[float], width: float = 1e-6) -> list[float]:
    """Return a value on each side of every threshold, beyond the rounding to float32."""
    return [cut + side * width * max(1.0, abs(cut)) for cut in cuts for side in (-1, 1)]


def brute(
    fit: Any, want: Any, row: Rows, values: Sequence[Sequence[float]], scales: Rows, most: int = 2
) -> tuple[int, float] | None:
    """Return the fewest columns and the least cost of all combinations of these values."""
    for size in range(1, most + 1):
        best = np.inf
        for chosen in combinations(range(len(row)), size):
            sets = np.array([*product(*(values[j] for j in chosen))], float).reshape(-1, size)
            if not len(sets):
                continue
            block = np.repeat(row[None], len(sets), axis=0)
            block[:, chosen] = sets
            costs = (np.abs(block - row) / scales).sum(axis=1)
            best = min(best, costs[fit.predict(block) == want].min(initial=np.inf))
        if np.isfinite(best):
            return size, float(best)
    return None


def scales_of(row: Rows) -> Rows:
    """Return the distances that cost 1 where nothing else is known."""
    return np.maximum(1.0, np.abs(row))


TREES: dict[str, tuple[Any, int]] = {
    "tree": (DecisionTreeClassifier(max_depth=5, random_state=0), 2),
    "forest": (RandomForestClassifier(7, max_depth=4, random_state=0), 2),
    "forest-three": (RandomForestClassifier(6, max_depth=4, random_state=0), 3),
    "boosted-three": (GradientBoostingClassifier(n_estimators=5, random_state=0), 3),
    "light": (LGBMClassifier(n_estimators=12, num_leaves=8, verbose=-1, n_jobs=1), 2),
    "xg": (XGBClassifier(n_estimators=8, max_depth=4, n_jobs=1), 2),
}


@pytest.mark.parametrize("name", [*TREES])
def test_trees_are_changed_as_little_as_brute_force_does(name: str) -> None:
    """Every change is proved, has the original's word, and none of all cells is cheaper."""
    fit, classes = TREES[name]
    X = rows()
    fit.fit(X, labels(X, classes))
    plan, values = plan_of(fit, X), [around(each) for each in thresholds(fit)]
    for row in X[:25]:
        want = (int(fit.predict(row[None])[0]) + 1) % classes
        made = counterfactual(plan, row, want=want, most=2)
        found = brute(fit, want, row, values, scales_of(row))
        assert made.proved
        checked(made, fit, row)
        if found is None:
            assert not made.found
        else:
            assert len(made.changes) == found[0]
            assert made.cost == pytest.approx(found[1], abs=1e-5)


def checked(made: Counterfactual, fit: Any, row: Rows) -> None:
    """Check that the original answers the told row as told, and what has changed."""
    if not made.found:
        assert np.array_equal(made.row, row)
        return
    assert fit.predict(made.row[None])[0] == made.want == made.after["label"]
    moved = np.flatnonzero(made.row != row)
    assert {f"X[{j}]" for j in moved} == {each.column for each in made.changes}
    assert made.cost == pytest.approx(np.sum(np.abs(made.row - row) / scales_of(row)))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_models_are_changed_up_to_the_boundary(scaled: bool, classes: int) -> None:  # noqa: FBT001 (a case)
    """Nothing on a fine grid is cheaper, of one column or of two with bounds."""
    X = rows(3)
    fit = LogisticRegression(C=1e4)
    fit = make_pipeline(StandardScaler(), fit) if scaled else fit
    y = np.digitize(X.sum(axis=1), [0.0] if classes == 2 else [-0.7, 0.7])
    fit.fit(X * [1.0, 30.0, 0.1], y)
    X, plan = X * [1.0, 30.0, 0.1], plan_of(fit, X)
    within = {f"X[{j}]": (-spread, spread) for j, spread in enumerate((1.5, 45.0, 0.15))}
    grid = [[*np.linspace(low, high, 161)] for low, high in within.values()]
    scales = np.array([high - low for low, high in within.values()])
    sizes = set()
    for row in X[:40]:
        want = (int(fit.predict(row[None])[0]) + 1) % classes
        made = counterfactual(plan, row, want=want, within=within, most=2)
        found = brute(fit, want, row, grid, scales)
        if not made.found:
            assert found is None
            continue
        assert fit.predict(made.row[None])[0] == want
        sizes.add(len(made.changes))
        for each in made.changes:
            low, high = within[each.column]
            assert low <= each.new <= high
        if found is not None:
            assert len(made.changes) <= found[0]
        if found is not None and len(made.changes) == found[0]:
            assert made.cost <= found[1] + (1e-6 if made.proved else 0.005)
            assert made.cost >= found[1] - 0.03
        assert made.proved == (classes == 2 or len(made.changes) == 1)
    assert {1, 2} <= sizes


# --- tables of numbers and categories -------------------------------------------------------------


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    """Return rows with numbers, integers, a category and a document."""
    rng = np.random.default_rng(3)
    notes = ["good day", "a bad day", "very good, good indeed", "bad and worse", "nothing to say"]
    return pd.DataFrame(
        {
            "age": rng.normal(40, 10, 200),
            "kids": rng.integers(0, 5, 200),
            "city": rng.choice(["Oslo", "Rome", "Graz"], 200),
            "note": rng.choice(notes, 200),
        }
    )


def chosen(people: pd.DataFrame) -> NDArray[np.object_]:
    """Return what depends on the rows."""
    score = (people["age"] - 40) / 10 + (people["kids"] - 2) + 2 * (people["city"] == "Oslo")
    return np.where(score > 0.7, "yes", "no").astype(object)


def table(model: Any, people: pd.DataFrame) -> Any:
    """Return a pipeline over the numbers and the category, fitted."""
    columns = make_column_transformer(
        (StandardScaler(), ["age", "kids"]), (OneHotEncoder(), ["city"])
    )
    return make_pipeline(columns, model).fit(people, chosen(people))


def others_of(fit: Any, ages: Sequence[float]) -> Callable[..., Any]:
    """Return the cheapest change of a row by asking about every age, number of kids and city."""
    grid = pd.DataFrame(
        [*product([None, *ages], [None, 1, 2, 3], ["Oslo", "Rome", "Graz"])],
        columns=["age", "kids", "city"],
    )

    def cheapest(row: pd.Series, want: str) -> tuple[int, float] | None:
        block = grid.assign(age=grid["age"].astype(float).fillna(row["age"]))
        block = block.assign(kids=block["kids"].astype(float).fillna(row["kids"]).astype(int))
        met = fit.predict(block) == want
        moved = np.stack([block[name] != row[name] for name in block], axis=1)
        costs = np.abs(block["age"] - row["age"]) / 13
        costs += np.abs(block["kids"] - row["kids"]) / 2 + moved[:, 2]
        counts, costs = moved.sum(axis=1)[met], costs[met]
        return min(zip(counts.tolist(), costs.tolist(), strict=True), default=None)

    return cheapest


@pytest.mark.parametrize("kind", ["logistic", "forest"])
def test_mixed_tables_are_changed_as_little_as_brute_force_does(
    kind: str, people: pd.DataFrame
) -> None:
    """Integers stay integers, and categories are those that the encoder knows."""
    rows = people.drop(columns="note")
    model = LogisticRegression()
    if kind == "forest":
        model = RandomForestClassifier(5, max_depth=4, random_state=1)
    fit = table(model, rows)
    if kind == "forest":
        scaler = fit[0].named_transformers_["standardscaler"]
        ages = np.array(around(thresholds(fit[1])[0])) * scaler.scale_[0] + scaler.mean_[0]
    else:
        ages = np.linspace(0, 80, 801)
    ages = [35.0, *(age for age in ages if 35 < age < 48), 48.0]
    plan, cheapest = plan_of(fit, rows), others_of(fit, ages)
    within = {"kids": (1, 3), "age": (35, 48)}
    sizes = set()
    for number in range(40):
        row = rows.iloc[number]
        want = {"yes": "no", "no": "yes"}[fit.predict(rows[number : number + 1])[0]]
        made = counterfactual(plan, rows[number : number + 1], want=want, within=within)
        found = cheapest(row, want)
        assert made.proved
        assert made.found
        assert found is not None
        assert len(made.changes) == found[0]
        sizes.add(found[0])
        assert made.cost <= found[1] + 1e-5
        assert made.cost >= found[1] - (0.01 if kind == "logistic" else 1e-4)
        assert made.row["kids"] == int(made.row["kids"])
        assert fit.predict(pd.DataFrame([made.row]))[0] == want == made.after["label"]
    assert sizes == {1, 2}


@pytest.mark.parametrize("kind", ["logistic", "forest"])
def test_numbers_that_were_whole_in_training_stay_whole(
    kind: str, people: pd.DataFrame, tmp_path: Path
) -> None:
    """Where the plan itself reads them as any numbers."""
    rows = people.drop(columns="note").astype({"kids": float})
    model = RandomForestClassifier(5, max_depth=4, random_state=1)
    fit = table(LogisticRegression() if kind == "logistic" else model, rows)
    made = plan_of(fit, rows)
    made.save(tmp_path / "plan", training=training_of(made, rows))
    plan, changed = oven.load(tmp_path / "plan"), 0
    for number in range(20):
        want = {"yes": "no", "no": "yes"}[fit.predict(rows[number : number + 1])[0]]
        found = counterfactual(plan, rows[number : number + 1], want=want, free=["kids"])
        changed += len(found.changes)
        assert found.row["kids"] % 1 == 0
        assert fit.predict(pd.DataFrame([found.row]))[0] == found.after["label"]
    assert changed


def test_a_columnhas_integers_though_the_first_is_missing() -> None:
    columns: list[list[Any]] = [[None, 1], [1, None], [None, 1.5], [1.5, 1]]
    forms = [pd.array(each, "Int64" if 1.5 not in each else "Float64") for each in columns]
    assert [has_integers(pd.Series(each)) for each in forms] == [True, True, False, False]


@pytest.mark.parametrize("given", ["verify", "sample"])
def test_integers_of_the_frame_that_a_model_was_compiled_with_stay_whole(
    given: str, people: pd.DataFrame, tmp_path: Path
) -> None:
    rows = people.drop(columns="note")
    fit = table(LogisticRegression(), rows)
    pretzel.compile(fit, **{given: rows}).save(tmp_path / "m.pretzel")
    model, loose = pretzel.load(tmp_path / "m.pretzel"), pretzel.compile(fit)
    for number in range(9):
        row = rows[number : number + 1].astype({"kids": float})
        want = {"yes": "no", "no": "yes"}[fit.predict(row)[0]]
        parts = [m.counterfactual(row, want=want, free="kids").row["kids"] for m in (model, loose)]
        assert parts[0] % 1 == 0 < parts[1] % 1


def test_only_free_columns_change_and_stay_within_bounds(people: pd.DataFrame) -> None:
    """Which makes more columns change, or none."""
    rows = people.drop(columns="note")
    plan = plan_of(table(LogisticRegression(), rows), rows)
    row = {"age": 25.0, "kids": 1, "city": "Rome"}
    one = counterfactual(plan, row, want="yes")
    assert len(one.changes) == 1
    two = counterfactual(
        plan,
        row,
        want="yes",
        free=["age", "city"],
        within={"age": (20, 40), "city": ["Graz", "Oslo"]},
    )
    assert two.found
    assert two.proved
    assert two.row["kids"] == 1
    assert two.row["age"] <= 40
    none = counterfactual(plan, row, want="yes", free=["age"], within={"age": (20, 30)})
    assert not none.found
    assert none.proved
    assert not none.changes
    assert "none within the bounds" in str(none)
    assert none.before["label"] == none.after["label"] == "no"
    other = counterfactual(plan, row, want="yes", free=["age"], within={"age": (26, 30)})
    assert other.outside == ("age",)
    assert "the row itself is outside of those of age" in str(other)


@pytest.mark.parametrize("scaled", [False, True])
def test_thresholds_are_found_in_few_steps(scaled: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 (a case)
    """Where a column is read as it is, at the threshold itself, else by orders of magnitude."""
    X = rows(3) * [1e-4, 1.0, 1e6]
    fit = LGBMClassifier(n_estimators=8, num_leaves=6, verbose=-1, n_jobs=1)
    fit = make_pipeline(StandardScaler(), fit) if scaled else fit
    fit.fit(X, labels(rows(3)))
    times, run = list[Any](), oven.Plan.run_columns

    def counted(*given: Any) -> Any:
        times.append(given)
        return run(*given)

    monkeypatch.setattr(oven.Plan, "run_columns", counted)
    made = counterfactual(plan_of(fit, X), X[0], want=1 - int(fit.predict(X[:1])[0]))
    assert made.found
    assert made.proved
    assert len(times) < (80 if scaled else 15)


def test_missing_values_may_be_filled_in() -> None:
    """A number in a missing value's place costs 1; others change beside it as usual."""
    X = rows(3)
    y = labels(X)
    X[::4, 1] = np.nan
    fit = LGBMClassifier(n_estimators=10, num_leaves=6, verbose=-1, n_jobs=1).fit(X, y)
    plan = plan_of(fit, X)
    found = 0
    for row in X[:60:4]:
        want = 1 - int(fit.predict(row[None])[0])
        made = counterfactual(plan, row, want=want, free=["X[1]"])
        if made.found:
            found += 1
            assert made.cost == 1.0
            assert np.isnan(made.changes[0].old)
            assert fit.predict(made.row[None])[0] == want
        free = counterfactual(plan, row, want=want)
        assert free.proved
        assert fit.predict(free.row[None])[0] == want
    assert found


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "light", "poisson"])
def test_numbers_are_led_into_a_range(kind: str) -> None:
    """Also where a link makes the number of a score, and either end may be open."""
    X = rows(3)
    y = np.exp(X[:, 0] + X[:, 1] / 2)
    fit = {
        "linear": LinearRegression(),
        "light": LGBMRegressor(n_estimators=10, num_leaves=6, verbose=-1, n_jobs=1),
        "poisson": HistGradientBoostingRegressor(loss="poisson", max_iter=10),
    }[kind].fit(X, y)
    plan = plan_of(fit, X)
    for row in X[:10]:
        value = float(fit.predict(row[None])[0])
        for want in ((value * 1.1 + 0.1, None), (None, value * 0.8), (value + 0.1, value + 0.4)):
            made = counterfactual(plan, row, want=want)
            assert made.proved
            if made.found:
                low, high = (-np.inf if want[0] is None else want[0], want[1] or np.inf)
                assert low <= fit.predict(made.row[None])[0] <= high
            else:
                assert kind != "linear"
        assert counterfactual(plan, row, want=(value - 1, None)).changes == ()


# --- documents and kernels ------------------------------------------------------------------------


def test_words_are_removed_or_replaced(people: pd.DataFrame) -> None:
    """The fewest words, each in all its places."""
    texts = people["note"].tolist()
    fit = make_pipeline(TfidfVectorizer(), LogisticRegression(C=100))
    fit.fit(texts, ["bad" in text for text in texts])
    plan = plan_of(fit, texts)
    made = counterfactual(plan, "a bad day, a BAD night", want=False)
    assert made.proved
    assert made.row == "a day, a night"
    assert not fit.predict([made.row])[0]
    (name,) = plan.inputs
    put = counterfactual(plan, "good day", want=True, within={name: ["bad", "fine"]})
    assert put.proved
    assert "bad" in put.row
    assert fit.predict([put.row])[0]
    assert not counterfactual(plan, "good day", want=True).found


def test_words_change_beside_other_columns(people: pd.DataFrame) -> None:
    """A word counts as a column does."""
    steps = make_column_transformer((StandardScaler(), ["age"]), (TfidfVectorizer(), "note"))
    bad = people["note"].str.contains("bad").to_numpy()
    y = np.where(bad | (people["age"] > 55), "no", "yes")
    fit = make_pipeline(steps, LogisticRegression(C=100)).fit(people, y)
    plan = plan_of(fit, people)
    row = {"age": 70.0, "note": "bad bad day, worse", "kids": 0, "city": "Oslo"}
    made = counterfactual(plan, row, want="yes", within={"age": (30.0, 70.0)})
    assert made.found
    assert {each.column for each in made.changes} == {"age", "note"}
    assert fit.predict(pd.DataFrame([{**row, **made.row}]))[0] == "yes"


@pytest.mark.parametrize("classes", [2, 3])
def test_kernels_have_the_best_change_that_was_found(classes: int) -> None:
    """It is not proved, and near what a grid finds."""
    X = rows(3)
    fit = SVC().fit(X, labels(X, classes))
    plan = plan_of(fit, X)
    within = {f"X[{j}]": (-3.0, 3.0) for j in range(3)}
    near = 0
    for row in X[:12]:
        want = (int(fit.predict(row[None])[0]) + 1) % classes
        made = counterfactual(plan, row, want=want, within=within, most=2)
        grid = [[*np.linspace(-3, 3, 61)]] * 3
        found = brute(fit, want, row, grid, np.full(3, 6.0))
        assert not made.proved
        assert made.found == (found is not None)
        if found is not None:
            assert fit.predict(made.row[None])[0] == want
            assert "best change found" in str(made)
            near += made.cost <= found[1] + 0.02
    assert near >= 10


# --- forms and errors -----------------------------------------------------------------------------


def test_float32_rows_have_float32_changes() -> None:
    """The answer holds in the row's own width."""
    X = rows(3).astype(np.float32)
    fit = XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1).fit(X, labels(X))
    plan = plan_of(fit, X)
    for row in X[:10]:
        want = 1 - int(fit.predict(row[None])[0])
        made = counterfactual(plan, row, want=want)
        assert made.row.dtype == np.float32
        assert fit.predict(made.row[None])[0] == want


def test_the_answer_is_told_as_text(people: pd.DataFrame) -> None:
    """A row that has the answer already does not change."""
    rows = people.drop(columns="note")
    plan = plan_of(table(LogisticRegression(), rows), rows)
    made = counterfactual(plan, {"age": 25.0, "kids": 1, "city": "Rome"}, want="yes", free=["city"])
    assert not made.found
    kids = counterfactual(plan, {"age": 25.0, "kids": 1, "city": "Rome"}, want="yes", free=["kids"])
    assert "label no" in str(kids)
    assert "kids: 1 -> " in str(kids)
    assert kids.proved
    same = counterfactual(plan, {"age": 25.0, "kids": 1, "city": "Rome"}, want="no")
    assert same.found
    assert same.proved
    assert "nothing has to change" in str(same)


def test_one_row_and_a_range_are_asked_for() -> None:
    """Several rows, and a single number for a range, are refused."""
    X = rows(3)
    plan = plan_of(LinearRegression().fit(X, X[:, 0]), X)
    with pytest.raises(FlourError, match="from one row"):
        counterfactual(plan, X[:2], want=(1, None))
    for want in (1.0, (2, 1), ("a", 2), (1, 2, 3), (None, None)):
        with pytest.raises(FlourError, match="no bounds"):
            counterfactual(plan, X[0], want=want)


def test_sparse_rows_and_numbers_that_are_categories() -> None:
    """They change as others do; nothing is proved where zero or an unknown number is special."""
    X = np.where(np.abs(rows(3)) < 0.6, 0.0, rows(3))
    fit = LGBMClassifier(n_estimators=8, num_leaves=6, verbose=-1, n_jobs=1).fit(X, labels(X))
    want = 1 - int(fit.predict(X[:1])[0])
    made = counterfactual(plan_of(fit, X), csr_matrix(X[:1]), want=want)
    assert made.found
    assert fit.predict(made.row[None])[0] == want
    codes = np.floor(np.abs(X) * 2)
    hot = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(C=10))
    hot.fit(codes, labels(X))
    want = 1 - int(hot.predict(codes[:1])[0])
    made = counterfactual(plan_of(hot, codes), codes[0], want=want, within={"X[0]": (0, 2)})
    assert made.found
    assert not made.proved
    assert hot.predict(made.row[None])[0] == want


def test_what_is_too_much_to_try_is_the_best_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of rows, the candidates that lead furthest are put together."""
    X = rows(4)
    fit = RandomForestClassifier(9, max_depth=5, random_state=0).fit(X, labels(X))
    plan = plan_of(fit, X)
    pairs = []
    for row in X[:60]:
        want = 1 - int(fit.predict(row[None])[0])
        within = {f"X[{j}]": (row[j] - 0.6, row[j] + 0.6) for j in range(4)}
        if len(counterfactual(plan, row, want=want, within=within).changes) == 2:
            pairs.append((row, want, within))
    monkeypatch.setattr("oven.explain.counterfactuals.MOST_ROWS", 0)
    found = 0
    for row, want, within in pairs:
        made = counterfactual(plan, row, want=want, within=within)
        found += made.found
        assert not made.proved
        assert not made.found or fit.predict(made.row[None])[0] == want
    assert found


def test_a_model_has_it_too() -> None:
    """With the same answer."""
    X = rows(3)
    fit = LogisticRegression().fit(X, labels(X))
    want = 1 - int(fit.predict(X[:1])[0])
    made = pretzel.compile(fit).counterfactual(X[0], want=str(want), free=["X[0]"])
    assert made.want == want
    assert np.array_equal(
        made.row, counterfactual(plan_of(fit, X), X[0], want=want, free=["X[0]"]).row
    )


def test_values_that_are_far_too_large_become_usual_ones() -> None:
    X = rows(2)
    logistic = LogisticRegression().fit(X, X[:, 0] > 0.5)
    networks = MLPClassifier((4,), random_state=0, max_iter=2000).fit(X, X[:, 0] > 0.5)
    for fit in (logistic, networks):
        for far in (-1e15, 1e15):
            row = np.array([far, 0.0])
            want = str(not fit.predict([row])[0])
            made = counterfactual(plan_of(fit, X), row, want=want, most=1)
            assert abs(made.row[0]) < 10
            assert fit.predict(made.row[None])[0] == made.after["label"]
    sums = plan_of(LinearRegression().fit(X, X[:, 0]), X)
    assert not counterfactual(sums, np.array([1e15, 0.0]), want=(1, 2), most=1).proved


def test_a_missing_value_that_stays_is_no_change() -> None:
    X = rows(2, 400)
    X[::2, 0] = np.nan
    fit = HistGradientBoostingClassifier(max_iter=20).fit(X, (X[:, 1] > 0).astype(int))
    plan = plan_of(fit, X)
    for row in X[:20]:
        made = counterfactual(plan, row[None], want=int(row[1] <= 0), most=1)
        assert [change.column for change in made.changes] == ["X[1]"]
        named = counterfactual(plan, row[None], want=int(row[1] <= 0), free="X[1]")
        assert named.changes == made.changes
