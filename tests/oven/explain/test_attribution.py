"""What each raw column adds to a score, held against libraries and the definition."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestRegressor,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVR

import flour
import oven
from flour.core.errors import FlourError
from flour.ops.trees.trees import Trees
from oven.explain import attribute
from oven.plans.attribution import Attribution
from tests.shapley import MAKERS, by_covers, fitted, models, shapley

RELATIVE = 1e-9


def close(got: NDArray[Any], want: NDArray[Any], relative: float = RELATIVE) -> None:
    """Check that all numbers are the same to this part of the largest."""
    assert got.shape == want.shape
    assert np.abs(got - want).max(initial=0) <= relative * max(np.abs(want).max(initial=0), 1e-3)


def sums(made: Attribution, relative: float = RELATIVE) -> None:
    """Check that base and shares sum to the score."""
    close(made.base + made.values.sum(axis=1), made.score, relative)


# --- trees ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*models()])
def test_trees_by_covers_have_the_values_of_the_definition(name: str) -> None:
    """For 50 models, which also have the values of their own library, where it has any."""
    model = fitted(name)
    flow = flour.from_sklearn(model.fit, sample=model.rows, covers=True)
    plan = oven.bake(flow)
    made = attribute(plan, model.rows)
    sums(made, 1e-6 if name.startswith("xg") else RELATIVE)  # XGBoost's scores are float32
    values = made.values.reshape(len(model.rows), 5, -1)
    (op,) = {item.op for item in flow.nodes() if isinstance(item.op, Trees)}
    # Return the columns as the trees number them: some have their categories first.
    order = (
        [4, 0, 1, 2, 3] if getattr(model.fit, "is_categorical_", None) is not None else [*range(5)]
    )
    for row in (0, 3, 7):
        score = by_covers(op, model.rows[row, order], np.asarray(order))
        close(values[row], shapley(score, 5) * _per(name))
    want = _of_library(model.fit, model.rows)
    if want is not None:
        close(values / _per(name), want, 1e-5 if name.startswith("xg") else RELATIVE)


def _per(name: str) -> float:
    """Return the explained score as a part of the sum of the trees, which LightGBM explains."""
    return 1 / MAKERS[name][1]["n_estimators"] if name == "light-forest" else 1.0


def _of_library(fit: Any, rows: NDArray[np.float64]) -> NDArray[np.float64] | None:
    if hasattr(fit, "booster_"):
        found = np.asarray(fit.booster_.predict(rows, pred_contrib=True))
    elif hasattr(fit, "get_booster"):
        from xgboost import DMatrix

        found = fit.get_booster().predict(DMatrix(rows), pred_contribs=True).astype(np.float64)
    else:
        return None
    return np.asarray(found.reshape(len(rows), -1, 6)[:, :, :5].transpose(0, 2, 1))


@pytest.mark.parametrize("name", ["forest-three", "light-holes", "hist-categories", "xg-holes"])
def test_trees_against_a_background_have_the_values_of_the_definition(name: str) -> None:
    """The columns that are not known are those of the background, row by row."""
    model = fitted(name)
    plan = oven.bake(flour.from_sklearn(model.fit, sample=model.rows))
    made = attribute(plan, model.rows[:4], background=model.rows[10:])
    sums(made, 1e-6 if name.startswith("xg") else RELATIVE)
    for row in range(4):
        want = _against(plan, made.output, model.rows[row], model.rows[10:])
        close(made.values[row].reshape(5, -1), want, 1e-5 if name.startswith("xg") else RELATIVE)


def _against(
    plan: oven.Plan, output: str, row: NDArray[Any], background: NDArray[Any]
) -> NDArray[np.float64]:
    def score(known: frozenset[int]) -> NDArray[np.float64]:
        mixed = background.copy()
        mixed[:, [*known]] = row[[*known]]
        answered = np.asarray(plan.run(mixed)[output], np.float64).reshape(len(mixed), -1)
        return np.asarray(answered.mean(axis=0))

    return shapley(score, row.shape[0])


def test_large_forests_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shares are the same, whatever is computed together and kept."""
    model = fitted("forest-three")
    flow = flour.from_sklearn(model.fit, sample=model.rows, covers=True)
    want = attribute(oven.bake(flow), model.rows).values
    monkeypatch.setattr("oven.explain.attribution.tree_tables.CHUNK", 10)
    monkeypatch.setattr("oven.explain.attribution.tree_tables.MOST", 0)
    assert np.array_equal(attribute(oven.bake(flow), model.rows).values, want)


