"""MLflow's folders, read without MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest

import oven
import runtime.bulk as pretzel
from flour.core.errors import ImportRefused
from runtime import Runtime
from runtime.repository import Repository
from runtime.repository.errors import UnsupportedModel
from runtime.repository.mlflow_folder import flavours, model_file
from tests.runtime.cli.conftest import Pretzel
from tests.runtime.cli.conftest import pretzel as command_fixture
from tests.runtime.repository.folders import X, lgb

command = command_fixture

ABOUT = """\
artifact_path: model
flavors:
  lightgbm:
    code: null
    data: model.lgb
    lgb_version: 4.6.0
  python_function:
    data: model.lgb
    env:
      conda: conda.yaml
      virtualenv: python_env.yaml
    loader_module: mlflow.lightgbm
model_size_bytes: 100
signature:
  inputs: '[{"type": "double"}]'
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder as MLflow writes it."""
    made = tmp_path / "models" / "trees"
    made.mkdir(parents=True)
    (made / "MLmodel").write_text(ABOUT, "utf-8")
    (made / "requirements.txt").write_text("mlflow\n", "utf-8")
    (made / "input_example.json").write_text("{}", "utf-8")
    lgb("number").save_model(made / "model.lgb")
    return made


def test_its_flavours_are_read(folder: Path) -> None:
    found = flavours(ABOUT)
    assert list(found) == ["lightgbm", "python_function"]
    assert found["lightgbm"]["data"] == "model.lgb"
    assert "conda" not in found["python_function"]
    assert model_file(folder) == folder / "model.lgb"


def test_it_is_imported_and_served_as_it_is(folder: Path, command: Pretzel) -> None:
    wanted = lgb("number").predict(X)
    plan = oven.bake(pretzel.mlflow.import_model(folder))
    assert plan.run(X)["value"].tolist() == wanted.tolist()
    with Runtime() as runtime, Repository(folder.parent, runtime) as models:
        assert [event.kind for event in models.load_all()] == ["loaded"]
        assert runtime.predict("trees", X)["value"].tolist() == wanted.tolist()
    assert command("inspect", folder).code == 0
    assert command("import", folder, "--into", folder.parent.parent / "plans").code == 0
    assert (folder.parent.parent / "plans" / "trees" / "1" / "trees.pretzel").is_file()


def test_what_cannot_be_imported_is_told(folder: Path) -> None:
    about = folder / "MLmodel"
    about.write_text("flavors:\n  spark:\n    data: model.lgb\n", "utf-8")
    with pytest.raises(UnsupportedModel, match="no flavour"):
        model_file(folder)
    about.write_text("flavors:\n  lightgbm:\n    data: ../../secret.lgb\n", "utf-8")
    (folder.parent.parent / "secret.lgb").touch()
    with pytest.raises(UnsupportedModel):
        model_file(folder)
    about.write_text("flavors:\n  sklearn:\n    pickled_model: model.pkl\n", "utf-8")
    (folder / "model.pkl").touch()
    with pytest.raises(ImportRefused, match="the file is empty"):
        pretzel.mlflow.import_model(folder)
