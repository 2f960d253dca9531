"""Labels that are sure before all is fetched: those of everything fetched, for fewer fetches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from xgboost import XGBClassifier

import flour
import pretzel
from flour.core.errors import ParameterError
from runtime import Runtime
from runtime.errors import NodeFailed

EXECUTORS = 1

ROWS = 10_000
RNG = np.random.default_rng(5)
X = RNG.integers(0, 41, (ROWS, 5)) / 4.0
SCORE = X[:, 0] + X[:, 1] - 0.3 * X[:, 2] + 0.1 * X[:, 3] + np.sin(X[:, 4]) - 9
FRAME = pd.DataFrame(
    {
        "a": X[:, 0],
        "b": X[:, 1],
        "c": np.where(RNG.random(ROWS) < 0.1, np.nan, X[:, 2]),
        "city": RNG.choice(["Oslo", "Rome", "Graz"], ROWS),
        "known": RNG.random(ROWS) < 0.5,
    }
)
WORTH = SCORE + FRAME["city"].map({"Oslo": 2, "Rome": -2, "Graz": 0}) + FRAME["known"]
LABEL = np.where(WORTH > 0, "yes", "no")


def fetch(values: Any, kind: Any, **options: Any) -> flour.Flow:
    """The values of rows by their number, in one call for all rows."""

    async def load(rows: Any) -> Any:
        return [values[int(row)] for row in rows]

    options = {"timeout": None, **options}
    return flour.fetch(load, row()["row"], gives=kind, together=True, **options)


def row() -> flour.Flow:
    return flour.record(row=int, a=float, b=float)


def fetched(runtime: Runtime) -> list[tuple[int, int]]:
    """Of each fetch of the graph: rows that it was asked for, and rows that went by."""
    plan: Any = runtime.endpoints.find("sure").plan
    return [(step.rows, step.spared) for step in plan.graph.steps if step.kind == "fetch"]


def check(runtime: Runtime, label: Any, whole: Any, data: Any, singles: int = 8) -> Any:
    """Compare with the answers for everything fetched; the rows that each fetch was asked for."""
    runtime.register("sure", flour.outputs(label=label), background=False)
    columns = {name: data[name].to_numpy() for name in ("a", "b")}
    made = runtime.predict("sure", {"row": np.arange(len(data)), **columns})["label"]
    assert np.array_equal(made, whole)
    asked = fetched(runtime)
    assert all(sum(counts) == len(data) for counts in asked)
    for n in range(singles):
        one = {"row": n, **{name: float(column[n]) for name, column in columns.items()}}
        assert runtime.predict("sure", one)["label"] == whole[n]
    return [rows for rows, _ in asked]


MODELS: dict[str, tuple[Callable[[], Any], int, bool]] = {
    "linear": (LogisticRegression, 2, False),
    "linear of three": (RidgeClassifier, 3, False),
    "forest": (lambda: RandomForestClassifier(6, max_depth=5, random_state=0), 2, False),
    "forest of three": (lambda: RandomForestClassifier(8, max_depth=6, random_state=0), 3, False),
    "boosted": (lambda: GradientBoostingClassifier(n_estimators=20, random_state=0), 2, False),
    "histograms": (lambda: HistGradientBoostingClassifier(max_iter=30), 3, True),
    "lightgbm": (lambda: LGBMClassifier(n_estimators=40, verbose=-1), 2, True),
    "lightgbm of three": (lambda: LGBMClassifier(n_estimators=20, verbose=-1), 3, True),
    "xgboost": (lambda: XGBClassifier(n_estimators=40), 2, True),
    "xgboost of three": (lambda: XGBClassifier(n_estimators=20), 3, True),
}


@pytest.mark.parametrize("name", MODELS)
def test_labels_are_those_of_everything_fetched(runtime: Runtime, name: str) -> None:
    make, classes, missing = MODELS[name]
    target = np.digitize(SCORE, [0] if classes == 2 else [-2, 2])
    model = make().fit(X[:4000], target[:4000])
    data = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X) if missing else X
    runtime.register("model", pretzel.compile(model), background=False)
    promised = {} if "linear" not in name else {"within": ([0, 0], 10)}
    two = fetch(data[:, 2:4].tolist(), flour.Vector(2), **promised)
    last = fetch(data[:, 4].tolist(), float, **({"within": (0, 10)} if promised else {}))
    label = flour.model("model")(row()["a", "b"], two, last)["label"]
    whole = runtime.predict("model", data)["label"]
    frame = pd.DataFrame({"a": data[:, 0], "b": data[:, 1]})
    asked = check(runtime, flour.until_sure(label), whole, frame)
    assert asked[1] < 0.9 * ROWS
    assert asked[1] <= asked[0] <= ROWS


@pytest.mark.parametrize("strict", ["ignore", "error"])
@pytest.mark.parametrize(
    "last", [LogisticRegression(), LGBMClassifier(n_estimators=20, verbose=-1)], ids=["lin", "gbm"]
)
def test_columns_behind_steps_that_take_them_one_by_one(
    runtime: Runtime, last: Any, strict: str
) -> None:
    ahead = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b", "c"]),
        (OneHotEncoder(handle_unknown=strict), ["city"]),
        ("passthrough", ["known"]),
    )
    model = pretzel.compile(make_pipeline(ahead, last).fit(FRAME, LABEL))
    runtime.register("model", model, background=False)
    data = FRAME.copy()
    if strict == "ignore":
        data.loc[::7, "city"] = "Bern"
    answers = [None if value != value else value for value in data["c"]]  # noqa: PLR0124 (NaN)
    flows = {
        "c": fetch(answers, float, within=(0, 10), otherwise=float("nan")),
        "city": fetch(data["city"].tolist(), str, otherwise="Graz"),
        "known": fetch(data["known"].tolist(), bool),
    }
    opinion = flour.model("model")(row()["a", "b"], **flows)
    order = [flows[name] for name in ("city", "known", "c")]
    whole = runtime.predict("model", data)
    asked = check(runtime, flour.until_sure(opinion["label"], *order), whole["label"], data)
    assert asked[0] >= asked[1] >= asked[2]
    assert asked[2] < ROWS / 2
    runtime.unregister("sure")
    likely = opinion["probabilities"]["yes"] > 0.8
    check(runtime, flour.until_sure(likely, *order), whole["probabilities"][:, 1] > 0.8, data)


def test_a_graph_written_as_text_or_saved(runtime: Runtime, tmp_path: Path) -> None:
    x = flour.vector("x", 2)
    runtime.register("risk", x.logistic_classifier([[1.0, -1.0]], 0.0, classes=["no", "yes"]))
    text = """
