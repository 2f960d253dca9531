"""NaN and infinity x every form of the data x every entry: answered or refused as by the original.

A row that the original refuses was answered: with NaN, or with a label like any other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor, StackingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import flour
import oven
from flour.core.errors import InputError
from oven import Plan
from pretzel import compile as compile_model
from runtime import Runtime
from runtime.http import Server, ServerSettings
from tests.forms import ODD, blocks, frame_of, single_rows, with_value
from tests.runtime.cli.conftest import pretzel  # noqa: F401 (a fixture)
from tests.runtime.http.client import Client

TRAIN = frame_of(("float64", "float64", "float64", "float64"), 60, seed=1)
WORDS = frame_of(("float64", "float64", "float64", "string"), 60, seed=1)
FIRST, SECOND, THIRD = TRAIN.columns[:3]
ROW, SHOWN = 4, 7


def some_imputed(words: list[str]) -> ColumnTransformer:
    """An imputer for one column, a scaler for another, the third as it is."""
    parts = [("filled", SimpleImputer(), [FIRST]), ("scaled", StandardScaler(), [SECOND])]
    plain = ("plain", "passthrough", [THIRD])
    encoded = ("words", OneHotEncoder(sparse_output=False), words)
    return ColumnTransformer([*parts, plain, *([encoded] if words else [])])


def scaled_apart() -> ColumnTransformer:
    """A scaler for each column, which each refuse what is not finite."""
    names = TRAIN.columns
    return ColumnTransformer([(name, StandardScaler(), [name]) for name in names])


ORIGINALS: dict[str, Any] = {
    "scalers of columns and linear": make_pipeline(scaled_apart(), LinearRegression()),
    "stacked": StackingRegressor([("a", LinearRegression()), ("b", Ridge())], Ridge()),
    "linear": LinearRegression(),
    "scaler and linear": make_pipeline(StandardScaler(), LinearRegression()),
    "unused column": Lasso(alpha=0.5),
    "imputer and linear": make_pipeline(SimpleImputer(), LinearRegression()),
    "imputer of a column": make_pipeline(some_imputed([]), LinearRegression()),
    "imputer beside words": make_pipeline(some_imputed([WORDS.columns[3]]), LinearRegression()),
    "imputer and forest": make_pipeline(
        SimpleImputer(), RandomForestRegressor(3, max_depth=3, random_state=0)
    ),
    "forest": RandomForestRegressor(3, max_depth=3, random_state=0),
    "scaler and boosting": make_pipeline(StandardScaler(), HistGradientBoostingRegressor()),
    "logarithm": make_pipeline(FunctionTransformer(np.log), LinearRegression()),
}


class Model(NamedTuple):
    """An original with its plan and the rows that both are asked for."""

    original: Any
    frame: Any
    plan: Plan

    def want(self, frame: Any) -> Any:
        """The original's answers; None where it refuses the rows."""
        with np.errstate(all="ignore"):
            try:
                return self.original.predict(frame)
            except ValueError:
                return None

    def asked(self) -> Iterator[tuple[str, Any, Any]]:
        """Frames with an odd value somewhere, and what the original answers.

        Every column has NaN once, and in turns infinity and a number beyond float32.
        """
        numbers = [name for name in self.frame.columns if name.endswith("float64")]
        nan, *others = ODD
        for place, column in enumerate(numbers):
            for called in (nan, others[place % len(others)]):
                frame = with_value(self.frame, ROW, column, ODD[called])
                yield f"{called} in {column}", frame, self.want(frame)


@pytest.fixture(scope="module", params=ORIGINALS)
def model(request: pytest.FixtureRequest) -> Model:
    train = WORDS if "words" in request.param else TRAIN
    if request.param == "logarithm":
        train = train.abs() + 1.0
    target = train[FIRST] + 3 * train[SECOND]
    original = ORIGINALS[request.param].fit(train, target)
    frame = train.head(SHOWN)
    return Model(original, frame, oven.bake(flour.from_sklearn(original, train)))


Ask = Callable[[Any], Any]


def held(ask: Ask, data: Any, want: Any, about: str) -> None:
    """The data is answered as is wanted, or refused where None is wanted."""
    if want is None:
        with pytest.raises(InputError, match=r"refuses (NaN|infinity|a number beyond float32)"):
            pytest.fail(f"{about} is answered: {ask(data)}")
    else:
        np.testing.assert_allclose(np.ravel(ask(data)), want, rtol=1e-9, atol=1e-9, err_msg=about)


