"""Models in other servers' layouts, asked over HTTP as those servers' clients ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
import tritonclient.http as triton

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.repository import Repository
from tests.runtime.repository.folders import X, age, fil, mlserver, save_plan, xgb

Client: TypeAlias = triton.InferenceServerClient


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Client, Repository]]:
    fil(tmp_path / "fil", "xgboost_json", 2, predict_proba="true")
    (tmp_path / "fil" / "3").mkdir()
    xgb("two").save_model(tmp_path / "fil" / "3" / "xgboost.json")
    mlserver(tmp_path / "mls", "mlserver_xgboost.XGBoostModel", parameters={"version": "v1"})
    xgb("two").save_model(tmp_path / "mls" / "model.json")
    (tmp_path / "broken.pretzel").write_bytes(b"no plan")
    with Runtime() as runtime, Repository(tmp_path, runtime, quiet_seconds=0.0) as repository:
        repository.load_all()
        with Server(
            runtime, ServerSettings(port=0, max_unread=0.0), repository=repository
        ) as server:
            client = Client(server.url.removeprefix("http://"))
            yield client, repository
            client.close()


def ask(client: Client, model: str, name: str, *outputs: str) -> triton.InferResult:
    tensor = triton.InferInput(name, list(X.shape), "FP32")
    tensor.set_data_from_numpy(X)
    wanted = [triton.InferRequestedOutput(each) for each in outputs] or None
    return client.infer(model, [tensor], outputs=wanted)


def test_a_client_of_triton_fil(served: tuple[Client, Repository]) -> None:
    client, _ = served
    metadata = client.get_model_metadata("fil")
    assert metadata["platform"] == "fil"
    assert [(one["name"], one["datatype"], one["shape"]) for one in metadata["inputs"]] == [
        ("input__0", "FP32", [-1, 4])
    ]
    assert [(one["name"], one["datatype"], one["shape"]) for one in metadata["outputs"]] == [
        ("output__0", "FP32", [-1, 2])
    ]
    made = ask(client, "fil", "input__0", "output__0").as_numpy("output__0")
    assert np.array_equal(made, xgb("two").predict_proba(X))


def test_a_client_of_mlserver(served: tuple[Client, Repository]) -> None:
    client, _ = served
    model = xgb("two")
    usual = ask(client, "mls", "predict")
    assert [one["name"] for one in usual.get_response()["outputs"]] == ["predict"]
    assert usual.as_numpy("predict").tolist() == model.predict(X)[:, None].tolist()
    both = ask(client, "mls", "predict", "predict_proba", "predict")
    assert np.array_equal(both.as_numpy("predict_proba"), model.predict_proba(X))
    assert both.get_response()["model_version"] == "v1"


def test_the_repository_over_http(served: tuple[Client, Repository], tmp_path: Path) -> None:
    client, repository = served
    states = {one["name"]: one for one in client.get_model_repository_index()}
    assert {name: one["state"] for name, one in states.items()} == {
        "broken": "UNAVAILABLE",
        "fil": "READY",
        "mls": "READY",
    }
    assert "container" in states["broken"]["reason"]
    assert str(tmp_path) not in states["broken"]["reason"]
    assert client.is_server_ready(), "one bad file is no reason to serve no model"
    client.unload_model("mls")
    assert not client.is_model_ready("mls")
    client.load_model("mls")
    assert client.is_model_ready("mls")
    with pytest.raises(triton.InferenceServerException, match="cannot be loaded"):
        client.load_model("broken")
    with pytest.raises(triton.InferenceServerException, match="no model"):
        client.load_model("nobody")
    save_plan(tmp_path / "broken.pretzel", 1.0)
    age(tmp_path / "broken.pretzel")
    repository.poll()
    assert client.is_server_ready()
