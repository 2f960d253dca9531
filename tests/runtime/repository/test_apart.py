"""Models that bring down whoever reads them, and a server that goes on."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime import Runtime
from runtime.repository import Repository, isolated_import, preparing
from runtime.repository.listing import FolderModel, without_directories
from runtime.repository.staging import Staging
from tests.house import until
from tests.runtime.repository.folders import WIDTH, X, age, fil, lgb, mlserver, save_plan, xgb

ROW = np.zeros(WIDTH)


class Trap:
    """Calls something when it is read."""

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self._call = call, arguments

    def __reduce__(self) -> Any:
        """What the pickle says has to be called."""
        return self._call


def trap(path: Path, call: Callable[..., object], *arguments: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(Trap(call, *arguments)))


def opened(folder: Path, runtime: Runtime, **facts: Any) -> Repository:
    return Repository(folder, runtime, apart=True, trust_pickle=True, quiet_seconds=0.0, **facts)


def reasons(repository: Repository) -> dict[str, str]:
    return {each.name: each.reason for each in repository.index()}


def prepared_by(repository: Repository) -> int:
    """The process that prepares."""
    made = repository._importer
    assert isinstance(made, isolated_import.IsolatedImporter)
    assert made._process is not None
    return made._process.pid


def test_a_crash_is_a_reason_and_others_are_served(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "a.pretzel", 1.0)
    trap(tmp_path / "b.pkl", os.abort)
    trap(tmp_path / "c.pkl", os._exit, 3)
    trap(tmp_path / "d.pkl", os.kill, 0, 0)  # no estimator, and no harm
    save_plan(tmp_path / "e.pretzel", 5.0)
    with opened(tmp_path, runtime) as repository:
        kinds = {event.name: event.kind for event in repository.load_all()}
        assert kinds == {
            "a": "loaded",
            "b": "refused",
            "c": "refused",
            "d": "refused",
            "e": "loaded",
        }
        assert [runtime.predict(name, ROW)["top"] for name in "ae"] == [1.0, 5.0]
        found = reasons(repository)
        assert found["b"].startswith("the process that imported this model has ended; b.pkl;")
        assert "SIGABRT" in found["b"]
        assert "code 3" in found["c"]
        assert "ended" not in found["d"]
        assert repository.poll() == ()  # it is not tried again before it changes
        save_plan(tmp_path / "b.pretzel", 2.0)
        (tmp_path / "b.pkl").unlink()
        assert [event.kind for event in repository.poll()] == ["loaded"]
        assert runtime.predict("b", ROW)["top"] == 2.0


def test_one_that_takes_too_long_is_given_up(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = isolated_import.IsolatedImporter.prepare

    def limited(
        self: isolated_import.IsolatedImporter, model: FolderModel, known: Path | None
    ) -> Path:
        """What is quick may meet with a busy machine."""
        self._limit = 0.5 if model.name == "slow" else 600.0
        return prepare(self, model, known)

    monkeypatch.setattr(isolated_import.IsolatedImporter, "prepare", limited)
    save_plan(tmp_path / "a.pretzel", 0.0)  # the process has been started when "slow" comes
    trap(tmp_path / "slow.pkl", time.sleep, 600)
    save_plan(tmp_path / "z.pretzel", 1.0)
    with opened(tmp_path, runtime) as repository:
        repository.load_all()
        assert "not done after 0.5 s" in reasons(repository)["slow"]
        assert runtime.predict("z", ROW)["top"] == 1.0


def test_closing_ends_what_is_on_its_way(tmp_path: Path, runtime: Runtime) -> None:
    repository = opened(tmp_path, runtime)
    trap(tmp_path / "slow.pkl", time.sleep, 600)
    repository.watch(0.01)
    until(repository.index)
    began = time.monotonic()
    repository.close()
    assert time.monotonic() - began < 60.0
    assert reasons(repository)["slow"] == "", "the end is no reason to refuse it"


def test_a_process_that_went_to_rest_is_followed_by_another(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated_import, "IDLE_SECONDS", 0.5)
    save_plan(tmp_path / "a.pretzel", 1.0)
    with opened(tmp_path, runtime) as repository:
        repository.load_all()
        first = prepared_by(repository)
        until(lambda: not Path(f"/proc/{first}").exists(), "it has not ended, or is a zombie")
        save_plan(tmp_path / "a.pretzel", 2.0)
        age(tmp_path / "a.pretzel")
        assert [event.kind for event in repository.poll()] == ["replaced"]
        assert prepared_by(repository) != first
        assert runtime.predict("a", ROW)["top"] == 2.0


def test_it_may_be_killed_between_two_models(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "a.pretzel", 1.0)
    with opened(tmp_path, runtime) as repository:
        repository.load_all()
        process = prepared_by(repository)
        os.kill(process, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{process}").exists(), "it is still there")
        save_plan(tmp_path / "b.pretzel", 2.0)
        assert [event.kind for event in repository.load_all()] == ["loaded"]


def test_models_of_all_layouts_answer_as_if_prepared_here(tmp_path: Path, runtime: Runtime) -> None:
    """What a layout promises, rows that stand beside a model, and names that are no UTF-8."""
    fil(tmp_path / "f", "xgboost_json", 2, predict_proba="true")
    (tmp_path / "f" / "1").mkdir()
    xgb("two").save_model(tmp_path / "f" / "1" / "xgboost.json")
    mlserver(tmp_path / "m", "mlserver_lightgbm.LightGBMModel", parameters={"uri": "./m.bst"})
    lgb("three").save_model(tmp_path / "m" / "m.bst")
    save_plan(tmp_path / "r" / "1" / "m.pretzel", 1.0)
    wrong = '{"input": [0, 0, 0, 0], "outputs": {"top": 7}}\n'
    (tmp_path / "r" / "1" / "verify.jsonl").write_text(wrong, encoding="utf-8")
    with (
        Runtime() as other,
        Repository(tmp_path, other) as here,
        opened(tmp_path, runtime) as there,
    ):
        here.load_all()
        there.load_all()
        assert there.index() == here.index()
        assert {each.name: each.state for each in there.index()} == {
            "f": "READY",
            "m": "READY",
            "r": "UNAVAILABLE",
        }
        for name in "fm":
            one, two = other.predict(name, X[:50]), runtime.predict(name, X[:50])
            assert one.keys() == two.keys()
            for output, values in one.items():
                np.testing.assert_array_equal(values, two[output])


def test_without_room_it_is_said_once_and_tried_again(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    save_plan(tmp_path / "a.pretzel", 1.0)
    with Repository(tmp_path, runtime, quiet_seconds=0.0) as repository:
        with monkeypatch.context() as without:
            without.setattr(Staging, "bring", full)
            (event,) = repository.poll()
            what = "there is not enough disk space or memory to import it"
            assert event.reason.startswith(f"{what}; a.pretzel; {os.strerror(28)}")
            assert repository.poll() == ()
            with pytest.raises(Exception, match="cannot be loaded"):
                repository.load("a")
        assert [event.kind for event in repository.poll()] == ["loaded"]
        assert reasons(repository)["a"] == ""


def test_errors_keep_their_parts() -> None:
    found = preparing.error_parts(ValueError("no"))
    assert found == {"kind": "ValueError", "what": "ValueError", "found": "no"}


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("cannot be read; /srv/m/a/b.pretzel", "cannot be read; a/b.pretzel"),
        ("no room in '/srv/staging-1/x.bin'", "no room in 'x.bin'"),
        ("see http://host/a/b, 1/2 or a/b", "see http://host/a/b, 1/2 or a/b"),
    ],
)
def test_reasons_name_no_directories(reason: str, told: str) -> None:
    assert without_directories(reason, "/srv/m") == told