def asked_of(plan: Plan, served: Runtime) -> dict[str, Ask]:
    """Every way to ask for a row or a block."""
    entry = plan.entry()
    return {
        "plan.entry": lambda data: entry(data)[0],
        "predict": lambda data: served.predict("m", data)["value"],
        "submit": lambda data: served.submit("m", data).result()["value"],
        "apredict": lambda data: asyncio.run(served.apredict("m", data))["value"],
    }


@pytest.mark.rules
def test_a_sum_checks_all_that_it_adds_up() -> None:
    apart = ORIGINALS["scalers of columns and linear"].fit(TRAIN, TRAIN[FIRST])
    (stage,) = oven.bake(flour.from_sklearn(apart, TRAIN)).program.stages
    assert stage.source.count("* 0.0") == 1
    assert stage.source.count("return 1") == 1


def test_in_process(model: Model) -> None:
    plan = model.plan
    compiled = compile_model(model.original, model.frame)
    with Runtime(executors=1) as served:
        served.register("m", plan)
        single = asked_of(plan, served)
        every: dict[str, Ask] = single | {
            "reference": lambda data: plan.flow.reference(data)["value"],
            "plan.run": lambda data: plan.run(data)["value"],
            "compile": compiled.predict,
            "predict_batch": lambda data: next(iter(served.predict_batch("m", [data])))["value"],
        }
        for odd, frame, want in model.asked():
            for form, data in blocks(frame):
                for name, ask in every.items():
                    held(ask, data, want, f"{name}, {odd}, {form}")
            one = None if want is None else want[ROW : ROW + 1]
            for form, row in single_rows(frame, ROW):
                for name, ask in single.items():
                    held(ask, row, one, f"{name}, {odd}, {form}")


def test_a_plan_saved_and_loaded_refuses_as_before(model: Model, tmp_path: Path) -> None:
    model.plan.save(tmp_path / "m.pretzel")
    for _ in range(2):  # the second time from its image
        loaded = oven.load(tmp_path / "m.pretzel")
        for odd, frame, want in model.asked():
            held(lambda data: loaded.run(data)["value"], frame, want, odd)  # noqa: B023 (now)


def test_narrow_numbers(model: Model) -> None:
    """Data of float32 has a plan of its own, which refuses the same."""
    for odd, frame, _ in model.asked():
        with np.errstate(over="ignore"):
            narrow = {name: np.float32 for name in frame if name.endswith("float64")}
            numbers = frame.astype(narrow)
        want = model.want(numbers)
        if want is None:
            held(model.plan.run, numbers, None, odd)
        else:
            assert len(model.plan.run(numbers)["value"]) == SHOWN


def test_asked_to_answer_it_answers(model: Model) -> None:
    plan = oven.bake(model.plan.flow, on_missing="answer")
    compiled = compile_model(model.original, model.frame, on_missing="answer")
    for odd, frame, want in model.asked():
        for got in (plan.run(frame)["value"], compiled.predict(frame)):
            if want is not None:
                np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, err_msg=odd)


def test_over_http(model: Model) -> None:
    with (
        Runtime(executors=1) as served,
        Server(served, ServerSettings(port=0, max_unread=0.0)) as server,
    ):
        served.register("m", model.plan)
        client = Client(server.port)
        for odd, frame, want in model.asked():
            rows = frame.to_dict(orient="records")
            alone = None if want is None else want[ROW]
            for data, expected in ((rows, want), (rows[ROW], alone)):
                reply = client.post("/predict/m", json.dumps(data).encode())
                if expected is None:
                    assert reply.status == 400, (odd, reply.body)
                    assert "refuses" in reply.json["error"], odd
                else:
                    assert reply.status == 200, (odd, reply.body)


def test_from_files(pretzel: Any, model: Model, tmp_path: Path) -> None:  # noqa: F811
    model.plan.save(tmp_path / "m.pretzel")
    for odd, frame, want in list(model.asked())[::3]:
        frame.to_csv(tmp_path / "rows.csv", index=False)
        ran = pretzel("predict", tmp_path / "m.pretzel", tmp_path / "rows.csv")
        assert (ran.code == 0) == (want is not None), (odd, ran.err)
        if want is None:
            assert "refuses" in ran.err
            assert f"rows.csv:{ROW + 2}" in ran.err
