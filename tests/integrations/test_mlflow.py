"""Plans as MLflow's models, and MLflow's models as plans."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import flour
import oven
import runtime.bulk as pretzel
from runtime import Runtime
from runtime.cli import main
from runtime.http import Server, ServerSettings
from runtime.repository import Repository
from tests.house import ROOT
from tests.runtime.bulk.conftest import Known

pytestmark = pytest.mark.integrations


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return MLflow, with its runs in a folder of these tests: making its tables takes seconds."""
    module = pytest.importorskip("mlflow")
    folder = tmp_path_factory.mktemp("mlflow")
    module.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    module.set_experiment(experiment_id=module.create_experiment("e", (folder / "runs").as_uri()))
    return module


def scores(rows: Any) -> list[float]:
    """Return the probabilities of the first class."""
    return [float(value) for value in pd.DataFrame(rows)["probabilities_0"]]


def test_a_run_keeps_a_plan(mlflow: Any, one: Known) -> None:
    with mlflow.start_run():
        address = pretzel.mlflow.log_model(one.plan, "fraud").model_uri
    frame = one.frame.drop(columns="row")
    wanted = pretzel.pandas.predict(one.plan, frame)
    loaded = pretzel.mlflow.load_model(address)
    assert pretzel.pandas.predict(loaded, frame).equals(wanted)
    assert mlflow.pyfunc.load_model(address).predict(frame).equals(wanted)


