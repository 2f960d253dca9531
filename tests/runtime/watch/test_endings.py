"""Watches and taps when something ends or changes: versions, columns, disks, files, watches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
from flour.core.errors import InputError
from runtime import Runtime
from runtime.http.watch.metrics_watch import families, with_drift
from runtime.watch import NumbersSketch, Reference, drift
from runtime.watch.statistics import psi_error

SECRET = 4455667788.5


def program(**columns: Any) -> flour.Flow:
    row = flour.record(**columns)
    total = row["amount"]
    for name, kind in columns.items():
        if kind is float and name != "amount":
            total = total + 0.0 * row[name]
    return flour.outputs(score=total)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=1) as made:
        made.register("m", program(ssn=float, amount=float), 1, background=False)
        yield made


def rows(count: int = 100) -> dict[str, Any]:
    return {"ssn": np.full(count, SECRET), "amount": np.arange(float(count))}


def test_a_watch_forgets_a_column_that_becomes_private(runtime: Runtime) -> None:
    watch = runtime.watch("m", reference=rows(), segments=("ssn",), outliers=("range",))
    runtime.predict("m", {**rows(), "amount": np.full(100, 1e6)}, engine="inline")
    watch.fold()
    assert "4455667788.5" in repr(watch.cells()) + repr(watch.outliers[0].strangest)
    notes = {"private": ("ssn",)}
    new = program(ssn=float, amount=float)
    runtime.register("m", new, 2, activate=False, notes=notes, background=False)
    for _ in range(2):
        runtime.predict("m", rows(), engine="inline")
        watch.fold()
        kept = [watch._usual.table, watch._recent.table, watch.reference.to_json()]
        told = [watch.drift(), watch.cells(), watch.causes(), watch.outliers, watch.alarms]
        text = repr([each.tolist() if isinstance(each, np.ndarray) else each for each in kept])
        assert "445566778" not in text + repr(told)
        assert "ssn" not in [each.column for each in watch.drift()]
    watch.close()


def test_a_tap_stops_where_its_step_becomes_private(runtime: Runtime) -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    flow = flour.from_sklearn(make_pipeline(StandardScaler(), LinearRegression()).fit(x, x[:, 0]))
    (name,) = flow.inputs()
    runtime.register("v", flow, 1, background=False)
    tap = runtime.tap("v", "standardscaler", sample=1.0)
    runtime.predict("v", x, engine="inline")
    tap.flush()
    assert tap.ring
    runtime.register("v", flow, 2, activate=False, notes={"private": (name,)}, background=False)
    for _ in range(2):
        tap.flush()
        runtime.predict("v", x, engine="inline")
        assert not tap.ring
    tap.close()


def test_a_watch_goes_on_where_another_signature_answers(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    with runtime.watch("m", reference=rows(), segments=("ssn", "amount // 50")) as watch:
        runtime.predict("m", rows(), engine="inline")
        watch.fold()
        runtime.register("m", program(amount=float, city=str), 2, background=False)
        watch.fold()
        assert watch.version.version == "2"
        new = {"amount": np.arange(100.0), "city": ["a"] * 100}
        runtime.predict("m", new, engine="inline")
        runtime.predict("m", {"amount": 3.0, "city": "a"})
        watch.fold()
        cells = {cell.segment: cell.rows for cell in watch.cells()}
        assert cells["(missing)", "0"] == 51
        assert watch._observer.failed == 0
        assert {each.column: each.rows for each in watch.drift()}["amount"] == 201
    assert not caplog.records


@pytest.mark.parametrize("block", [1, 2000])
def test_closing_under_traffic_is_short(runtime: Runtime, block: int) -> None:
    over = threading.Event()
    given: Any = rows(block) if block > 1 else {"ssn": 1.0, "amount": 2.0}

    def ask() -> None:
        while not over.is_set():
            runtime.predict("m", given, engine="inline" if block > 1 else None)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    watch = runtime.watch(
        "m", reference=rows(), segments=("ssn",), outliers=("range", "mahalanobis"), sample=1.0
    )
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    began = time.perf_counter()
    watch.close()
    took = time.perf_counter() - began
    over.set()
    for thread in threads:
        thread.join()
    assert took < 1.0, "0.1 s for what is left, and the block that is being folded"
    counted = sum(cell.rows for cell in watch.cells())
    assert counted
    runtime.predict("m", given)
    assert sum(cell.rows for cell in watch.cells()) == counted


def test_a_full_disk_ends_no_runtime(caplog: pytest.LogCaptureFixture) -> None:
    class Full:
        def write(self, _: bytes) -> int:
            raise OSError(28, "no space left")

        def flush(self) -> None: ...

        closed = False

    x = np.random.default_rng(0).normal(size=(50, 2))
    flow = flour.from_sklearn(make_pipeline(StandardScaler(), LinearRegression()).fit(x, x[:, 0]))
    runtime = Runtime(executors=1)
    runtime.register("v", flow, background=False)
    runtime.tap("v", "standardscaler", sample=1.0, to=Full())
    watch = runtime.watch("v", reference=x)
    assert len(runtime.predict("v", x, engine="inline")) == 1
    runtime.close()
    assert watch.drift()[0].rows == 50
    assert "could not" in caplog.text


def test_sketches_of_a_former_release_are_read() -> None:
    values = np.random.default_rng(0).normal(size=500)
    sketch = NumbersSketch.of(values)
    data = Reference({"x": sketch}).to_data()
    former = json.loads(json.dumps(data))
    former["x"]["edges"] = former["x"]["edges"][1:-1]
    former["x"]["counts"] = former["x"]["counts"][1:-1]
    for each in (data, former):
        again = Reference.from_data(each).columns["x"]
        assert isinstance(again, NumbersSketch)
        assert np.array_equal(again.edges, sketch.edges)
        assert np.array_equal(again.counts, sketch.counts)


@pytest.mark.parametrize(
    "change",
    [
        {"counts": [-1] * 14},
        {"counts": [1e300] * 14},
        {"missing": -1},
        {"least": "low"},
        {"edges": ["nan"] * 13},
        {"counts": [[1]]},
        {"least": 5.0},
        {"edges": "1"},
        {"missing": ""},
    ],
)
def test_damaged_sketches_are_refused(change: dict[str, Any]) -> None:
    data = Reference({"x": NumbersSketch.of(np.random.default_rng(0).normal(size=500))}).to_data()
    data["x"] |= change
    with pytest.raises(InputError, match="no sketches"):
        Reference.from_data(data)


@pytest.mark.parametrize("missing", [0, 500, 4000])
def test_the_distance_is_that_of_what_is_there(missing: int) -> None:
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=5000), rng.normal(0.05, 1, size=3000)
    sketch = NumbersSketch.of(np.append(old, np.full(700, np.nan)))
    found = drift("x", sketch, *sketch.counted(np.append(new, np.full(missing, np.nan))))
    assert found.ks == pytest.approx(stats.ks_2samp(old, new).statistic, abs=0.02)


@pytest.mark.parametrize("scale", [1000.0, -1000.0])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
def test_numbers_beyond_the_reference_alarm(share: float, scale: float) -> None:
    rng = np.random.default_rng(0)

    def drawn(count: int) -> Any:
        return np.where(rng.random(count) < share, rng.gamma(2, 100, count), 0.0)

    sketch = NumbersSketch.of(drawn(5000))
    same, moved = (drift("x", sketch, *sketch.counted(drawn(3000) * by)) for by in (1, scale))
    assert (same.alarms, moved.alarms) == (False, True)
    assert moved.beyond == pytest.approx(share, rel=0.4)


def test_errors_of_drift_are_those_of_many_samples() -> None:
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.5):
        sketch = NumbersSketch.of(rng.normal(size=4000))
        found = [drift("x", sketch, *sketch.counted(rng.normal(shift, 1, 500))) for _ in range(200)]
        spread = np.std([each.psi for each in found])
        told = np.mean([each.psi_error for each in found])
        assert 0.5 < spread / told < 2
    assert psi_error(np.array([0]), np.array([0])) == 0


def test_two_rows_alarm_nobody(runtime: Runtime) -> None:
    with runtime.watch("m", reference=rows(1000)) as watch:
        for wanted in (2, 99, 400, 600):
            count = wanted - watch.drift()[0].rows if watch.drift() else wanted
            runtime.predict("m", {**rows(count), "amount": np.full(count, 1e9)}, engine="inline")
            watch.fold()
            told = {
                each.name: each.samples
                for each in with_drift(families([runtime.endpoints.find("m")]))
            }
            assert (len(told["pretzel_drift_psi"]) > 0) is (wanted >= 100)
            assert len(told["pretzel_drift_rows"]) == 2
            assert watch.drift()[0].alarms is (wanted >= 500)