def test_sparse_rows_are_those_of_the_trees() -> None:
    """What is not stored is zero."""
    from scipy.sparse import csr_matrix

    model = fitted("forest")
    plan = oven.bake(flour.from_sklearn(model.fit, sample=model.rows, covers=True))
    rows = np.where(np.abs(model.rows) < 0.5, 0.0, model.rows)
    close(attribute(plan, csr_matrix(rows)).values, attribute(plan, rows).values)


# --- pipelines ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    """Return rows with numbers, a category and missing values."""
    rng = np.random.default_rng(3)
    made = pd.DataFrame(
        {
            "age": rng.normal(40, 10, 150),
            "income": rng.normal(size=150),
            "city": rng.choice(["Oslo", "Rome", "Graz"], 150),
        }
    )
    made.loc[::10, "age"] = np.nan
    return made


def columns() -> Any:
    """Return a transformer of these rows that nothing has been fitted on."""
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return make_column_transformer((numbers, ["age", "income"]), (OneHotEncoder(), ["city"]))


def chosen(people: pd.DataFrame) -> NDArray[np.int64]:
    """Return what depends on the rows."""
    age = people["age"].fillna(40.0)
    made = (people["income"] > 0) ^ ((people["city"] == "Oslo") & (age > 40.0))
    return np.asarray(made, np.int64)


def test_linear_shares_are_weights_times_scaled_values(people: pd.DataFrame) -> None:
    """A category's share is that of its own column; the rest is the intercept."""
    fit = make_pipeline(columns(), LogisticRegression()).fit(people, chosen(people))
    plan = oven.bake(flour.from_sklearn(fit, sample=people))
    made = attribute(plan, people, output="probabilities")
    sums(made)
    held, (weights,) = fit[0].transform(people), fit[1].coef_
    want = np.stack(
        [held[:, 0] * weights[0], held[:, 1] * weights[1], held[:, 2:] @ weights[2:]], axis=1
    )
    close(made.values, want)
    close(made.base, fit[1].intercept_[0])
    close(made.score, fit.decision_function(people))
    assert made.columns == ("age", "income", "city")
    assert {part.column: part.value for part in made.top(row=1)}["city"] == people["city"][1]


def test_linear_shares_against_a_background(people: pd.DataFrame) -> None:
    """Shares are differences from the background's mean, whatever stands in between."""
    numbers = people[["age", "income"]].fillna(0.0)
    steps = make_pipeline(StandardScaler(), PCA(2), LinearRegression())
    fit = steps.fit(numbers, people["income"] * 2 + numbers["age"])
    plan = oven.bake(flour.from_sklearn(fit, sample=numbers))
    made = attribute(plan, numbers, background=numbers[:40])
    sums(made)
    weights = fit[2].coef_ @ fit[1].components_ / fit[0].scale_
    close(made.values, (numbers - numbers[:40].mean()).to_numpy() * weights)
    close(made.base, fit.predict(numbers[:40]).mean())


@pytest.mark.parametrize("against", [False, True])
def test_trees_behind_a_pipeline_explain_its_raw_columns(
    people: pd.DataFrame,
    against: bool,  # noqa: FBT001 (a case)
) -> None:
    """The columns of a category count as one, as the definition has it."""
    fit = make_pipeline(columns(), GradientBoostingClassifier(n_estimators=8, max_depth=4))
    fit.fit(people, chosen(people))
    flow = flour.from_sklearn(fit, sample=people, covers=not against)
    plan = oven.bake(flow)
    background = people[100:] if against else None
    made = attribute(plan, people[:6], background=background)
    sums(made)
    (op,) = {item.op for item in flow.nodes() if isinstance(item.op, Trees)}
    held = fit[0].transform(people)
    groups = np.array([0, 1, 2, 2, 2])
    for row in range(6):
        if not against:
            want = shapley(by_covers(op, held[row], groups), 3)[:, 0]
        else:
            want = _mixed_frames(plan, people, row)
        close(made.values[row], want)