@pytest.mark.usefixtures("mlflow")
def test_both_servers_run_the_folder(one: Known, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "fraud"
    pretzel.mlflow.save_model(one.plan, folder)
    rows, output = tmp_path / "rows.csv", tmp_path / "answers.json"
    frame = one.frame.drop(columns="row").dropna().iloc[:50]
    frame.to_csv(rows, index=False)
    command = [sys.executable, "-m", "mlflow", "models", "predict", "-m", str(folder)]
    command += ["-i", str(rows), "-t", "csv", "-o", str(output), "--env-manager", "local"]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    made = json.loads(output.read_text("utf-8"))["predictions"]
    assert scores(made) == scores(pretzel.pandas.predict(one.plan, frame))
    with Runtime() as runtime, Repository(folder.parent, runtime) as models:
        models.load_all()
        found = runtime.predict("fraud", frame)["probabilities"]
    assert np.array_equal(found[:, 0], scores(made))


@pytest.mark.usefixtures("mlflow")
@pytest.mark.parametrize("name", ["vector", "text"])
def test_rows_without_names_of_columns(name: str, tmp_path: Path) -> None:
    """Arrays for a plan of rows of numbers, lists of documents for one of documents."""
    from mlflow import pyfunc
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    x: Any = np.random.default_rng(0).normal(size=(40, 3))
    steps: list[Any] = [LogisticRegression()]
    if name == "text":
        x = ["good thing", "bad thing"] * 20
        steps.insert(0, TfidfVectorizer())
    model = make_pipeline(*steps).fit(x, np.arange(40) % 2)
    pretzel.mlflow.save_model(flour.from_sklearn(model), tmp_path / "model")
    loaded = pyfunc.load_model(str(tmp_path / "model"))
    columns = ["a", "b", "c"] if name == "vector" else ["review"]
    for rows in (x, pd.DataFrame(x, columns=columns)):
        made = loaded.predict(rows)
        assert np.allclose(made["probabilities_1"], model.predict_proba(x)[:, 1], 1e-9)


@pytest.mark.usefixtures("mlflow")
def test_the_signature_has_the_answers(one: Known, tmp_path: Path) -> None:
    from mlflow import pyfunc

    frame = one.frame.drop(columns="row")
    pretzel.mlflow.save_model(one.plan, tmp_path / "m", input_example=frame[:3])
    loaded = pyfunc.load_model(str(tmp_path / "m"))
    wanted = pretzel.pandas.predict(one.plan, frame[:3])
    assert loaded.metadata.signature.outputs.input_names() == list(wanted)
    assert loaded.metadata.saved_input_example_info is not None
    more: dict[str, Any] = {"nonsense": 1}
    with pytest.raises(TypeError, match="nonsense"):
        pretzel.mlflow.save_model(one.plan, tmp_path / "n", **more)


@pytest.mark.usefixtures("mlflow")
def test_dtypes_in_files_of_skops() -> None:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import KBinsDiscretizer
    from skops import io

    rows = np.arange(30.0).reshape(-1, 1)
    for model in (SimpleImputer(), KBinsDiscretizer(3, encode="ordinal")):
        program = flour.from_skops(io.dumps(model.fit(rows)))
        (made,) = oven.bake(program).run(rows).values()
        assert np.array_equal(made, model.transform(rows))


def flavours() -> list[Any]:
    """Return a model for each of MLflow's flavours, how it is saved, and its answers."""
    return [
        "sklearn",
        "sklearn_skops",
        "lightgbm",
        "lightgbm_skops",
        "lightgbm_booster",
        "xgboost",
        "onnx",
    ]


def how(flavour: str) -> dict[str, str]:
    """Return the options of saving: MLflow writes files of skops unless it is told otherwise."""
    pickled = flavour in ("sklearn", "lightgbm")
    return {"serialization_format": "cloudpickle"} if pickled else {}


@pytest.mark.usefixtures("mlflow")
def test_types_that_skops_does_not_know_are_refused() -> None:
    from sklearn.pipeline import make_pipeline
    from skops import io

    from flour.core.errors import ImportRefused
    from tests.integrations.conftest import Stranger

    raw = io.dumps(make_pipeline(Stranger()))
    with pytest.raises(ImportRefused) as told:
        flour.from_skops(raw)
    assert "sample=" in str(told.value.hint)
    with pytest.raises(ImportRefused, match="cannot be read"):
        flour.from_skops(raw[:100])


@pytest.mark.parametrize("flavour", flavours())
def test_models_of_other_flavours_are_imported(mlflow: Any, tmp_path: Path, flavour: str) -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = (x[:, 0] > 0).astype(int)
    folder = tmp_path / "model"
    if flavour.startswith("sklearn"):
        model = LogisticRegression().fit(x, y)
        mlflow.sklearn.save_model(model, folder, **how(flavour))
        wanted = np.asarray(model.predict_proba(x))[:, 1]
    elif flavour.startswith("lightgbm"):
        import lightgbm

        model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(x, y)
        wanted = np.asarray(model.predict_proba(x))[:, 1]
        saved = model.booster_ if flavour.endswith("booster") else model
        mlflow.lightgbm.save_model(saved, folder, **how(flavour))
    elif flavour == "xgboost":
        import xgboost

        model = xgboost.XGBClassifier(n_estimators=5).fit(x, y)
        mlflow.xgboost.save_model(model, folder)
        wanted = np.asarray(model.predict_proba(x))[:, 1]
    else:
        from skl2onnx import to_onnx

        model = LogisticRegression().fit(x, y)
        mlflow.onnx.save_model(to_onnx(model, x[:1], options={"zipmap": False}), folder)
        wanted = np.asarray(model.predict_proba(x))[:, 1]
    trusted = "serialization_format" in how(flavour)
    plan = oven.bake(pretzel.mlflow.import_model(folder, trust_pickle=trusted)).wait()
    answers = [np.asarray(each, float) for each in plan.run(x).values() if each.dtype != object]
    near = [each for each in answers if np.allclose(np.ravel(each.T)[-len(x) :], wanted, 1e-5)]
    assert near
    words = ["import", str(folder), "--into", str(tmp_path / "models"), "--name", "m"]
    assert main([*words, *(["--trust-pickle"] if trusted else [])]) == 0
    assert list((tmp_path / "models").iterdir())


def test_mlflows_client_asks_our_server(mlflow: Any, one: Known) -> None:
    assert mlflow  # it is there
    from mlflow.pyfunc.scoring_server.client import ScoringServerClient

    with Runtime(executors=1) as served, Server(served, ServerSettings(port=0)) as server:
        with pytest.raises(Exception, match="no model is loaded"):
            ScoringServerClient("127.0.0.1", server.port).invoke(np.zeros((2, 4)))
        served.register("fraud", one.plan)
        client = ScoringServerClient("127.0.0.1", server.port)
        client.ping()
        assert client.get_version()
        frame = one.frame.drop(columns="row").dropna().iloc[:20]
        wanted = pretzel.pandas.predict(one.plan, frame)
        answers = client.invoke(frame).get_predictions()
        assert answers.iloc[:, 0].tolist() == wanted["label"].tolist()
