"""Watched endpoints: drift as scipy computes it, segments, detectors as river's, taps."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import flour
import oven
from flour.core.errors import FlourError, InputError, ParameterError
from oven import Plan
from runtime import Runtime
from runtime.http.watch.metrics_watch import families
from runtime.watch import Adwin, PageHinkley, Reference, Tap, Watch
from runtime.watch.rows import numbered_objects
from runtime.watch.segments import OVERFLOW, Segments
from runtime.watch.sketch import NumbersSketch, WordsSketch
from runtime.watch.statistics import chi_square, drift, ks
from runtime.watch.steps import step_node
from tests.house import until
from tests.runtime.watch.river_alarms import GOLDEN, stream


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Reference rows."""
    rng = np.random.default_rng(0)
    city = rng.choice(["Oslo", "Rome", "Bern"], 6000)
    return pd.DataFrame(
        {"age": rng.normal(40, 9, 6000), "hours": rng.normal(30, 5, 6000), "city": city}
    )


@pytest.fixture(scope="module")
def plan(frame: pd.DataFrame) -> Plan:
    """A pipeline of three columns."""
    columns = make_column_transformer(
        (StandardScaler(), ["age", "hours"]), (OneHotEncoder(handle_unknown="ignore"), ["city"])
    )
    model = make_pipeline(columns, LogisticRegression()).fit(frame, frame["age"] > 40)
    return oven.bake(flour.from_sklearn(model, sample=frame), background=False)


@pytest.fixture
def runtime(plan: Plan) -> Iterator[Runtime]:
    """A runtime that serves it."""
    with Runtime(executors=1) as made:
        made.register("fraud", plan)
        yield made.wait(60)


def ask(runtime: Runtime, frame: pd.DataFrame) -> dict[str, Any]:
    """A block that goes by the engines, so that all of its rows are looked at."""
    return runtime.predict("fraud", frame, engine="inline")


def test_the_column_that_moved_comes_first(runtime: Runtime, frame: pd.DataFrame) -> None:
    for column in ("age", "hours", "city"):
        moved = frame.sample(3000, random_state=1)
        moved[column] = "Lima" if column == "city" else moved[column] + 12.0
        with Watch(runtime, "fraud", reference=frame) as seen:
            ask(runtime, moved)
            seen.fold()
            first, second, _ = seen.drift()
        assert (first.column, first.rows) == (column, 3000)
        assert min(first.psi, 0.2) > 0.1 > second.psi
        assert first.unseen == (column == "city")
    assert runtime.endpoints.find("fraud").watcher is None


def test_statistics_agree_with_scipy(frame: pd.DataFrame) -> None:
    sketch = NumbersSketch.of(frame["age"].to_numpy())
    window = frame["age"].to_numpy()[:2500] * 1.05
    counts, missing = sketch.counted(np.append(window, [np.nan] * 3))
    assert (missing, counts.sum()) == (3, 2500)
    old, new = (np.searchsorted(sketch.edges, each) for each in (frame["age"], window))
    assert np.array_equal(counts, np.bincount(new, minlength=len(counts)))
    assert ks(sketch.counts, counts) == pytest.approx(stats.ks_2samp(old, new).statistic, abs=1e-9)
    for bins in (2, 3, 8, 20):
        tables = [each[1 : bins + 1] for each in (sketch.counts, counts)]  # none is below the least
        theirs = stats.chi2_contingency(tables, correction=False)
        ours = chi_square(*tables)
        assert ours == pytest.approx((theirs.statistic, theirs.pvalue), rel=1e-6)


def test_words_are_frequent_known_unseen_or_missing() -> None:
    words = [f"w{n}" for n in range(60) for _ in range(100 - n)]
    sketch = WordsSketch.of(np.array([*words, None], object))
    counts, missing = sketch.counted(np.array(["w0", "w59", "new", None], object))
    assert (counts[0], counts[-2], counts[-1], missing, sketch.missing) == (1, 1, 1, 1, 1)


def test_a_reference_is_text(frame: pd.DataFrame) -> None:
    table = {"age": frame["age"].to_numpy(), "city": frame["city"].to_numpy(object)}
    text = Reference.of(table).to_json()
    assert Reference.from_json(text).to_json() == text
    for wrong in ("{", "[]", '{"a": 1}'):
        with pytest.raises(FlourError, match="no sketches"):
            Reference.from_json(wrong)