def _mixed_frames(plan: oven.Plan, people: pd.DataFrame, row: int) -> NDArray[np.float64]:
    names = [*people.columns]

    def score(known: frozenset[int]) -> NDArray[np.float64]:
        mixed = people[100:].copy()
        for column in known:
            mixed[names[column]] = people[names[column]][row]
        scores = np.asarray(plan.run(mixed)["scores"], np.float64)
        return np.asarray(scores.mean(axis=0, keepdims=True))

    return shapley(score, 3)[:, 0]


@pytest.mark.parametrize("kind", ["voting", "stacking", "first guess"])
def test_sums_of_models_are_sums_of_shares(people: pd.DataFrame, kind: str) -> None:
    """Voting, stacking on a linear model, and boosting that starts from a model."""
    X = people[["age", "income"]].fillna(30.0)
    y = X["age"] * X["income"] + X["age"]
    linear = make_pipeline(StandardScaler(), LinearRegression())
    forest = RandomForestRegressor(5, max_depth=4, random_state=0)
    members = [("linear", linear), ("forest", forest)]
    fit = {
        "voting": VotingRegressor(members, weights=[1, 3]),
        "stacking": StackingRegressor(members, LinearRegression()),
        "first guess": GradientBoostingRegressor(init=LinearRegression(), n_estimators=5),
    }[kind].fit(X, y)
    plan = oven.bake(flour.from_sklearn(fit, sample=X, covers=True))
    made = attribute(plan, X)
    assert made.method == "exact"
    # The first guess is computed in float32, as the library does.
    sums(made, 1e-6 if kind == "first guess" else RELATIVE)
    close(made.score, fit.predict(X), 1e-6 if kind == "first guess" else RELATIVE)
    if kind != "first guess":
        first, second = (
            attribute(oven.bake(flour.from_sklearn(each, sample=X, covers=True)), X).values
            for each in fit.estimators_
        )
        weights = (0.25, 0.75) if kind == "voting" else fit.final_estimator_.coef_
        close(made.values, weights[0] * first + weights[1] * second)


# --- text -----------------------------------------------------------------------------------------

TEXTS = ["A good day", "bad, BAD day", "nice and good", "nothing of that", "İstanbul good day"]


@pytest.mark.parametrize(
    ("kind", "phrases"),
    [(CountVectorizer, (1, 1)), (TfidfVectorizer, (1, 2)), (CountVectorizer, (2, 2))],
)
def test_words_have_shares_and_places(kind: Any, phrases: tuple[int, int]) -> None:
    """Each term's share is its value times its weight, and its places have its words."""
    fit = make_pipeline(kind(ngram_range=phrases, stop_words=["of"]), LogisticRegression())
    fit.fit(TEXTS, [1, 0, 1, 0, 1])
    made = attribute(oven.bake(flour.from_sklearn(fit, sample=TEXTS)), TEXTS)
    sums(made)
    names, held = fit[0].get_feature_names_out(), fit[0].transform(TEXTS).toarray()
    for row, text in enumerate(TEXTS):
        parts = made.top(100, row)
        shares = {part.term: part.share for part in parts}
        want = {
            name: held[row, j] * fit[1].coef_[0, j] for j, name in enumerate(names) if held[row, j]
        }
        assert shares.keys() == want.keys()
        close(np.array([shares[name] for name in want]), np.array([*want.values()]))
        for part in parts:
            words = str(part.term).split()
            assert part.places
            if kind is CountVectorizer:
                assert len(part.places) == held[row, [*names].index(part.term)]
            for start, end in part.places:
                found = text[start:end].lower()
                assert found.startswith(words[0])
                assert found.endswith(words[-1])


