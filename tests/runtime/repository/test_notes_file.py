"""`notes.toml` beside models: settings of every layout, checked, and followed when edited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flour
import oven
from runtime import Runtime
from runtime.cli import main
from runtime.repository import Repository
from runtime.repository.errors import BadConfig
from runtime.repository.files import Folder
from runtime.repository.notes_file import read
from runtime.repository.walk import scan
from runtime.workers import Fleet

ROW = flour.record(ssn=float, age=float)


def save(path: Path, factor: float = 1.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    oven.bake(flour.outputs(score=ROW["ssn"] * 0.0 + ROW["age"] * factor)).save(path)


def test_each_place_counts_for_its_models(tmp_path: Path) -> None:
    for place in ("a/1/a.pretzel", "a/2/a.pretzel", "b/b.pretzel", "c@3.pretzel", "d.pretzel"):
        save(tmp_path / place)
    (tmp_path / "a" / "notes.toml").write_text('private = ["ssn"]\nbatch_wait = 0.25\n')
    (tmp_path / "a/2/notes.toml").write_text('private = ["age"]\nbatch_wait = 0.5\n')
    (tmp_path / "b/notes.toml").write_text("[watch]\ndrift = true\n")
    (tmp_path / "c@3.notes.toml").write_text('[keep]\nsubject = "ssn"\n')
    found = scan(Folder(tmp_path))
    assert not found.troubles
    assert {model.address: model.notes for model in found.models} == {
        "a@1": {"private": ["ssn"], "batch_wait": 0.25},
        "a@2": {"private": ["ssn", "age"], "batch_wait": 0.5},
        "b@1": {"watch": {"drift": True}},
        "c@3": {"keep": {"subject": "ssn"}},
        "d@1": {},
    }


def test_other_servers_layouts_have_them_too(tmp_path: Path) -> None:
    place = tmp_path / "m"
    program = flour.vector("x", 2).linear([[1.0, 2.0]], [0.0]).named("y")
    place.mkdir()
    (place / "model.onnx").write_bytes(flour.to_onnx(program))
    (place / "model-settings.json").write_text('{"implementation": "a.OnnxModel"}')
    (place / "notes.toml").write_text('private = ["x"]')
    (model,) = scan(Folder(tmp_path)).models
    assert model.notes["private"] == ["x"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("privat = ['ssn']", "there is no setting 'privat'.*did you mean 'private'"),
        ("private = 'ssn'", "private is not of its type"),
        ("private = [1]", "private is not of its type"),
        ("batch_wait = true", "batch_wait is not of its type"),
        ("watch = 1", "watch is not of its type"),
        ("[watch]\nsegment = ['a']", r"no setting 'segment'(.|\n)*\[watch\]"),
        ("[keep]\nfolder = '/etc'", "there is no setting 'folder'"),
        ("private = [", "this is no TOML"),
        ("[private]\na = 1", "private is not of its type"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(BadConfig, match=f"(?s){said}"):
        read(text, "m/notes.toml")


def test_a_model_with_wrong_notes_is_not_served(tmp_path: Path) -> None:
    save(tmp_path / "m/m.pretzel")
    (tmp_path / "m/notes.toml").write_text('privat = ["ssn"]')
    with Runtime() as runtime, Repository(tmp_path, runtime) as models:
        models.load_all()
        (state,) = models.index()
        assert state.state == "UNAVAILABLE"
        assert "there is no setting 'privat'; m/notes.toml" in state.reason.replace(
            f"{tmp_path}/", ""
        )
        (tmp_path / "m/notes.toml").write_text('private = ["nobody"]')
        models.load_all()
        assert "private columns are columns of the program" in models.index()[0].reason
        (tmp_path / "m/notes.toml").write_text('private = ["ssn"]')
        models.load_all()
        assert runtime.endpoints.find("m").private == {"ssn"}
        (tmp_path / "m/notes.toml").unlink()
        models.load_all()
        assert not runtime.endpoints.find("m").private
        assert np.isclose(runtime.predict("m", {"ssn": 1.0, "age": 2.0})["score"], 2.0)


@pytest.mark.parametrize("line", ["[123456789]", "row 123456789", '{"input": 123456789}'])
def test_a_line_of_a_model_with_private_columns_is_not_quoted(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "m/m.pretzel")
    (tmp_path / "m/notes.toml").write_text('private = ["ssn"]')
    (tmp_path / "m/verify.jsonl").write_text(line)
    with Runtime() as runtime, Repository(tmp_path, runtime) as models:
        models.load_all()
        (state,) = models.index()
    told = (
        'a line is {"input": row, "outputs": {name: answer}}; m/verify.jsonl:1; '
        "values are not shown, as this endpoint has private columns"
    )
    assert state.reason == told
    assert main(["ls", str(tmp_path)]) == 1
    assert "123456789" not in capsys.readouterr().out


def test_wrong_notes_are_refused_before_workers_hear_of_them(tmp_path: Path) -> None:
    save(tmp_path / "m/m.pretzel")
    (tmp_path / "m/notes.toml").write_text('private = ["nobody"]')
    fleet = Fleet()
    with Repository(tmp_path, fleet, staging=tmp_path / "staging") as models:
        models.load_all()
        (state,) = models.index()
        assert state.refused
        assert "private columns are columns of the program" in state.reason
        assert fleet.count == 0
