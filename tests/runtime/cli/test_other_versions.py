"""Commands with models that another version of scikit-learn wrote."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

import cloudpickle
import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import flour
from flour.core.errors import FlourError, OtherVersionWarning
from runtime.cli import reading
from runtime.cli.blocks import ReadOptions
from runtime.cli.comparing import _of_original
from runtime.cli.errors import CommandError
from runtime.repository import formats
from runtime.repository.formats import written_by
from tests.flour.old_models.make import FOLDER, ROWS, TOWNS, X
from tests.runtime.cli.conftest import Place, Pretzel

HERE = sklearn.__version__


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    np.savetxt(tmp_path / "rows.csv", ROWS, delimiter=",")
    return tmp_path / "rows.csv"


@pytest.mark.parametrize("version", ["0.24.2", "1.3.2", "1.7.2", "1.8.0"])
def test_import_begins_with_both_versions(
    version: str, pretzel: Pretzel, rows: Path, tmp_path: Path
) -> None:
    given = ("import", FOLDER / f"{version}-right.joblib", "--trust-pickle")
    ran = pretzel(*given, "--output", tmp_path / "m.pretzel")
    first, steps, _ = ran.out.splitlines()
    assert steps == "Pipeline, StandardScaler, LogisticRegression"
    assert ran.code == 0
    assert first.startswith(f"written by scikit-learn {version}, installed is {HERE}")
    assert "as that version does" in first
    assert "OtherVersionWarning" not in ran.err  # it is said once
    ran = pretzel(*given, "--output", tmp_path / "other.pretzel", "--verify", rows)
    assert ran.code == 1
    assert "a model of another version cannot be asked here" in ran.err
    assert version in ran.err
    assert not (tmp_path / "other.pretzel").exists()


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_sample_says_what_the_columns_are(form: str, pretzel: Pretzel, tmp_path: Path) -> None:
    frame, rows = pd.DataFrame(TOWNS), tmp_path / f"rows.{form}"
    write = {"csv": frame.to_csv, "jsonl": frame.to_json, "parquet": frame.to_parquet}[form]
    write(rows, **({"orient": "records", "lines": True} if form == "jsonl" else {"index": False}))
    given = ("import", FOLDER / "0.22.2-towns.pkl", "--output", tmp_path / "m.pretzel")
    ran = pretzel(*given)
    assert ran.code == 1
    assert "--sample ROWS" in ran.err
    assert "scikit-learn 0.22.2" in ran.err
    assert pretzel(*given, "--sample", rows).code == 0
    ran = pretzel("predict", tmp_path / "m.pretzel", rows, "--outputs", "label")
    wanted = json.loads((FOLDER / "answers.json").read_text())["0.22.2-towns.pkl"]["predict"]
    assert [*map(int, re.findall(r"\d", ran.out))] == wanted


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.csv", "a,b,c\n1,True,x\n,False,2\n", "float64 float64 object"),
        (
            "a.jsonl",
            '{"a": 1, "b": true, "c": "x"}\n{"a": null, "c": "y"}',
            "float64 float64 object",
        ),
        ("a.jsonl", "[1, 2]", "a line of JSON for each row"),
        ("a.jsonl", "", "a line of JSON for each row"),
        ("a.csv", "", "this file is empty"),
    ],
)
def test_columns_of_a_sample(name: str, text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    path = str(tmp_path / name)
    options = ReadOptions(name.partition(".")[2])
    if len(found.split()) > 3:
        with pytest.raises(FlourError, match=found):
            reading.sample(path, options)
    else:
        made = reading.sample(path, options)
        assert [str(column.dtype) for column in made.values()] == found.split()


def test_with_json_it_is_a_fact(pretzel: Pretzel, tmp_path: Path, place: Place) -> None:
    old, new = tmp_path / "old.pretzel", tmp_path / "new.pretzel"
    ran = pretzel(
        "import", FOLDER / "1.5.2-right.joblib", "--trust-pickle", "--json", "--output", old
    )
    assert ran.data["caveat"] == f"written by scikit-learn 1.5.2, installed is {HERE}"
    ran = pretzel(
        "import", place.root / "mixed.joblib", "--trust-pickle", "--json", "--output", new
    )
    assert ran.data["caveat"] == ""


def test_rows_are_to_blame_where_they_are() -> None:
    class Given:
        data, file, lines = ROWS, "rows.csv", (1, 12)

    def answers(rows: Any) -> Any:
        return rows.columns  # of a frame

    with pytest.raises(CommandError, match="refuses these rows"):
        _of_original(answers, Given())  # type: ignore[arg-type]  # what is read of a block


def test_every_model_of_a_folder_is_told_of(tmp_path: Path) -> None:
    paths = [tmp_path / name / "model.joblib" for name in ("a", "b")]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for path in paths:
            path.parent.mkdir()
            shutil.copy(FOLDER / "1.7.2-right.joblib", path)
            formats.program(formats.SKLEARN, path.read_bytes(), str(path))
    assert [each.category for each in said] == [OtherVersionWarning] * 2
    assert {each.filename for each in said} == {"model.joblib"}


def test_inspect_tells_of_a_file_without_running_it(pretzel: Pretzel, tmp_path: Path) -> None:
    facts = pretzel("inspect", FOLDER / "1.5.2-right.joblib", "--json").data
    assert facts["written_by"] == {"sklearn": "1.5.2"}
    assert [each["step"] for each in facts["steps"]] == ["", "standardscaler", "logisticregression"]
    assert facts["steps"][2]["parameters"]["C"] == "1.0"
    assert facts["steps"][0]["bytes"] > facts["steps"][1]["bytes"] > 0
    assert set(facts["outputs"]) == {"label", "probabilities", "scores"}
    text = pretzel("inspect", FOLDER / "1.3.2-vote.joblib").out
    assert "GaussianNB(var_smoothing=1e-09)" in text
    canary = tmp_path / "canary"
    hidden = make_pipeline(FunctionTransformer(str), Stranger(f"touch {canary}"))
    (tmp_path / "m.pkl").write_bytes(cloudpickle.dumps(hidden))
    ran = pretzel("inspect", tmp_path / "m.pkl", "--json")
    assert ran.code == 0
    assert [each["native"] for each in ran.data["steps"]] == [True, True, False]
    assert "no importer" in ran.data["steps"][2]["reason"]
    assert ran.data["refused"]["what"]
    assert "not native" in pretzel("inspect", tmp_path / "m.pkl").out
    assert not canary.exists()


def test_a_model_in_a_mapping_is_named(pretzel: Pretzel, tmp_path: Path) -> None:
    path, plan, rows = (tmp_path / name for name in ("m#1.pkl", "m.pretzel", "rows.csv"))
    scaler = StandardScaler().fit(X)
    np.savetxt(rows, X, delimiter=",", header="a,b,c", comments="")
    joblib.dump({"scaler": scaler, "columns": ["a"]}, path)
    for command in (("inspect", path), ("import", path, "--output", plan)):
        refused = pretzel(*command)
        assert refused.code == 1
        assert "'scaler': StandardScaler, 'columns': list" in refused.err
        assert "FILE#KEY" in refused.err
    assert "StandardScaler(" in pretzel("inspect", f"{path}#scaler").out
    trusted = ("--verify", rows, "--trust-pickle")
    assert pretzel("import", f"{path}#scaler", "--output", plan, *trusted).code == 0
    against = ("--against", f"{path}#scaler", "--trust-pickle")
    assert pretzel("verify", plan, "--rows", rows, *against).code == 0


class Stranger(BaseEstimator):  # type: ignore[misc,unused-ignore]  # has no types
    """A step of someone's own, whose pickle runs a command."""

    def __init__(self, command: str = "") -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return _with_canary, (Stranger, self.command), vars(self)