@pytest.mark.parametrize(
    ("kind", "analyzer"),
    [
        *((CountVectorizer, "char"), (TfidfVectorizer, "char_wb"), (HashingVectorizer, "word")),
        *((HashingVectorizer, "char"), (CountVectorizer, "char_wb")),
    ],
)
def test_runs_of_characters_and_hashed_words_have_places(kind: Any, analyzer: str) -> None:
    """Shares of terms add up to the document's; each place of a term has its characters."""
    texts = [*TEXTS, "two  spaces\t and a tab", " edges "]
    hashed = kind is HashingVectorizer
    terms = kind(analyzer=analyzer, ngram_range=(1, 3), **({"n_features": 16} if hashed else {}))
    fit = make_pipeline(terms, LogisticRegression()).fit(texts, [1, 0, 1, 0, 1, 0, 1])
    made = attribute(oven.bake(flour.from_sklearn(fit, sample=texts)), texts)
    sums(made)
    held, cut = fit[0].transform(texts), fit[0].build_analyzer()
    for row, text in enumerate(texts):
        parts = made.top(1000, row)
        assert len(parts) == np.count_nonzero(held[row].toarray())
        assert sum(part.share for part in parts) == pytest.approx(made.values[row, 0])
        counts = Counter(cut(text))
        for part in parts:
            every = str(part.term).split(" or ") if hashed else [str(part.term)]
            assert len(part.places) == sum(counts[term] for term in every)
            for start, end in part.places:
                found = plain(text[start:end].lower(), analyzer)
                assert any(found == plain(term, analyzer) for term in every) or "İ" in text


def plain(text: str, analyzer: str) -> str:
    """Without what is between words, and with one space for several."""
    return " ".join(re.findall(r"\b\w\w+\b", text) if analyzer == "word" else text.split())


def test_words_beside_other_columns(people: pd.DataFrame) -> None:
    """A document's words take the place of its column among the parts."""
    rows = people.assign(note=[TEXTS[i % 4] for i in range(len(people))])
    steps = make_column_transformer(
        (StandardScaler(), ["income"]), (TfidfVectorizer(), "note"), (OneHotEncoder(), ["city"])
    )
    fit = make_pipeline(steps, LogisticRegression()).fit(rows, chosen(people))
    made = attribute(oven.bake(flour.from_sklearn(fit, sample=rows)), rows)
    sums(made)
    parts = made.top(100, row=1)
    note = [part for part in parts if part.column == "note"]
    assert {part.term for part in note} == {"bad", "day"}
    assert {part.places for part in note} == {((0, 3), (5, 8)), ((9, 12),)}
    whole = made.values[1, made.columns.index("note")]
    assert sum(part.share for part in note) == pytest.approx(whole, rel=1e-12)


# --- without an exact form ------------------------------------------------------------------------


@pytest.mark.parametrize("fit", [KNeighborsRegressor(3), SVR()], ids=["neighbours", "svr"])
def test_sampled_shares_are_near_the_definition_and_say_how_near(fit: Any) -> None:
    """They sum to the score, and have standard errors that hold."""
    rows = fitted("tree").rows
    rng = np.random.default_rng(0)
    plan = oven.bake(flour.from_sklearn(fit.fit(rows, rng.normal(size=len(rows))), sample=rows))
    with pytest.raises(FlourError, match="no exact attribution"):
        attribute(plan, rows)
    made = attribute(plan, rows[:3], background=rows[8:], samples=400)
    assert made.method == "sampled"
    assert made.errors is not None
    sums(made)
    want = np.stack([_against(plan, "value", row, rows[8:])[:, 0] for row in rows[:3]])
    assert np.all(np.abs(made.values - want) <= 5 * made.errors + 1e-9)
    assert np.all(made.errors < np.abs(want).max())
    with pytest.raises(FlourError, match="pairs"):
        attribute(plan, rows, background=rows, samples=3)


