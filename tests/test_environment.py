"""The core of the product in the environment that there is, with all that it may lack.

scripts/test-environments runs this on the oldest and the newest of each library.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import flour
import oven
import runtime
from flour.core.errors import OtherVersionWarning
from flour.core.time_limit import time_limit
from flour.sklearn.file import read_as_data
from oven.entry import interpreter
from tests.flour.old_models.make import FOLDER, ROWS, TWO, WORDS, X

OLD: dict[str, dict[str, Any]] = json.loads((FOLDER / "answers.json").read_text())
OLD = {name: answers for name, answers in OLD.items() if "towns" not in name}  # it is of a frame
OUTPUTS = {"predict": ("label", "value"), "predict_proba": ("probabilities",)}
OUTPUTS["transform"] = ("features",)
#: Modules and classes of scikit-learn, with parameters that all versions have.
ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "LogisticRegression": ("linear_model", {}),
    "RidgeClassifier": ("linear_model", {}),
    "PoissonRegressor": ("linear_model", {}),
    "LinearSVC": ("svm", {}),
    "SVC": ("svm", {}),
    "GaussianNB": ("naive_bayes", {}),
    "KNeighborsClassifier": ("neighbors", {}),
    "DecisionTreeClassifier": ("tree", {"max_depth": 3}),
    "RandomForestRegressor": ("ensemble", {"n_estimators": 3}),
    "AdaBoostClassifier": ("ensemble", {"n_estimators": 3}),
    "GradientBoostingClassifier": ("ensemble", {"n_estimators": 3}),
    "HistGradientBoostingRegressor": ("ensemble", {"max_iter": 3}),
    "IsolationForest": ("ensemble", {"n_estimators": 3}),
    "MLPClassifier": ("neural_network", {"max_iter": 3}),
    "KMeans": ("cluster", {"n_clusters": 2, "n_init": 1}),
    "PCA": ("decomposition", {"n_components": 2}),
    "PolynomialFeatures": ("preprocessing", {}),
    "KBinsDiscretizer": ("preprocessing", {"n_bins": 3}),
    "SimpleImputer": ("impute", {}),
    "KNNImputer": ("impute", {}),
}


def test_objects_of_this_interpreter_and_this_numpy_are_read_by_machine_code() -> None:
    assert interpreter.object_layout() is not None
    assert interpreter.address("PyArray_Empty")


def test_a_time_limit_ends_its_block_and_passes_on_who_else_cancels() -> None:
    async def within(seconds: float | None, work: float) -> bool:
        async with time_limit(seconds) as limit:
            await asyncio.sleep(work)
        return limit.expired()

    async def cancelled() -> None:
        task = asyncio.ensure_future(within(60, 60))
        await asyncio.sleep(0)
        task.cancel()
        await task

    assert not asyncio.run(within(60, 0))
    assert not asyncio.run(within(None, 0))
    with pytest.raises(TimeoutError):
        asyncio.run(within(0.001, 60))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore")  # of the library, about itself
def test_an_estimator_answers_as_the_installed_library(name: str) -> None:
    pipeline = pytest.importorskip("sklearn.pipeline", reason="there is no scikit-learn")
    from sklearn.preprocessing import StandardScaler

    place, parameters = ESTIMATORS[name]
    module = pytest.importorskip(f"sklearn.{place}")
    fitted = pipeline.make_pipeline(StandardScaler(), getattr(module, name)(**parameters))
    fitted.fit(X, TWO)
    made = oven.bake(flour.from_sklearn(fitted)).run(ROWS)
    compared = 0
    for method, outputs in OUTPUTS.items():
        for output in {*outputs} & {*made} if hasattr(fitted, method) else ():
            want = getattr(fitted, method)(ROWS)
            got, want = (each.toarray() if hasattr(each, "toarray") else each
                         for each in (made[output], want))  # fmt: skip
            np.testing.assert_allclose(np.reshape(got, want.shape), want, rtol=1e-9, atol=1e-12)
            compared += 1
    assert compared


def test_what_an_estimator_refuses_is_refused() -> None:
    linear = pytest.importorskip("sklearn.linear_model", reason="there is no scikit-learn")
    plan = oven.bake(flour.from_sklearn(linear.Ridge().fit(X, TWO)))
    with pytest.raises(flour.FlourError, match="NaN"):
        plan.run([[np.nan, 0.0, 0.0]])


@pytest.mark.parametrize("name", OLD)
def test_a_model_of_an_older_library_needs_none(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherVersionWarning)
        read = read_as_data((FOLDER / name).read_bytes(), name)
        program = flour.from_sklearn(read, ROWS if "coded" in name else None)
    made = oven.bake(program).run(WORDS if name.endswith("words.pkl") else ROWS)
    for method, outputs in OUTPUTS.items():
        for output in {*outputs} & {*made} if method in OLD[name] else ():
            want = np.asarray(OLD[name][method])
            got = made[output].toarray() if hasattr(made[output], "toarray") else made[output]
            np.testing.assert_allclose(np.reshape(got, want.shape), want, rtol=1e-9, atol=1e-12)


def _program() -> flour.Flow:
    row = flour.record(age=float, country=str)
    home = flour.where(row["country"] == "DE", 1.0, flour.where(row["country"] == "FR", -1.0, 0.0))
    return flour.outputs(score=(row["age"] - 40.0) / 20.0 + 0.25 + home)


def test_a_program_is_native_saved_and_served(tmp_path: Any) -> None:
    plan = oven.bake(_program())
    assert all(stage.native for stage in plan.program.stages)
    plan.save(tmp_path / "score.plan")
    rows = [{"age": 30.0, "country": "FR"}, {"age": 50.0, "country": "ES"}]
    with runtime.Runtime() as serving:
        serving.register("score", oven.load(tmp_path / "score.plan"))
        np.testing.assert_array_equal(serving.predict("score", rows)["score"], [-1.25, 0.75])
        assert serving.predict("score", rows[0]) == {"score": -1.25}


def test_frames_of_this_pandas_are_read() -> None:
    pandas = pytest.importorskip("pandas", reason="there is no pandas")
    frame = pandas.DataFrame({"country": ["DE", "FR"], "age": [40.0, 30.0]})
    np.testing.assert_array_equal(oven.bake(_program()).run(frame)["score"], [1.25, -1.25])


def test_this_numba_compiles_to_the_same_bits() -> None:
    pytest.importorskip("numba", reason="there is no numba")
    rows = np.random.default_rng(0).normal(size=(100, 3))
    program = flour.vector("x", 3).linear([[0.1, 0.2, 0.3]], [0.4])
    ours, theirs = (oven.bake(program, compiler=each) for each in ("pretzel", "numba"))
    np.testing.assert_array_equal(ours.run(rows)["output"], theirs.run(rows)["output"])


@pytest.mark.skipif(find_spec("uvloop") is None, reason="there is no uvloop")
def test_serving_needs_no_library_that_trains_and_no_numba(tmp_path: Any) -> None:
    oven.bake(_program()).save(tmp_path / "score.plan")
    code = f"""
import sys
for name in ("numba", "sklearn", "scipy", "pandas", "joblib", "lightgbm", "xgboost", "onnx"):
    sys.modules[name] = None
import json, urllib.request
import pretzel
from oven.plans import background
background.BY_DEFAULT[0] = False
with pretzel.serve({{"score": pretzel.load({str(tmp_path / "score.plan")!r})}}, port=0) as serving:
    body = json.dumps({{"inputs": [
        {{"name": "age", "datatype": "FP64", "shape": [1], "data": [30.0]}},
        {{"name": "country", "datatype": "BYTES", "shape": [1], "data": ["FR"]}},
    ]}}).encode()
    address = serving.url + "/v2/models/score/infer"
    print(json.load(urllib.request.urlopen(address, body))["outputs"][0]["data"])
"""
    given = [sys.executable, "-W", "error", "-c", code]
    said = subprocess.run(given, check=True, timeout=120, stdout=subprocess.PIPE, text=True)
    assert said.stdout == "[-1.25]\n"