@pytest.mark.parametrize("kind", [Adwin, PageHinkley])
def test_detectors_alarm_where_those_of_river_do(kind: type[Adwin | PageHinkley]) -> None:
    golden = json.loads(GOLDEN.read_text())[kind.__name__]
    for seed, alarms in enumerate(golden):
        detector = kind()
        found = [place for place, score in enumerate(stream(seed)) if detector.update(score)]
        assert found == alarms
        assert len(found) > 2


def test_segments_count_rows_scores_and_labels(runtime: Runtime, frame: pd.DataFrame) -> None:
    with runtime.watch("fraud", segments=("city", "age // 10")) as seen:
        answers = ask(runtime, frame)
        seen.fold()
        cells = {cell.segment: cell for cell in seen.cells()}
        text = {family.name: family for family in families([runtime.endpoints.find("fraud")])}
    decade = (frame["age"] // 10 * 10).map("{:g}".format)
    counts = frame.groupby([frame["city"], decade]).size()
    assert {segment: cell.rows for segment, cell in cells.items()} == counts.to_dict()
    mine = (frame["city"] == "Oslo") & (decade == "40")
    cell = cells["Oslo", "40"]
    scores = answers["probabilities"][mine.to_numpy(), 1]
    assert cell.scores == tuple(np.histogram(scores, np.arange(11) / 10)[0])
    assert cell.labels.get("True", 0) == answers["label"][mine.to_numpy()].sum()
    samples = text["pretzel_segment_rows_total"].samples
    assert sum(float(value) for _, value in samples if isinstance(value, int)) == len(frame)


@pytest.mark.parametrize("distinct", [3, 300, 30_000])
def test_values_are_numbered_by_what_they_are(distinct: int) -> None:
    rng = np.random.default_rng(distinct)
    numbers = rng.integers(0, distinct, 40_000)
    words = np.array([f"word {n}" for n in range(distinct)], object)
    same = words[numbers]  # the same objects again and again
    new = np.array([f"word {n}" for n in numbers], object)  # an object for each row
    values = np.where(rng.uniform(size=len(same)) < 0.5, same, new)
    values[::1000] = None
    for part in (values, values[::3]):
        codes, found = numbered_objects(part)
        assert len(set(found)) == len(found)
        assert [found[code] for code in codes] == part.tolist()


def test_words_in_a_column_of_numbers_are_missing_and_the_rest_is_counted() -> None:
    sketch = NumbersSketch.of(np.arange(100.0))
    counts, missing = sketch.counted(np.array([1.0, "n/a", None, "7", 99], object))
    assert (counts.sum(), missing) == (3, 2)
    segments = Segments(("age // 10",), ("age",))
    segments.add({"age": np.array([11.0, "n/a", 12, 25], object)})
    assert {cell.segment: cell.rows for cell in segments.cells()} == {
        ("10",): 2, ("20",): 1, ("(missing)",): 1,
    }  # fmt: skip


def test_segments_of_blocks_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(3)
    city = np.array(["Oslo", "Rome", "Bern"], object)[rng.integers(0, 3, 5000)]
    zipcode, scores = rng.integers(10**7, 10**7 + 40, 5000), rng.uniform(-0.2, 1.2, 5000)
    scores[::50] = np.nan
    labels = rng.integers(0, 120, 5000)
    segments = Segments(("city", "zip"), ("city", "zip"))
    for part in np.array_split(np.arange(5000), 7):
        segments.add({"city": city[part], "zip": zipcode[part]}, scores[part], labels[part])
    found = {cell.segment: cell for cell in segments.cells()}
    frame = pd.DataFrame({"city": city, "zip": zipcode.astype(str)})
    assert {each: cell.rows for each, cell in found.items()} == frame.value_counts().to_dict()
    assert sum(sum(cell.scores) for cell in found.values()) == 4900
    counted: dict[str, int] = {}
    for cell in found.values():
        assert sum(cell.labels.values()) == cell.rows
        for label, rows in cell.labels.items():
            counted[label] = counted.get(label, 0) + rows
    assert len(counted) == 101  # a hundred labels, and all others
    assert OVERFLOW in counted
    assert all(rows == (labels == int(n)).sum() for n, rows in counted.items() if n != OVERFLOW)


def test_segments_beyond_the_limit_share_a_cell() -> None:
    segments = Segments(("key",), ("key",), limit=10)
    for start in (0, 5, 40):
        segments.add({"key": np.arange(start, start + 10.0)})
    cells = segments.cells()
    assert (len(cells), cells[-1].segment, sum(each.rows for each in cells)) == (
        11, (OVERFLOW,), 30,
    )  # fmt: skip
    with pytest.raises(FlourError, match="no column 'kee'"):
        Segments(("kee",), ("key",))


def test_single_rows_are_sampled_and_stand_for_others(
    runtime: Runtime, frame: pd.DataFrame
) -> None:
    row = frame.iloc[0].to_dict()
    with Watch(runtime, "fraud", segments=("city",)) as seen:
        for _ in range(64 * 20):
            runtime.predict("fraud", row)
        seen.fold()
        (cell,) = seen.cells()
    assert abs(cell.rows - 64 * 20) <= 128


def test_a_tap_gives_what_the_definitions_give(
    runtime: Runtime, plan: Plan, frame: pd.DataFrame
) -> None:
    before = ask(runtime, frame)
    with runtime.tap("fraud", "standardscaler.output", sample=0.1) as seen:
        after = ask(runtime, frame)
        seen.flush()
        (values,) = seen.ring
    places = np.linspace(0, len(frame) - 1, 600).astype(int)
    flow = flour.Flow({"tap": step_node(plan.flow, "standardscaler")})
    assert np.array_equal(values, flow.reference(frame.iloc[places])["tap"])
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert runtime.endpoints.find("fraud").watcher is None
    with pytest.raises(FlourError, match="no step 'scaled'"):
        Tap(runtime, "fraud", "scaled")


def test_what_cannot_be_folded_fails_no_call(runtime: Runtime, frame: pd.DataFrame) -> None:
    def fail(_: object) -> None:
        raise ValueError("no room")

    with Tap(runtime, "fraud", "standardscaler", sample=1.0, to=fail) as seen:
        assert len(ask(runtime, frame)["label"]) == len(frame)
        seen.flush()
    assert ask(runtime, frame)


def test_a_bucket_holds_its_middle_where_the_width_is_no_binary_fraction() -> None:
    segments = Segments(("age // 0.7",), ("age",))
    segments.add({"age": (np.arange(1000) + 0.5) * 0.7})
    assert [cell.rows for cell in segments.cells()] == [1] * 1000


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.astype({"city": "category"}),
        lambda f: f.assign(day=pd.Timestamp("2020")),
        lambda f: f.convert_dtypes(),
        lambda f: f.astype(object),
        lambda f: f.astype({"age": "float32"}).astype({"age": "float64"}),
        pl.from_pandas,
        pa.Table.from_pandas,
    ],
)
def test_rows_are_watched_in_every_form(runtime: Runtime, frame: pd.DataFrame, change: Any) -> None:
    rows = change(frame[:500])
    with Watch(runtime, "fraud", reference=rows, segments=("city", "age // 10")) as found:
        assert found.reference.columns.keys() >= {"age", "hours", "city"}
        runtime.predict("fraud", rows, engine="inline")
        found.fold()
        drifts = {each.column: each for each in found.drift()}
        assert drifts.keys() >= {"age", "hours", "city"}
        assert all(each.psi == 0 and each.rows == 500 for each in drifts.values())
        assert sum(cell.rows for cell in found.cells()) == 500
        assert not found._observer.failed


