"""Ready means that the next call compiles nothing, whatever form it comes in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oven.plans import background
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.wire.interfaces import ModelState
from tests.house import run_python
from tests.oven.plans.test_background import ByHand, unseen
from tests.runtime.http.client import Client

pytestmark = pytest.mark.once

#: A new process without packs: fitted models, and forms of data for each.
_MODELS = """
import json, sys
from pathlib import Path
from urllib.request import urlopen
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
import flour
import oven
from oven.compiler import cache

cache.RELEASED = Path("nowhere")
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 5))
y = (X[:, 0] > 0).astype(int)
frame = pd.DataFrame({"age": rng.normal(40, 9, 200), "city": rng.choice(["Bern", "Rome"], 200)})
docs = [" ".join(rng.choice(["ab", "cd", "ef"], 5)) for _ in range(200)]
models = {
    "linear": make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y),
    "trees": RandomForestClassifier(5, max_depth=3).fit(X, y),
    "table": make_pipeline(
        make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["city"])),
        LogisticRegression(),
    ).fit(frame, y),
    "text": make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(docs, y),
}
def forms(name, label):
    if name == "table":
        row, rows = frame.iloc[0].to_dict(), frame.head(5).to_dict("records")
        columns = {key: frame[key].to_numpy() for key in frame}
        return [row, rows, frame, columns, frame.to_dict("list"), [*row.values()]]
    if name == "text":
        return [docs[0], docs[:5], np.array(docs, object), {label: docs[:3]}]
    return [X[0], X[:7], X, X[0].tolist(), X[:5].tolist(), {label: X[:4]}, pd.DataFrame(X)]
"""

_PREDICT = """
from runtime import Runtime
from runtime.http import Server, ServerSettings

def body(data):
    data = data.to_dict("records") if isinstance(data, pd.DataFrame) else data
    return json.dumps(data, default=lambda array: array.tolist()).encode()

def asked(name, data):
    return [
        lambda: runtime.predict(name, data),
        lambda: runtime.predict(name, data, engine="batch"),
        lambda: runtime.submit(name, data).result(),
        lambda: [*runtime.predict_batch(name, [data])],
        lambda: runtime.endpoints.find(name).plan.entry()(data),
        lambda: urlopen(f"{server.url}/predict/{name}", data=body(data)).read(),
        lambda: urlopen(f"{server.url}/v2/models/{name}/ready").read(),
    ]

found = {}
with Runtime(executors=1) as runtime, Server(runtime, ServerSettings(port=0)) as server:
    for name, model in models.items():
        program = flour.from_sklearn(model, sample=frame if name == "table" else None)
        runtime.register(name, program)
    first = [runtime.predict(name, forms(name, "")[0]) for name in models]
    tiers = [each.tier for each in runtime.stats().versions]
    runtime.wait(300)
    while not server.service.ready().ready:
        pass
    before = cache.counters.compiled
    for name in models:
        (label, *_) = runtime.endpoints.find(name).inputs
        for data in forms(name, label):
            for call in asked(name, data) * 2:
                try:
                    call()
                except Exception as problem:  # this form is not for this model
                    assert "pandas" not in str(problem)
                now = cache.counters.compiled
                if now != before:
                    found[f"{name} {type(data)}"] = now - before
                    before = now
    native = type(runtime.predict).__name__
print(json.dumps([found, before, native, tiers]))
"""

_SESSIONS = """
import time
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from runtime.onnx.session import InferenceSession

found = {}
kinds = {"linear": ("X", FloatTensorType([None, 5])), "text": ("X", StringTensorType([None, 1]))}
kinds["trees"] = kinds["linear"]
for name, kind in kinds.items():
    for zipmap in (True, False):
        model = to_onnx(models[name], initial_types=[kind], options={"zipmap": zipmap})
        session = InferenceSession(model.SerializeToString())
        assert session.plan.wait(300).ready
        while not session.ready:
            time.sleep(0.001)
        before = cache.counters.compiled
        rows = np.array(docs, object)[:, None] if name == "text" else X.astype(np.float32)
        for many in (1, 3, 200):
            for names in (None, [session.get_outputs()[0].name]):
                session.run(names, {"X": rows[:many]})
                session.run(names, {"X": rows[:many].tolist()})
        if cache.counters.compiled != before:
            found[f"{name} {zipmap}"] = cache.counters.compiled - before
