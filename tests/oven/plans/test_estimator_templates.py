"""Estimators of one structure: a plan out of a template is the plan that importing would make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA, FactorAnalysis, FastICA, IncrementalPCA, TruncatedSVD
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    BayesianRidge,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import flour
import oven
from flour.sklearn import parts
from flour.tracing.fitted import Access, Reading
from flour.tracing.model_flow import ModelFlow
from oven.plans import template_lookup
from oven.plans.plan import Plan
from oven.plans.skeleton import digests_in
from oven.plans.template_lookup import TemplateHit

NAMES = np.array(["no", "yes", "maybe"])
COLUMNS = ColumnTransformer(
    [("a", StandardScaler(), [0, 1]), ("b", MinMaxScaler(), slice(2, 4))], remainder="passthrough"
)

#: Each is fitted to data of three classes, or of numbers, all of which are positive.
CASES: dict[str, Any] = {
    "logistic": LogisticRegression(),
    "scaled logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    "no intercept": LogisticRegression(fit_intercept=False),
    "sgd": SGDClassifier(random_state=0),
    "svc": LinearSVC(),
    "gaussian": GaussianNB(),
    "multinomial": MultinomialNB(),
    "bernoulli": BernoulliNB(binarize=1.0),
    "categorical": make_pipeline(KBinsDiscretizer(3, encode="ordinal"), CategoricalNB()),
    "lda": LinearDiscriminantAnalysis(),
    "qda": QuadraticDiscriminantAnalysis(),
    "mlp": MLPClassifier((4,), max_iter=2000, tol=0.1),
    "centroids": NearestCentroid(),
    "one against the rest": OneVsRestClassifier(LogisticRegression()),
    "voting": VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="soft"),
    "stacking": StackingClassifier([("a", LogisticRegression()), ("b", GaussianNB())]),
    "searched": GridSearchCV(LogisticRegression(), {"C": [1.0]}),
    "columns": make_pipeline(COLUMNS, LogisticRegression()),
    "bins": make_pipeline(KBinsDiscretizer(3), LogisticRegression()),
    "encoded": make_pipeline(
        Binarizer(threshold=0.5),
        OneHotEncoder(handle_unknown="ignore"),
        LogisticRegression(),
    ),
    "ordinal": make_pipeline(Binarizer(threshold=1.0), OrdinalEncoder(), LogisticRegression()),
    "reduced": make_pipeline(StandardScaler(), PCA(3), LogisticRegression()),
    "linear": LinearRegression(),
    "ridge on logarithms": make_pipeline(FunctionTransformer(np.log1p), Ridge()),
    "bayesian ridge": BayesianRidge(),
    "poisson": PoissonRegressor(),
    "target": TransformedTargetRegressor(LinearRegression(), transformer=StandardScaler()),
    "standard": StandardScaler(),
    "min and max": MinMaxScaler(),
    "largest": MaxAbsScaler(),
    "robust": RobustScaler(),
    "unit rows": Normalizer(),
    "powers": PowerTransformer(),
    "whitened": PCA(2, whiten=True),
    "truncated": TruncatedSVD(2, algorithm="arpack"),
    "independent": FastICA(random_state=0, max_iter=2000, tol=0.1),
    "factors": FactorAnalysis(2),
    "incremental": IncrementalPCA(2),
    "imputed": make_pipeline(SimpleImputer(), PolynomialFeatures(2)),
    "side by side": make_union(StandardScaler(), PCA(2)),
    "clusters": KMeans(3, n_init=1, random_state=0),
}
REGRESSORS = {"linear", "ridge on logarithms", "bayesian ridge", "poisson", "target"}


@pytest.fixture(autouse=True)
def _no_templates() -> Iterator[None]:
    for known in (template_lookup._families, parts.structures, parts.constants):
        known.clear()
    yield
    for known in (template_lookup._families, parts.structures, parts.constants):
        known.clear()


def data(seed: int) -> tuple[Any, Any, Any]:
    """Rows of positive numbers, a class for each, and a number for each."""
    rng = np.random.default_rng(seed)
    rows = np.abs(rng.normal(size=(90, 5)))
    scores = rows @ rng.normal(size=(5, 3)) + rng.normal(size=(90, 3))
    classes = (scores - scores.mean(axis=0)).argmax(1)
    return rows, classes, np.exp(scores[:, 0] / 4)


def fitted(name: str, seed: int) -> Any:
    rows, classes, numbers = data(seed)
    return clone(CASES[name]).fit(rows, numbers if name in REGRESSORS else classes)


def is_hit(flow: flour.Flow) -> bool:
    """Whether a template is for the estimator of a program."""
    return isinstance(flow, ModelFlow) and isinstance(flow.model, TemplateHit)


def usual(estimator: Any, sample: Any = None) -> Plan:
    """The plan as if the estimator were the first of its structure."""
    tables: list[dict[Any, Any]] = [template_lookup._families, parts.structures]
    before = [dict(table) for table in tables]
    for table in tables:
        table.clear()
    made = oven.bake(flour.from_sklearn(estimator, sample))
    assert made.unfolded
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)
    return made


def same(got: Any, want: Any) -> None:
    """Answers are equal in every bit."""
    assert got.keys() == want.keys()
    for name, value in got.items():
        one, other = (it.toarray() if hasattr(it, "toarray") else it for it in (value, want[name]))
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        texts = one.dtype == object
        assert one.tolist() == other.tolist() if texts else one.tobytes() == other.tobytes()


def assert_same_plan(estimator: Any, rows: Any, sample: Any = None) -> bool:
    """A plan that may be out of a template is the usual one; whether it is out of one."""
    flow = flour.from_sklearn(estimator, sample)
    hit = is_hit(flow)
    got, want = oven.bake(flow), usual(estimator, sample)
    for fact in ("digest", "inputs", "outputs", "classes", "mixes_rows", "row_work", "entry_work"):
        assert getattr(got, fact) == getattr(want, fact), fact
    assert got.stage_kinds == want.stage_kinds
    assert {*digests_in(got.node_digests)} == {*digests_in(want.node_digests)}
    assert got.unfolded is not hit
    for block in (rows, rows[:1]):
        same(got.run(block), want.run(block))
        for one, other in zip(got.entry()(block), want.entry()(block), strict=True):
            same({"": one}, {"": other})
        work = got.begin(block)
        for number in range(work.steps) if work.rows else ():
            if number == 0:
                chunk = work.chunk(0, work.rows)
            work.step(number, chunk)
        same(work.finish(), want.run(block))
    assert got.flow.outputs == want.flow.outputs
    assert got.optimised.outputs == want.optimised.outputs
    if isinstance(rows, np.ndarray) and rows.dtype == np.float64:
        narrow = rows.astype(np.float32)
        same(got.run(narrow), want.run(narrow))
    return hit


@pytest.mark.parametrize("name", CASES)
def test_plans_are_the_same(name: str) -> None:
    rows = data(0)[0]
    hits = [assert_same_plan(fitted(name, seed), rows) for seed in range(5)]
    assert not hits[0], "there is no template before there are two"
    assert sum(hits) >= 2, hits


def test_labels_are_texts() -> None:
    rows, _, _ = data(0)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    hits = [assert_same_plan(model.fit(data(k)[0], NAMES[data(k)[1]]), rows) for k in range(4)]
    assert hits == [False, False, True, True]
    other = model.fit(rows, NAMES[data(0)[1]].astype(object) + "!")
    assert not assert_same_plan(other, rows), "of other labels"


def frame(seed: int, colours: str = "rgb") -> Any:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    made = pandas.DataFrame({name: rng.normal(size=80) for name in ("a", "b", "c")})
    made.loc[::7, "a"] = np.nan
    return made.assign(colour=np.array([*colours], object)[np.arange(80) % len(colours)])


def mixed(seed: int, colours: str = "rgb") -> Any:
    rows = frame(seed, colours)
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b", "c"]),
            ("colour", OneHotEncoder(handle_unknown="ignore"), ["colour"]),
        ]
    )
    labels = np.random.default_rng(seed).integers(0, 2, 80)
    return make_pipeline(columns, LogisticRegression()).fit(rows, labels)


@pytest.mark.parametrize("sampled", [True, False])
def test_columns_of_a_frame(*, sampled: bool) -> None:
    rows = frame(9)
    sample = rows[:4] if sampled else None
    # Means before and after imputing may be equal in every bit, or not: that is asked.
    hits = [assert_same_plan(mixed(seed), rows, sample) for seed in range(5)]
    assert sum(hits) >= 2, hits
    assert not assert_same_plan(mixed(7, "ryx"), rows, sample), "of other categories"
    hits = [assert_same_plan(mixed(seed, "ryx"), rows, sample) for seed in range(3)]
    assert hits[-1], "these have a template of their own"


def test_texts_of_one_vocabulary() -> None:
    texts = ["a cat sat", "the dog sat", "a dog and the cat", "and a mat"]
    words = ["cat", "dog", "mat", "sat"]

    def made(seed: int, vocabulary: list[str]) -> Any:
        labels = np.random.default_rng(seed).permutation([0, 1, 0, 1])
        weights = {"C": float(seed + 1)}
        found = make_pipeline(TfidfVectorizer(vocabulary=vocabulary), LogisticRegression(**weights))
        return found.fit(texts[seed % 2 :], labels[seed % 2 :])

    rows = np.array(texts, object)
    hits = [assert_same_plan(made(seed, words), rows) for seed in (0, 2, 4, 6)]
    assert hits == [False, False, True, True]
    assert not assert_same_plan(made(0, ["cat", "dog", "mat", "and"]), rows)


def changed(change: Callable[[Any], None]) -> Any:
    model = fitted("scaled logistic", 3)
    change(model)
    return model


CHANGES: dict[str, Callable[[Any], None]] = {
    "as it is": lambda _: None,
    "another number of iterations": lambda m: setattr(m[1], "n_iter_", np.array([99])),
    "no mean": lambda m: m[0].set_params(with_mean=False),
    "zeros": lambda m: m[1].coef_.fill(0.0),
    "not a number": lambda m: m[1].coef_.__setitem__((0, 0), np.nan),
    "infinite": lambda m: m[0].scale_.__setitem__(0, np.inf),
    "tiny": lambda m: m[0].scale_.__setitem__(0, 5e-324),
    "one": lambda m: m[0].scale_.fill(1.0),
    "equal": lambda m: setattr(m[0], "mean_", m[0].scale_.copy()),
    "the same array": lambda m: setattr(m[0], "mean_", m[0].scale_),
    "narrow": lambda m: setattr(m[1], "coef_", m[1].coef_.astype(np.float32)),
    "by columns": lambda m: setattr(m[1], "coef_", np.asfortranarray(m[1].coef_)),
    "backwards": lambda m: setattr(m[0], "mean_", m[0].mean_[::-1]),
    "other classes": lambda m: setattr(m[1], "classes_", np.array([5, 6, 7])),
    "classes of floats": lambda m: setattr(m[1], "classes_", np.array([0.0, 1.0, 2.0])),
    "an attribute of its own": lambda m: setattr(m[1], "penalty_", "none"),
}


@pytest.mark.parametrize("first", ["as it is", "zeros", "one", "equal"])
def test_whatever_differs_is_noticed(first: str) -> None:
    rows = data(0)[0].copy()
    # Divided by a tiny scale, other numbers overflow, and are refused.
    rows[:, 0] = fitted("scaled logistic", 3)[0].mean_[0]
    for _ in range(2):
        assert_same_plan(changed(CHANGES[first]), rows)
    hits = {name: assert_same_plan(changed(change), rows) for name, change in CHANGES.items()}
    assert hits[first]
    assert hits["an attribute of its own"]
    for name in ("no mean", "narrow", "other classes"):
        assert not hits[name], name


def hit(name: str = "scaled logistic") -> tuple[Any, flour.Flow]:
    """An estimator that a template is for, and its program."""
    for seed in range(3):
        oven.bake(flour.from_sklearn(fitted(name, seed)))
    estimator = fitted(name, 3)
    flow = flour.from_sklearn(estimator)
    assert is_hit(flow)
    return estimator, flow


def test_fitting_again_changes_no_program() -> None:
    rows = data(0)[0]
    estimator, flow = hit()
    want = usual(estimator)
    plan = oven.bake(flow)
    estimator[1].coef_ *= 2.0  # in place, as partial_fit does
    estimator[0].mean_[:] = 7.0
    same(plan.run(rows), want.run(rows))
    assert plan.flow.digest == plan.digest == want.digest
    same(flow.reference(rows), want.flow.reference(rows))


def test_fitting_again_before_baking_leaves_no_template() -> None:
    oven.bake(flour.from_sklearn(fitted("scaled logistic", 0)))
    estimator = fitted("scaled logistic", 1)
    flow = flour.from_sklearn(estimator)
    want = usual(estimator)
    estimator[1].coef_ *= 2.0
    same(oven.bake(flow).run(data(0)[0]), want.run(data(0)[0]))
    assert not is_hit(flour.from_sklearn(fitted("scaled logistic", 2)))


def test_a_program_comes_from_the_line_that_asked_for_it() -> None:
    _, flow = hit()
    places = {origin.file for origins in flow.origins().values() for origin in origins}
    assert places == {"test_estimator_templates.py"}
    steps = {origin.step for origins in flow.origins().values() for origin in origins}
    assert {"standardscaler", "logisticregression"} <= steps


@pytest.mark.parametrize(
    "estimator",
    [DecisionTreeClassifier(), RandomForestClassifier(70), SVC(), KNeighborsClassifier()],
)
def test_others_are_imported_every_time(estimator: Any) -> None:
    for seed in range(6):
        rows, classes, _ = data(seed)
        assert not is_hit(flour.from_sklearn(estimator.fit(rows, classes)))
        oven.bake(flour.from_sklearn(estimator))


def test_settings_that_read_fewer_attributes_keep_their_templates() -> None:
    rows = data(0)[0]

    def hits(*, with_mean: bool) -> list[bool]:
        made = (StandardScaler(with_mean=with_mean).fit(data(seed)[0]) for seed in range(3))
        return [assert_same_plan(scaler, rows) for scaler in made]

    assert hits(with_mean=False) == hits(with_mean=True) == [False, False, True]
    assert hits(with_mean=False) == [True, True, True], "though what others read is there, too"


def test_programs_baked_together_leave_no_more_templates_than_are_kept() -> None:
    flows = [flour.from_sklearn(fitted("standard", seed)) for seed in range(7)]
    for flow in flows:
        oven.bake(flow)
    kept = [len(family.templates) for family in template_lookup._families.values()]
    assert max(kept) <= template_lookup.MOST_TEMPLATES


def test_a_reading_is_known_by_what_it_reads() -> None:
    """A structure that was forgotten may be read in other ways when it comes again."""
    first, then = (Reading((Access(0, name, item=False, kind="numbers"),)) for name in "ab")
    scaler = StandardScaler()
    scaler.a, scaler.b = np.zeros(2), np.ones(2)
    keys = []
    for reading in (first, then):
        structure = parts.Structure()
        structure.readings.append(reading)
        keys.append(parts.EstimatorParts(scaler, structure, (), lambda *_: pytest.fail("read")).key)
    assert keys[0] != keys[1]


def test_a_class_of_the_users_own_is_no_structure() -> None:
    class Mine(StandardScaler):  # type: ignore[misc]  # it has no types
        pass

    assert parts.take_apart(Mine().fit(data(0)[0]), (), lambda *_: pytest.fail("read")) is None


def test_a_list_inside_itself_ends() -> None:
    estimator = fitted("standard", 0)
    estimator.notes = [1.0]
    estimator.notes.append(estimator.notes)
    assert not assert_same_plan(estimator, data(0)[0])


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.structures, "most", 2)
    monkeypatch.setattr(parts.constants, "most", 2)
    rows, classes, _ = data(0)
    for last in range(5):
        model = LogisticRegression().fit(rows, np.array([0, 1, 2 + last])[classes])
        for width in (3, 4, 5):
            oven.bake(flour.from_sklearn(StandardScaler().fit(rows[:, :width])))
        for _ in range(3):
            oven.bake(flour.from_sklearn(model))
        assert len(parts.structures) <= 2
        assert len(parts.constants) <= 2
