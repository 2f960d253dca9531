"""What other servers' configurations say of serving a model is kept to, and followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime import Runtime
from runtime.repository import Repository
from tests.runtime.repository.folders import age, fil, mlserver, xgb

PLAIN = {"platform", "default_outputs", "layout"}


def notes(runtime: Runtime, name: str) -> dict[str, Any]:
    found = runtime.endpoints.find(name).notes
    return {key: value for key, value in found.items() if key not in PLAIN}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, {}),
        ({"max_batch_size": 64, "max_batch_time": 0.5}, {"batch_rows": 64, "batch_wait": 0.5}),
        ({"max_batch_size": 0, "max_batch_time": 0.5}, {}),
        ({"cache_enabled": True}, {"cache_bytes": 1 << 20}),
    ],
)
def test_mlserver(tmp_path: Path, facts: dict[str, Any], expected: dict[str, Any]) -> None:
    place = tmp_path / "m"
    mlserver(place, "mlserver_xgboost.XGBoostModel", parameters={"uri": "model.json"}, **facts)
    xgb("number").save_model(place / "model.json")
    with Runtime() as runtime, Repository(tmp_path, runtime) as models:
        assert [event.kind for event in models.load_all()] == ["loaded"]
        assert notes(runtime, "m") == expected


_WRONG = ['"many"', "-1", "true", "Infinity", "NaN", "[1]"]


@pytest.mark.parametrize(
    ("name", "wrong"), [("max_batch_size", "1.5"), *(("max_batch_time", each) for each in _WRONG)]
)
def test_mlserver_nonsense(tmp_path: Path, name: str, wrong: str) -> None:
    place = tmp_path / "m"
    mlserver(place, "mlserver_xgboost.XGBoostModel")
    path = place / "model-settings.json"
    path.write_text(path.read_text("utf-8")[:-1] + f', "{name}": {wrong}}}', "utf-8")
    xgb("number").save_model(place / "model.json")
    with Runtime() as runtime, Repository(tmp_path, runtime) as models:
        (event,) = models.load_all()
        assert (event.kind, name in event.reason) == ("refused", True)


def test_triton_and_a_change_of_the_configuration_alone(tmp_path: Path) -> None:
    place = tmp_path / "m"
    fil(place, "xgboost_json", 1)
    (place / "1").mkdir()
    xgb("number").save_model(place / "1" / "xgboost.json")
    config = place / "config.pbtxt"
    text = config.read_text("utf-8")
    with Runtime() as runtime, Repository(tmp_path, runtime, quiet_seconds=0) as models:
        models.load_all()
        assert notes(runtime, "m") == {}
        waiting = "dynamic_batching { max_queue_delay_microseconds: 500 }\n"
        more = waiting + "response_cache { enable: true }\n"
        config.write_text(text.replace("dynamic_batching {}", more), "utf-8")
        age(config)
        assert [event.kind for event in models.poll()] == ["replaced"]
        wanted = {"batch_wait": 0.0005, "batch_rows": 32768, "cache_bytes": 1 << 20}
        assert notes(runtime, "m") == wanted
        age(config, 120)
        assert models.poll() == ()
