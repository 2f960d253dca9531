"""Commands with models that another version of scikit-learn wrote."""

from __future__ import annotations

import io
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn

import flour
from flour.core.errors import OtherVersionWarning
from runtime.cli.comparing import _of_original
from runtime.cli.errors import CommandError
from runtime.repository import formats
from runtime.repository.formats import written_by
from tests.flour.old_models.make import FOLDER, ROWS, X
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
    first, _ = ran.out.splitlines()
    assert ran.code == 0
    assert first.startswith(f"written by scikit-learn {version}, installed is {HERE}")
    assert "as that version does" in first
    assert "OtherVersionWarning" not in ran.err  # it is said once
    ran = pretzel(*given, "--output", tmp_path / "other.pretzel", "--verify", rows)
    assert ran.code == 1
    assert "a model of another version cannot be asked here" in ran.err
    assert version in ran.err
    assert not (tmp_path / "other.pretzel").exists()


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


def test_a_file_of_skops() -> None:
    skops = pytest.importorskip("skops.io")
    from sklearn.preprocessing import StandardScaler

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