_HOLES = {
    "pandas": lambda f: f,
    "nullable": lambda f: f.convert_dtypes(),
    "arrow types": lambda f: f.convert_dtypes(dtype_backend="pyarrow"),
    "none": lambda f: f.assign(city=f["city"].where(f["city"].notna(), None)),
    "polars": pl.from_pandas,
    "table": pa.Table.from_pandas,
    "lists": lambda f: {name: f[name].tolist() for name in f},
    "rows": lambda f: f.to_dict("records"),
    "plain rows": lambda f: f.to_numpy().tolist(),
}


@pytest.fixture(scope="module")
def holes() -> Iterator[tuple[Runtime, pd.DataFrame]]:
    """A model that was trained on columns of which values are missing."""
    rows = pd.DataFrame({"age": np.arange(600.0) % 60, "city": ["Oslo", "Rome", np.nan] * 200})
    columns = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["city"]))
    model = make_pipeline(columns, LogisticRegression()).fit(rows, rows["age"] > 30)
    with Runtime(executors=1) as made:
        made.register("holes", flour.from_sklearn(model, sample=rows), background=False)
        yield made, rows


@pytest.mark.parametrize("reference", _HOLES)
@pytest.mark.parametrize("form", _HOLES)
def test_what_is_missing_is_the_same_in_every_form(
    holes: tuple[Runtime, pd.DataFrame], reference: str, form: str
) -> None:
    runtime, rows = holes
    usual, given = _HOLES[reference](rows), _HOLES[form](rows)
    with Watch(runtime, "holes", reference=usual, segments=("city",)) as found:
        with suppress(FlourError):  # the library takes NaN and None for two categories
            runtime.predict("holes", given, engine="inline")
        found.fold()
        taken = {each.column: each for each in found.drift()}
        assert {cell.segment: cell.rows for cell in found.cells()} == {
            ("Oslo",): 200, ("Rome",): 200, ("(missing)",): 200,
        }  # fmt: skip
        assert not found._observer.failed
    assert taken["city"].psi == taken["age"].psi == taken["city"].unseen == 0
    assert found.reference.columns["city"].missing == 200