def test_sampled_shares_of_mixed_columns(people: pd.DataFrame) -> None:
    """Strings and documents are replaced as numbers are."""
    rows = people.assign(note=[TEXTS[i % 4] for i in range(len(people))])
    steps = make_column_transformer(
        (StandardScaler(), ["income"]), (TfidfVectorizer(), "note"), (OneHotEncoder(), ["city"])
    )
    fit = make_pipeline(steps, KNeighborsRegressor(3)).fit(rows, people["income"])
    plan = oven.bake(flour.from_sklearn(fit, sample=rows))
    sums(attribute(plan, rows[:3], background=rows[50:60], samples=8))


# --- forms and errors -----------------------------------------------------------------------------


def test_a_saved_plan_still_knows_its_covers(tmp_path: Path) -> None:
    """And reads them when it is asked, as one row or many."""
    model = fitted("light-three")
    plan = oven.bake(flour.from_sklearn(model.fit, sample=model.rows, covers=True))
    plan.save(tmp_path / "model.pretzel")
    loaded = oven.load(tmp_path / "model.pretzel")
    want = attribute(plan, model.rows)
    assert np.array_equal(attribute(loaded, model.rows).values, want.values)
    one = attribute(loaded, model.rows[2])
    assert np.array_equal(one.values, want.values[2:3])
    assert one.names == (0, 1, 2)
    held = one.to_dict()["rows"][0]
    assert held["shares"][one.columns[1]] == want.values[2, 1].tolist()
    assert held["score"] == want.score[2].tolist()


def test_programs_without_covers_are_what_they_were() -> None:
    """Their digests do not change, and attribution says what is missing."""
    model = fitted("light")
    plain = flour.from_sklearn(model.fit, sample=model.rows)
    asked = flour.from_sklearn(model.fit, sample=model.rows, covers=True)
    assert plain.digest != asked.digest
    assert not any(len(n.op.cover) for n in plain.nodes() if isinstance(n.op, Trees))
    with pytest.raises(FlourError, match="covers=True"):
        attribute(oven.bake(plain), model.rows)


def test_outputs_that_are_no_numbers_are_refused(people: pd.DataFrame) -> None:
    """Labels have no shares, and names are checked."""
    X = people[["age", "income"]].fillna(0.0)
    plan = oven.bake(flour.from_sklearn(LogisticRegression().fit(X, chosen(people)), sample=X))
    with pytest.raises(FlourError, match="no number"):
        attribute(plan, X, output="label")
    with pytest.raises(FlourError, match="no output 'score'"):
        attribute(plan, X, output="score")


@pytest.mark.parametrize("kind", [LinearRegression, KNeighborsRegressor, RandomForestRegressor])
def test_no_rows_have_no_shares_and_are_no_background(kind: type[Any]) -> None:
    """Exact or sampled: the answer for no rows has columns and the base of its background."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    plan = oven.bake(flour.from_sklearn(kind().fit(X, X[:, 0]), sample=X))
    found = attribute(plan, X[:0], background=X)
    assert found.values.shape == (0, 3)
    close(found.base, attribute(plan, X[:1], background=X).base)
    assert found.to_dict()["rows"] == []
    with pytest.raises(FlourError, match="background has no rows"):
        attribute(plan, X, background=X[:0])


def test_a_page_has_a_bar_for_every_part(people: pd.DataFrame) -> None:
    """Names and values are escaped."""
    X = people[["age", "income"]].fillna(0.0).rename(columns={"age": "<age>"})
    plan = oven.bake(flour.from_sklearn(LogisticRegression().fit(X, chosen(people)), sample=X))
    page = attribute(plan, X).to_html()
    assert page.count("<table>") == 5
    assert page.count("<tr>") == 10
    assert "&lt;age&gt; = " in page
    assert "<age>" not in page


def test_predicting_does_not_load_attribution() -> None:
    """What is not asked for costs nothing."""
    code = (
        "import sys, numpy as np, flour, oven\n"
        "plan = oven.bake(flour.vector('x', 2).linear([[1.0, 2.0]], [0.5]))\n"
        "plan.run(np.ones((3, 2)))\n"
        "assert not [n for n in [*sys.modules] if n.startswith('oven.explain.attribution')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