def _with_canary(kind: Any, command: str) -> Any:
    os.system(command)
    return kind(command)


def test_functions_by_value_are_refused_by_name(tmp_path: Path) -> None:
    factor = 3.0

    def times(rows: Any) -> Any:
        return rows * factor

    fitted = make_pipeline(FunctionTransformer(times), StandardScaler()).fit(X)
    (tmp_path / "m.pkl").write_bytes(cloudpickle.dumps(fitted))
    with pytest.raises(FlourError, match=r"\.times") as told:
        flour.from_sklearn(tmp_path / "m.pkl", X[:3], allow_python=True)
    assert "step 'functiontransformer'" in str(told.value)


@pytest.mark.parametrize("ending", ["joblib.gz", "sav", "model", "cloudpickle", "bin"])
def test_files_are_told_by_what_they_are(ending: str, pretzel: Pretzel, tmp_path: Path) -> None:
    path = tmp_path / f"m.{ending}"
    joblib.dump(StandardScaler().fit(X), path, compress=3 * (ending in ("joblib.gz", "bin")))
    assert pretzel("inspect", path, "--json").data["format"] == "sklearn"
    assert pretzel("import", path, "--output", tmp_path / "m.pretzel").code == 0


def test_a_file_of_skops() -> None:
    skops = pytest.importorskip("skops.io")
    raw = skops.dumps(StandardScaler().fit(X))
    old = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as source, zipfile.ZipFile(old, "w") as target:
        for name in source.namelist():
            written = source.read(name)
            if name == "schema.json":
                assert HERE.encode() in written
                written = written.replace(HERE.encode(), b"1.4.2")
            target.writestr(name, written)
    assert written_by("skops", raw) == {"sklearn": HERE}
    assert written_by("skops", old.getvalue()) == {"sklearn": "1.4.2"}
    with pytest.warns(OtherVersionWarning, match=f"1.4.2, installed is {HERE}"):
        flour.from_skops(old.getvalue())