[inputs]
age = "number"

[nodes.debt]
fetch = "tests.runtime.graph.test_until_sure:debt"
reads = "age"
gives = "number"
within = [0, 1]

[nodes.risk]
model = "risk"
reads = ["age", "debt"]

[outputs]
label = "until_sure(risk.label, debt)"
"""
    (tmp_path / "graph.toml").write_text(text)
    graph = flour.load_graph(tmp_path / "graph.toml", allow_python=True)
    flour.save_graph(graph, tmp_path / "saved.graph")
    for number, each in enumerate(
        [graph, flour.load_graph(tmp_path / "saved.graph", allow_python=True)]
    ):
        runtime.register(f"sure{number}", each, background=False)
        assert runtime.predict(f"sure{number}", {"age": -0.5}) == {"label": "no"}
        assert runtime.predict(f"sure{number}", {"age": 2.0}) == {"label": "yes"}
        with pytest.raises(NodeFailed):
            runtime.predict(f"sure{number}", {"age": 0.5})


async def debt(age: float) -> float:
    return 100.0 * age


def refused(runtime: Runtime, label: flour.Flow, *fetches: flour.Flow) -> str:
    with pytest.raises(ParameterError) as caught:
        runtime.register("sure", flour.outputs(label=flour.until_sure(label, *fetches)))
    assert "test_until_sure.py" in str(caught.value.where)
    return str(caught.value)


def test_what_cannot_be_sure_is_refused_when_it_is_built(runtime: Runtime) -> None:
    runtime.register("linear", pretzel.compile(LogisticRegression().fit(X[:500], LABEL[:500])))
    mixed = make_pipeline(PCA(3), LogisticRegression()).fit(X[:500], LABEL[:500])
    runtime.register("mixed", pretzel.compile(mixed))
    wide = fetch(X[:, 2:], flour.Vector(3))
    narrow = fetch(X[:, 2:], flour.Vector(3), within=(0, 10))
    free = flour.model("linear")(row()["a", "b"], wide)
    bound = flour.model("linear")(row()["a", "b"], narrow)
    said = refused(runtime, bound["probabilities"], narrow)
    assert "only a class" in said
    assert "probabilities and values need all columns" in said
    assert "only a class" in refused(runtime, bound)
    assert "within=(0, 100)" in refused(runtime, free["label"])
    assert "load" in refused(runtime, bound["label"], wide)
    assert "no fetch" in refused(
        runtime, flour.model("linear")(row()["a", "b"], row()["a", "b", "a"])["label"]
    )
    assert "columns no step mixes" in refused(
        runtime, flour.model("mixed")(row()["a", "b"], narrow)["label"]
    )


@pytest.mark.parametrize("together", [False, True])
def test_numbers_outside_of_a_range_are_no_answers(runtime: Runtime, *, together: bool) -> None:
    async def load(value: Any) -> Any:
        return value

    x = flour.scalar("x", "float64")
    plain = flour.fetch(load, x, gives=float, within=(0, 1), together=together)
    spare = flour.fetch(load, x, gives=float, within=(0, 1), together=together, otherwise=-1.0)
    runtime.register("plain", flour.outputs(y=plain), background=False)
    runtime.register("spare", flour.outputs(y=spare), background=False)
    assert runtime.predict("plain", {"x": [0.0, 1.0]})["y"].tolist() == [0.0, 1.0]
    for value in (1.5, float("nan")):
        with pytest.raises(NodeFailed, match="within"):
            runtime.predict("plain", {"x": [0.5, value]})
        assert runtime.predict("spare", {"x": [value]})["y"].tolist() == [-1.0]


@pytest.mark.parametrize(
    ("kind", "within"),
    [(float, (1, 0)), (float, (0, np.inf)), (str, (0, 1)), (flour.Vector(3), ([0, 0], [1, 1]))],
)
def test_ranges_that_are_none(kind: Any, within: Any) -> None:
    with pytest.raises(ParameterError, match="within"):
        fetch([], kind, within=within)