def test_a_column_that_went_missing_has_drifted(frame: pd.DataFrame) -> None:
    sketch = Reference.of({"age": frame["age"].to_numpy()}).columns["age"]
    found = drift("age", sketch, *sketch.counted(np.full(100, np.nan)))
    assert found.psi > 1
    assert found.ks == pytest.approx(1)
    assert found.p_value < 1e-9
    assert found.missing == 1


def test_folding_ends_under_traffic(runtime: Runtime, frame: pd.DataFrame) -> None:
    block, stop = frame[:2000], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            runtime.predict("fraud", block, engine="inline")

    asking = threading.Thread(target=ask)
    with Watch(runtime, "fraud", reference=frame) as watched:
        asking.start()
        try:
            folding = threading.Thread(target=watched.fold)
            folding.start()
            folding.join(20)
            assert not folding.is_alive()
        finally:
            stop.set()
            asking.join()


@pytest.mark.parametrize(
    "asked",
    [
        {"segments": ("city // 2",)},
        {"detectors": (Adwin,)},
        {"detectors": (3,)},
        {"reference": Reference({})},
    ],
)
def test_what_can_watch_nothing_is_refused(runtime: Runtime, asked: Any) -> None:
    with pytest.raises(FlourError):
        Watch(runtime, "fraud", **asked)


def test_an_empty_reference_is_refused(runtime: Runtime, frame: pd.DataFrame) -> None:
    with pytest.raises(FlourError, match="say nothing"):
        Watch(runtime, "fraud", reference=frame[:0])


def test_two_watches_have_series_of_their_own(runtime: Runtime, frame: pd.DataFrame) -> None:
    one = Watch(runtime, "fraud", reference=frame)
    with one, Watch(runtime, "fraud", reference=frame) as other:
        runtime.predict("fraud", frame, engine="inline")
        one.fold()
        other.fold()
        found = families([runtime.endpoints.find("fraud")])
        names = [(family.name, labels) for family in found for labels, _ in family.samples]
        assert len(names) == len(set(names)) > 6


def test_scores_that_are_no_numbers_are_in_no_part() -> None:
    counted = Segments(["s"], ["s"])
    table = {"s": np.array(["a"] * 4, object)}
    counted.add(table, np.array([np.nan, np.inf, -np.inf, 0.55]))
    (cell,) = counted.cells()
    assert cell.rows == 4
    assert cell.scores == (1, 0, 0, 0, 0, 1, 0, 0, 0, 1)


