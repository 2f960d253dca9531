"""The public package: its names, its models from every source, and how it is served."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import joblib
import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import flour
import pretzel
from flour.core.errors import FlourError
from pretzel.model import METHODS
from runtime.bulk.plans import open_plan
from runtime.errors import NotOffered, Unfaithful
from tests.house import run_python, until

#: Names that are integrations with a library of this name.
LIBRARIES = {"duckdb", "mlflow", "pandas", "polars", "ray", "spark"}
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(120, 4))
Y = (X[:, 0] + X[:, 1] > 0).astype(int)


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)


def test_names_are_few_documented_and_there() -> None:
    assert len(pretzel.__all__) <= 25
    assert dir(pretzel) == sorted(pretzel.__all__)
    installed = [name for name in pretzel.__all__ if name not in LIBRARIES or find_spec(name)]
    for name in installed:
        assert (getattr(pretzel, name).__doc__ or "").strip(), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pretzel.nothing


def test_importing_it_imports_little() -> None:
    run_python(
        "import sys, pretzel\n"
        "late = ('sklearn', 'onnx', 'runtime.http', 'runtime.service', 'pretzel.model', 'pandas')\n"
        "assert not [name for name in late if name in sys.modules]\n"
    )


def test_a_package_of_another_distribution_is_named(tmp_path: Path) -> None:
    """`scheduler` is a name that others use as well; in place of ours or before it, it is found."""
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "__init__.py").write_text("")
    run_python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "try:\n"
        "    import pretzel\n"
        "except ImportError as problem:\n"
        "    assert \"the package 'scheduler' is not Pretzel's own\" in str(problem), problem\n"
        "    assert 'rename it' in str(problem)\n"
        "else:\n"
        "    raise AssertionError('nothing was said')\n"
        "assert 'scheduler' not in sys.modules, 'it runs no code of the other one'\n"
    )


def test_an_estimator_answers_as_before(pipeline: Any) -> None:
    model = pretzel.compile(pipeline, verify=X)
    assert model.predict(X).tolist() == pipeline.predict(X).tolist()
    np.testing.assert_allclose(model.predict_proba(X), pipeline.predict_proba(X), rtol=1e-12)
    assert model.run(X[0])["label"] == model.run(X[:2])["label"][0] == pipeline.predict(X[:1])[0]
    assert set(model.run(X[:2])) == {"label", "probabilities", "scores"}
    assert "stages" in model.explain()
    assert model.attribute(X[:3]).to_dict()
    with pytest.raises(NotOffered, match="has no transform"):
        _ = model.transform


def test_a_saved_model_is_the_same(pipeline: Any, tmp_path: Path) -> None:
    path = tmp_path / "churn.pretzel"
    pretzel.compile(pipeline).save(path)
    for model in (pretzel.load(path), pretzel.compile(path)):
        np.testing.assert_allclose(model.predict_proba(X), pipeline.predict_proba(X), rtol=1e-12)
    with pytest.raises(FlourError, match="no original to verify"):
        pretzel.compile(path, verify=X)


def test_a_file_whose_code_is_there_is_not_baked_again(pipeline: Any, tmp_path: Path) -> None:
    """Neither what is not asked for nor the program is made; answers keep every bit."""
    path = tmp_path / "churn.pretzel"
    pretzel.compile(pipeline).wait().save(path)
    methods = ("predict", "predict_proba", "predict_log_proba", "decision_function")
    first = pretzel.load(path)
    assert not first.parts
    assert not hasattr(first, "transform")
    want = {name: getattr(first, name)(X) for name in methods}
    first.wait()
    again = pretzel.load(path)
    for name in methods:
        assert getattr(again, name)(X).tobytes() == want[name].tobytes()
    assert not any(plan.program.in_memory for plan in (again.plan, *again.parts.values()))
    assert [part.flow.digest for part in again.parts.values()] == [
        part.flow.digest for part in first.parts.values()
    ]
    assert pretzel.load(path).wait().parts.keys() == {"label", "probabilities", "scores"}


def test_models_of_files_share_what_they_have_in_common(tmp_path: Path) -> None:
    """In a process of its own: this one has the vectoriser already."""
    texts = [" ".join(f"word{n * each % 9001}" for each in range(80)) for n in range(1, 200)]
    words, target = TfidfVectorizer().fit(texts), np.arange(len(texts)) % 2
    rows = words.transform(texts)
    for number in range(12):
        last = SGDClassifier(random_state=number, max_iter=2, tol=None).fit(rows, target)
        pretzel.compile(make_pipeline(words, last)).save(tmp_path / f"{number}.pretzel")
    size = (tmp_path / "0.pretzel").stat().st_size
    run_python(
        "import pretzel, sys, tracemalloc\n"
        "load = lambda n: pretzel.load(f'{sys.argv[1]}/{n}.pretzel')\n"
        "models = [load(0), load(1)]\n"
        "tracemalloc.start()\n"
        "models += map(load, range(2, 12))\n"
        "each = tracemalloc.get_traced_memory()[0] / 10\n"
        "assert each < 0.4 * int(sys.argv[2]), each\n",
        *(str(tmp_path), str(size)),
    )


def test_a_model_stands_for_its_plan_everywhere(pipeline: Any, tmp_path: Path) -> None:
    model = pretzel.compile(pipeline)
    want = pipeline.predict(X).tolist()
    with pretzel.Runtime() as runtime:
        runtime.register("churn", model)
        assert runtime.predict("churn", X)["label"].tolist() == want
    assert open_plan(model) is model.plan
    assert pretzel.to_onnx(model) == pretzel.to_onnx(model.flow)
    model.save(tmp_path / "churn.pretzel", training=X)
    saved = pretzel.load(tmp_path / "churn.pretzel")
    assert saved.plan.training()["rows"] == len(X)


def halved(rows: Any) -> Any:
    return rows / 2.0


def test_a_pickle_is_read_as_data(pipeline: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.joblib"
    joblib.dump(pipeline, path)
    model = pretzel.compile(path)
    offered = [name for name in METHODS if hasattr(model, name)]
    assert offered == [name for name in METHODS if hasattr(pipeline, name)]
    for name in offered:
        wanted = getattr(pipeline, name)(X)
        np.testing.assert_allclose(getattr(model, name)(X), wanted, rtol=1e-12)
    assert (model.n_features_in_, list(model.classes_)) == (4, list(pipeline.classes_))
    with pytest.raises(FlourError, match="asks the original estimator") as told:
        pretzel.compile(path, verify=X)
    assert "trust_pickle=True" in str(told.value.hint)
    assert pretzel.compile(str(path), verify=X, trust_pickle=True).n_features_in_ == 4


def test_steps_that_stay_python_need_trust(pipeline: Any, tmp_path: Path) -> None:
    fitted = make_pipeline(FunctionTransformer(halved), *pipeline).fit(X, Y)
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(fitted))
    for trust in (False, True):  # and to allow no Python is to allow none
        with pytest.raises(FlourError, match="Python") as told:
            pretzel.compile(path, X[:5], trust_pickle=trust)
        assert "step 'functiontransformer'" in str(told.value)
    with pytest.raises(FlourError, match=r"test_pretzel\.halved") as told:
        pretzel.compile(path, X[:5], allow_python=True)
    assert "trust_pickle=True" in str(told.value.hint)
    model = pretzel.compile(path, X[:5], verify=X, allow_python=True, trust_pickle=True)
    np.testing.assert_allclose(model.predict_proba(X), fitted.predict_proba(X), rtol=1e-12)


def test_boosters_and_their_files(tmp_path: Path) -> None:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    params = {"objective": "binary", "verbose": -1, "num_threads": 1}
    light = lightgbm.train(params, lightgbm.Dataset(X, Y), num_boost_round=5)
    tall = xgboost.train({"nthread": 1}, xgboost.DMatrix(X, Y), num_boost_round=5)
    light.save_model(tmp_path / "light.txt")
    tall.save_model(tmp_path / "tall.json")
    (tmp_path / "light.pkl").write_bytes(pickle.dumps(light))
    (tmp_path / "both.pkl").write_bytes(pickle.dumps({"tall": tall, "light": light}))
    for source in (light, *(tmp_path / name for name in ("light.txt", "light.pkl"))):
        model = pretzel.compile(source, verify=X, trust_pickle=True)
        np.testing.assert_allclose(model.predict(X), light.predict(X), rtol=1e-12)
    for source in (tall, tmp_path / "tall.json", tmp_path / "both.pkl#tall"):
        model = pretzel.compile(source, verify=X, trust_pickle=True)
        want = tall.predict(xgboost.DMatrix(X))
        np.testing.assert_allclose(model.predict(X.astype(np.float32)), want, rtol=1e-6)
    assert pretzel.compile(tmp_path / "tall.json").wait().plan.variants.ready_for(X)  # of float64


def test_onnx_models(pipeline: Any) -> None:
    onnx = pytest.importorskip("onnx")
    data = pretzel.to_onnx(pretzel.from_sklearn(pipeline))
    for source in (data, onnx.ModelProto.FromString(data)):
        assert (
            pretzel.compile(source).run(X[:5])["label"].tolist() == pipeline.predict(X[:5]).tolist()
        )


def test_a_program_has_no_original() -> None:
    program = flour.vector("x", 2).sum().named("value")
    assert pretzel.compile(program).predict([[1.0, 2.0]]).tolist() == [3.0]
    with pytest.raises(FlourError, match="no original to verify"):
        pretzel.compile(program, verify=[[1.0, 2.0]])


def test_an_original_that_answers_otherwise_is_refused() -> None:
    odd = LogisticRegression().fit(X, Y)
    odd.predict = lambda rows: 1 - LogisticRegression.predict(odd, rows)
    with pytest.raises(Unfaithful, match="does not answer as LogisticRegression"):
        pretzel.compile(odd, verify=X)


def test_models_are_served_by_name_and_from_a_folder(pipeline: Any, tmp_path: Path) -> None:
    model = pretzel.compile(pipeline)
    (tmp_path / "models" / "churn").mkdir(parents=True)
    model.save(tmp_path / "models" / "churn" / "churn.pretzel")
    row = json.dumps(X[0].tolist()).encode()
    for models in ({"churn": model}, tmp_path / "models"):
        with pretzel.serve(models, port=0) as server:
            with urlopen(server.url + "/predict/churn", data=row) as response:
                answer = json.load(response)
            assert server.runtime.predict("churn", X[0])["label"] == answer["label"]
        assert answer["label"] == pipeline.predict(X[:1])[0]


def test_a_setting_that_does_not_exist_leaves_nothing_running(pipeline: Any) -> None:
    with pytest.raises(FlourError, match="no option 'prot'") as caught:
        pretzel.serve({"churn": pipeline}, prot=8000)
    assert "port" in str(caught.value.hint)
    with pytest.raises(pretzel.PretzelError):
        pretzel.serve({"churn": "no such file.pretzel"}, port=0)
    assert "pretzel-http" not in {each.name for each in threading.enumerate()}


def test_what_compile_takes_is_served(pipeline: Any, tmp_path: Path) -> None:
    joblib.dump(pipeline, tmp_path / "churn.joblib")
    row, want = X[0].tolist(), pipeline.predict(X[:1])[0]
    for models in ({"churn": pipeline}, {"churn": tmp_path / "churn.joblib"}, tmp_path):
        with pretzel.serve(models, port=0) as server:
            assert server.runtime.predict("churn", row)["label"] == want


def test_a_refused_model_of_a_folder_is_logged(
    pipeline: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pretzel.compile(pipeline).save(tmp_path / "good.pretzel")
    (tmp_path / "bad.pretzel").write_bytes(b"no plan at all")
    with pretzel.serve(tmp_path, port=0) as server:
        assert server.runtime.predict("good", X[0])["label"] in (0, 1)
    assert "bad@1 is not served: " in caplog.text


def catches(process: int, number: int) -> bool:
    """True if a process has a handler for a signal."""
    status = Path(f"/proc/{process}/status").read_text("ascii")
    return bool(int(status.split("SigCgt:")[1].split()[0], 16) >> (number - 1) & 1)


def test_waiting_ends_with_a_signal(pipeline: Any, tmp_path: Path) -> None:
    pretzel.compile(pipeline).save(tmp_path / "churn.pretzel")
    code = (
        "import sys, pretzel\n"
        "server = pretzel.serve(sys.argv[1], port=0)\n"
        "print(server.url, flush=True)\n"
        "server.wait()\n"
        "print('closed')\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urlopen(url + "/v2/health/ready") as response:
            assert response.status == 200
        until(lambda: catches(process.pid, signal.SIGTERM))
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "closed\n"
    assert process.returncode == 0


def test_the_plan_of_a_file_is_kept_as_it_is(pipeline: Any, tmp_path: Path) -> None:
    """Compiling it again would lose how exact it is, and what it knows of its training."""
    path = tmp_path / "exact.pretzel"
    pretzel.compile(pipeline, exact=True).save(path)
    assert pretzel.compile(path).plan.exact
    assert pretzel.compile(path, on_missing="answer").plan.exact
    plan = pretzel.compile(pipeline).plan
    assert pretzel.compile(plan).plan is plan
    assert pretzel.compile(plan, exact=True).plan.exact