print(json.dumps([found, cache.counters.compiled]))
"""


def compiled(code: str, folder: Path) -> list[object]:
    """What a new process with an empty cache says of what it compiled."""
    environment = {"PRETZEL_CACHE": str(folder / "code"), "PYTHONWARNINGS": "ignore"}
    said = run_python(_MODELS + code, environment=environment, timeout=400)
    made: list[object] = json.loads(said.splitlines()[-1])
    return made


@pytest.mark.apart  # it compiles all there is, with a cache of its own
def test_once_a_runtime_is_ready_no_call_compiles(tmp_path: Path) -> None:
    found, all_code, native, tiers = compiled(_PREDICT, tmp_path)
    assert found == {}
    assert isinstance(all_code, int)
    assert all_code > 10, "nothing was compiled before, so nothing was shown"
    assert native == "builtin_function_or_method"
    assert tiers != [1, 1, 1, 1], "the definitions answered first"


@pytest.mark.apart  # it compiles all there is, with a cache of its own
def test_once_a_session_is_ready_no_run_compiles(tmp_path: Path) -> None:
    found, all_code = compiled(_SESSIONS, tmp_path)
    assert found == {}
    assert isinstance(all_code, int)
    assert all_code > 5, "nothing was compiled before, so nothing was shown"


# --- what is told meanwhile ----------------------------------------------------------------------


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ByHand:
    """Compiles when the test says so, into an empty cache; nothing of it is known yet."""
    hand = ByHand()
    monkeypatch.setattr(background, "BY_DEFAULT", [True])
    monkeypatch.setattr(background, "shared", lambda: hand)
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path / "code"))
    return hand


def test_a_version_is_ready_when_its_code_is_there(later: ByHand) -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("a", unseen(11))
        (told,) = runtime.stats().versions
        assert (told.tier, told.ready, runtime.endpoints.ready) == (0, False, False)
        assert told.seconds_left > 0
        assert f"0, compiling: {told.seconds_left:.1f} s left" in str(runtime.stats())
        with pytest.raises(TimeoutError, match="a@1 is still being compiled"):
            runtime.wait(0.01)
        assert runtime.predict("a", np.ones(3)), "definitions answer meanwhile"
        later.work()
        assert runtime.wait(10) is runtime
        (told,) = runtime.stats().versions
        assert (told.tier, told.ready, told.seconds_left) == (1, True, 0.0)
        assert runtime.endpoints.find("a").entry.function is not None, "its entry is open already"


def test_a_server_is_ready_when_the_code_of_its_models_is_there(later: ByHand) -> None:
    with Runtime(executors=1) as runtime, Server(runtime, ServerSettings(port=0)) as server:
        runtime.register("a", unseen(12))
        client = Client(server.port)
        waiting = client.get("/v2/health/ready")
        assert (waiting.status, waiting.json["compiling"]) == (503, ["a@1"])
        assert waiting.json["seconds_left"] > 0
        model = client.get("/v2/models/a/ready")
        assert (model.status, model.json) == (503, {"name": "a", "ready": False})
        metrics = client.get("/metrics").body.decode()
        assert 'pretzel_version_tier{model="a",version="1"} 0\n' in metrics
        assert 'pretzel_version_compile_seconds_left{model="a",version="1"} 0.' in metrics
        page = client.get("/").body.decode()
        assert "compiling for" in page
        assert "0, compiling: " in page
        assert client.post("/predict/a", [1.0, 2.0, 3.0]).status == 200
        later.work()
        assert client.get("/v2/health/ready").json == {"ready": True}
        assert client.get("/v2/models/a/ready").json == {"name": "a", "ready": True}
        metrics = client.get("/metrics").body.decode()
        assert 'pretzel_version_tier{model="a",version="1"} 1\n' in metrics
        assert 'pretzel_version_compile_seconds_left{model="a",version="1"} 0\n' in metrics


class Folder:
    """An index that the test writes."""

    states: tuple[ModelState, ...] = (ModelState("", "", "LOADING", "1 of 2 models are done"),)

    def index(self) -> tuple[ModelState, ...]:
        return self.states

    load = unload = str


def test_a_server_is_ready_when_its_folder_was_loaded_and_compiled(later: ByHand) -> None:
    """Code that is there before the last model is loaded is not all that is to come."""
    folder = Folder()
    a, b = (ModelState(name, "1") for name in "ab")
    with (
        Runtime(executors=1) as runtime,
        Server(runtime, ServerSettings(port=0), repository=folder) as server,
    ):
        client = Client(server.port)
        runtime.register("a", unseen(16))
        later.work()
        waiting = client.get("/v2/health/ready")
        assert (waiting.status, waiting.json["loading"]) == (503, "1 of 2 models are done")
        runtime.register("b", unseen(17))
        folder.states = a, b
        waiting = client.get("/v2/health/ready")
        assert (waiting.status, waiting.json["compiling"]) == (503, ["b@1"])
        later.work()
        assert client.get("/v2/health/ready").json == {"ready": True}
        folder.states = a, b, replace(b, name="c", state="LOADING")
        server.service._ready_until = 0.0
        assert client.get("/v2/health/ready").json == {"ready": True, "missing": ["c@1"]}
        later_on = client.post("/predict/c", [0.0])
        assert (later_on.status, later_on.headers["retry-after"]) == (503, "1")
        assert client.post("/predict/d", [0.0]).status == 404


def test_a_server_that_was_ready_stays_so_while_a_new_version_is_compiled(later: ByHand) -> None:
    with Runtime(executors=1) as runtime, Server(runtime, ServerSettings(port=0)) as server:
        runtime.register("a", unseen(13))
        later.work()
        client = Client(server.port)
        assert client.get("/v2/health/ready").status == 200
        server.service._ready_until = 0.0
        runtime.register("b", unseen(14))
        assert client.get("/v2/health/ready").status == 200
        assert client.get("/v2/models/b/ready").status == 503
        later.work()


def test_a_version_that_cannot_be_compiled_is_waited_for_no_longer(
    later: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.oven.plans.test_background import failing

    with Runtime(executors=1) as runtime:
        runtime.register("a", unseen(15))
        failing(monkeypatch)
        later.work()
        assert runtime.wait(10).endpoints.ready
        with pytest.raises(Exception, match="did not compile"):
            runtime.predict("a", np.ones((1, 3)))