def test_steps_of_one_name_are_told_apart(frame: pd.DataFrame) -> None:
    X = frame[["age", "hours"]]
    scaled = [(make_pipeline(StandardScaler()), [name]) for name in X]
    model = make_pipeline(make_column_transformer(*scaled), LogisticRegression())
    other = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, X["age"] > 30)
    model.fit(X, X["age"] > 40)
    with Runtime(executors=1) as runtime:
        runtime.register("m", flour.from_sklearn(model, sample=X), background=False)
        runtime.register("n", flour.from_sklearn(other, sample=X), background=False)
        row = flour.record(age=float, hours=float)
        parts = {name: flour.model(name)(row)["probabilities"][1] for name in "mn"}
        runtime.register("g", flour.outputs(**parts), background=False)
        for name, step, columns in (
            ("m", "pipeline-1.standardscaler", [0]),
            ("m", "pipeline-2.standardscaler", [1]),
            ("g", "m.columntransformer", [0, 1]),
            ("g", "n.standardscaler", [0, 1]),
        ):
            with runtime.tap(name, step, sample=1.0) as seen:
                runtime.predict(name, X, engine="inline")
                seen.flush()
                usual = (other if step[0] == "n" else model)[0].transform(X)
                np.testing.assert_allclose(seen.ring[0], usual[:, columns], rtol=1e-12)
        with pytest.raises(ParameterError, match="2 steps") as refused:
            runtime.tap("m", "standardscaler")
        assert "columntransformer.pipeline-1.standardscaler" in str(refused.value)
        with pytest.raises(ParameterError, match="3 steps"):
            runtime.tap("g", "standardscaler")


@pytest.mark.parametrize(("step", "sample"), [("", 0.1), ("standardscaler", "x")])
def test_taps_say_what_they_cannot_take(runtime: Runtime, step: str, sample: Any) -> None:
    with pytest.raises(FlourError):
        Tap(runtime, "fraud", step, sample=sample)


def test_a_watch_goes_on_with_the_version_that_answers(
    runtime: Runtime, plan: Plan, frame: pd.DataFrame
) -> None:
    runtime.register("fraud", plan, activate=False)
    runtime.route("fraud", "fraud@1")
    with Watch(runtime, "fraud", reference=frame) as seen, Watch(runtime, "fraud@1") as one:
        for version in ("2", "1", "2"):
            runtime.promote("fraud", f"fraud@{version}")
            before = sum(each.rows for each in seen.drift()[:1])
            until(lambda version=version: seen.version.version == version)  # type: ignore[misc] # bound by default
            ask(runtime, frame[:100])
            seen.fold()
            assert seen.drift()[0].rows == before + 100
        assert one.version.version == "1"
        assert [
            each.name for each in families(runtime.endpoints.versions().values()) if each.samples
        ]
    assert all(each.watcher is None for each in runtime.endpoints.versions().values())
    runtime.promote("fraud", "fraud@1")
    seen.follow()
    assert seen.version.version == "2"


def test_drift_is_of_the_last_rows() -> None:
    rng = np.random.default_rng(0)
    usual = {"age": rng.normal(40, 9, 2000), "income": rng.gamma(2, 20, 2000)}
    with Runtime() as runtime:
        row = flour.record(age=float, income=float)
        runtime.register("m", flour.outputs(score=row["age"]), background=False)
        with runtime.watch("m", reference=usual, window=2000) as seen:

            def ask(**moved: float) -> None:
                for _ in range(3):
                    rows = {
                        name: each[:1000] + moved.get(name, 0.0) for name, each in usual.items()
                    }
                    runtime.predict("m", rows, engine="inline")
                seen.fold()

            ask(age=30.0)
            assert seen.drift()[0].column == "age"
            assert seen.drift()[0].rows == 2000
            ask()
            assert all(each.psi < 0.1 for each in seen.drift())
            ask(income=300.0)
            assert seen.causes()[0].score >= 0
            assert [each.column for each in seen.drift() if each.psi > 0.2] == ["income"]
            assert {each.rows for each in seen.drift()} == {2000}


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": -1},
        {"limit": True},
        {"window": 0},
        {"segments": "age"},
        {"segments": (5,)},
        {"drift": "yes"},
        {"costs": "yes"},
        {"steps": 5},
        {"steps": "age"},
        {"outliers": 5},
        {"segmentz": ("age",)},
        {"reference": {"age": np.full(50, np.inf)}, "outliers": ("range",)},
    ],
    ids="-".join,
)
def test_options_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with Runtime() as runtime:
        runtime.register("m", flour.outputs(score=flour.record(age=float)["age"]))
        with pytest.raises(ParameterError):
            runtime.watch("m", **{"reference": {"age": np.arange(50.0)}, **wrong})
        assert runtime.endpoints.find("m").watcher is None


