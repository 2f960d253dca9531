"""Taps into files, streams and OpenTelemetry, and taps that follow to other versions."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import flour
from flour.core.errors import FlourError
from runtime import Runtime
from tests.house import until

X = np.random.default_rng(0).normal(size=(300, 3))
Y = X[:, 0] > 0


def fitted(*steps: Any) -> flour.Flow:
    return flour.from_sklearn(make_pipeline(*steps, LogisticRegression()).fit(X, Y))


SCALED = StandardScaler().fit_transform(X)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        made.register("m", fitted(StandardScaler()))
        yield made


def lists(table: pa.Table) -> np.ndarray[Any, Any]:
    return np.array(table["value"].to_pylist())


def test_a_file_of_parquet(runtime: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "values.parquet"
    with runtime.tap("m", "standardscaler", sample=1.0, to=path):
        for start in range(0, 300, 100):
            runtime.predict("m", X[start : start + 100], engine="inline")
    np.testing.assert_array_equal(lists(pq.read_table(path)), SCALED)
    with pytest.raises(FlourError, match="a tap cannot write"):
        runtime.tap("m", "standardscaler", to=path)


def test_a_runtime_that_is_closed_closes_what_looks_at_it(tmp_path: Path) -> None:
    path, empty = tmp_path / "values.parquet", tmp_path / "none.parquet"
    with Runtime(executors=1) as runtime:
        runtime.register("m", fitted(StandardScaler()), background=False)
        runtime.tap("m", "standardscaler", sample=1.0, to=path)
        runtime.tap("m", "standardscaler", sample=1e-9, to=empty)
        seen = runtime.watch("m", reference=X)
        runtime.predict("m", X, engine="inline")
    np.testing.assert_array_equal(lists(pq.read_table(path)), SCALED)
    assert seen.drift()[0].rows == len(X)
    assert not empty.exists()


def test_a_stream_is_there_as_it_comes(runtime: Runtime, tmp_path: Path) -> None:
    path, copy = tmp_path / "values.arrows", io.BytesIO()
    with (
        runtime.tap("m", "standardscaler", sample=1.0, to=str(path)) as seen,
        runtime.tap("m", "standardscaler", sample=1.0, to=copy),
    ):
        runtime.predict("m", X, engine="inline")
        seen.flush()
        with path.open("rb") as file:
            np.testing.assert_array_equal(
                lists(pa.Table.from_batches([pa.ipc.open_stream(file).read_next_batch()])), SCALED
            )
    copy.seek(0)
    np.testing.assert_array_equal(lists(pa.ipc.open_stream(copy).read_all()), SCALED)


def test_sparse_steps(tmp_path: Path) -> None:
    texts = ["good dog", "bad cat", "good cat", "bad dog"] * 5
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0, 1, 0] * 5)
    wanted = model[0].transform(texts).toarray()
    with Runtime() as runtime:
        runtime.register("m", flour.from_sklearn(model))
        path = tmp_path / "values.parquet"
        with runtime.tap("m", "tfidfvectorizer", sample=1.0, to=path):
            runtime.predict("m", texts, engine="inline")
    np.testing.assert_allclose(lists(pq.read_table(path)), wanted, rtol=1e-12)


def test_opentelemetry_has_the_ends_and_the_mean_of_each_column(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    with runtime.tap("m", "standardscaler", sample=1.0, to="opentelemetry"):
        runtime.predict("m", X, engine="inline")
    data: Any = reader.get_metrics_data()
    found = {each.name: each.data for each in data.resource_metrics[0].scope_metrics[0].metrics}
    assert set(found) == {"pretzel.tap.mean", "pretzel.tap.least", "pretzel.tap.most"}
    for name, made in (("mean", np.mean), ("least", np.min), ("most", np.max)):
        points = found[f"pretzel.tap.{name}"].data_points
        assert len(points) == 3
        for point in points:
            assert point.attributes["model"] == "m"
            wanted = made(SCALED[:, point.attributes["column"]])
            assert point.value == pytest.approx(wanted, abs=1e-9)


def test_opentelemetry_counts_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = InMemoryMetricReader()
    monkeypatch.setattr(metrics, "get_meter", MeterProvider([reader]).get_meter)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, np.where(Y, "yes", "no"))
    with Runtime() as runtime:
        runtime.register("m", flour.from_sklearn(model)["label"])
        with runtime.tap("m", "logisticregression", sample=1.0, to="opentelemetry"):
            runtime.predict("m", X, engine="inline")
    data: Any = reader.get_metrics_data()
    (metric,) = data.resource_metrics[0].scope_metrics[0].metrics
    counts = {point.attributes["text"]: point.value for point in metric.data.data_points}
    assert counts == dict(Counter(model.predict(X)))


def test_a_function_that_raises_is_told_seldom(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_values: object) -> None:
        raise RuntimeError("no space is left")

    with runtime.tap("m", "standardscaler", sample=1.0, to=full) as tap:
        for _ in range(20):
            runtime.predict("m", X, engine="inline")
            tap.flush()  # else a busy machine folds several calls at once
    assert caplog.text.count(" so far)") == 5  # 1, 2, 4, 8, 16


def test_a_step_is_named() -> None:
    with Runtime() as runtime:
        runtime.register("m", fitted(StandardScaler()))
        for wrong in (3, "", None):
            with pytest.raises(FlourError, match="names no step"):
                runtime.tap("m", wrong)  # type: ignore[arg-type]  # that is what is tried


@pytest.mark.parametrize("to", ["values.csv", 7, "values", io.StringIO(), "no/values.parquet"])
def test_where_values_cannot_go_is_refused(runtime: Runtime, to: Any) -> None:
    with pytest.raises(FlourError, match="a tap"):
        runtime.tap("m", "standardscaler", to=to)
    assert runtime.endpoints.find("m").watcher is None


def test_it_goes_on_with_the_version_that_answers(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    with runtime.tap("m", "standardscaler", sample=1.0) as seen:
        runtime.register("m", fitted(StandardScaler(with_mean=False)))
        until(lambda: seen.version.version == "2")
        assert runtime.endpoints.find("m@1").watcher is None
        runtime.predict("m", X, engine="inline")
        seen.flush()
        np.testing.assert_array_equal(
            np.concatenate(seen.ring), StandardScaler(with_mean=False).fit_transform(X)
        )
        runtime.register("m", fitted(MinMaxScaler()))
        until(lambda: seen.version.version == "3")
        runtime.predict("m", X, engine="inline")
        assert "m@3: the tap has nothing to look at" in caplog.text
        assert runtime.endpoints.find("m").watcher is None
        seen.ring.clear()
        runtime.switch("m", "1")
        until(lambda: seen.version.version == "1")
        runtime.predict("m", pd.DataFrame(X).to_numpy(), engine="inline")
        seen.flush()
        np.testing.assert_array_equal(np.concatenate(seen.ring), SCALED)
    assert not any(each.watcher for each in runtime.endpoints.versions().values())