def test_an_option_that_there_is_not_is_refused_with_those_that_there_are(runtime: Runtime) -> None:
    with pytest.raises(ParameterError, match="no option 'segmentz'") as refused:
        runtime.watch("fraud", segmentz=("city",))
    assert refused.value.where == "watch('fraud')"
    assert str(refused.value.found).startswith("options are reference, segments, detectors")
    assert refused.value.hint == "did you mean 'segments'?"


@pytest.mark.parametrize("ages", [[1.0], np.ones(9)], ids=["lists", "arrays"])
def test_columns_of_a_reference_have_as_many_rows_each(ages: Any) -> None:
    row = flour.record(age=float, city=flour.text)
    with Runtime() as runtime:
        runtime.register("m", flour.outputs(score=row["age"], city=row["city"]))
        with pytest.raises(InputError, match="as many rows"):
            runtime.watch("m", reference={"age": ages, "city": ["a", "b", "c"]})


def test_a_detector_may_be_alone(runtime: Runtime) -> None:
    alone = Adwin()
    with Watch(runtime, "fraud", detectors=alone) as found:
        assert found.detectors == (alone,)


def test_no_rows_have_no_causes() -> None:
    with Runtime() as runtime:
        runtime.register("m", flour.outputs(score=flour.record(age=float)["age"]))
        with runtime.watch("m", reference={"age": np.arange(50.0)}) as seen:
            runtime.predict("m", {"age": np.zeros(0)}, engine="inline")
            seen.fold()
            assert all(each.explained is None for each in seen.causes())


def test_drift_of_a_step() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3)) * [1, 5, 9]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, X[:, 0] > 0)
    other = make_pipeline(LogisticRegression()).fit(X, X[:, 0] > 0)
    with Runtime() as runtime:
        runtime.register("m", flour.from_sklearn(model))
        with runtime.watch("m", reference=X, steps=("standardscaler",), sample=1.0) as seen:
            runtime.predict("m", X + np.array([0, 9, 0]), engine="inline")
            seen.fold()
            moved = {each.column: each.psi for each in seen.drift()}
            assert moved["1"] == moved["standardscaler[1]"] > 0.2
            assert moved["standardscaler[0]"] == moved["0"] < 0.1
            assert {each.column for each in seen.causes()} == {"0", "1", "2"}
            runtime.register("m", flour.from_sklearn(other))
            seen.follow()
            seen.restart()
            runtime.predict("m", X, engine="inline")
            seen.fold()
            assert {each.column for each in seen.drift()} == {"0", "1", "2"}
        with pytest.raises(ParameterError, match="reference rows"):
            runtime.watch("m@1", reference=Reference.of({"0": X[:, 0]}), steps=("standardscaler",))
        with pytest.raises(ParameterError, match="no step"):
            runtime.watch("m@1", reference=X, steps=("standardscalar",))


def test_latency_by_segment() -> None:
    with Runtime() as runtime:
        row = flour.record(age=float, city=flour.text)
        runtime.register("m", flour.outputs(score=row["age"]), background=False)
        with runtime.watch("m", segments=("city",)) as seen:
            for _ in range(2000):
                runtime.predict("m", {"age": 1.0, "city": "Oslo"})
            runtime.predict("m", {"age": np.ones(5000), "city": ["Rome"] * 5000}, engine="inline")
            seen.fold()
            found = {cell.segment: cell.latency for cell in seen.cells()}
            assert 0 < (found["Oslo",] or 0) < 0.1
            assert found["Rome",] is None
            (latency,) = [f for f in families([runtime.endpoints.find("m")]) if "latency" in f.name]
            assert len(latency.samples) == 1
