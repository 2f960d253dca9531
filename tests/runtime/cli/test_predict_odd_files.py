"""Files that are odd: without rows, no UTF-8, from pipes, left by runs that were killed."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from runtime.bulk import journal
from runtime.bulk.journal import Journal
from tests.house import ROOT
from tests.runtime.cli.conftest import Place, Pretzel
from tests.runtime.repository.folders import X, lgb


def test_standard_input_and_output_are_utf8_whatever_the_locale(place: Place) -> None:
    rows = (place.root / "mixed.csv").read_bytes()
    command = [sys.executable, "-m", "runtime", "predict", str(place.root / "mixed.joblib")]
    command += ["-", "--format", "csv", "--trust-pickle", "--outputs", "label", "--keep", "city"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    ran = subprocess.run(
        command, input=rows, env=environment, capture_output=True, check=False, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stderr
    made = pd.read_csv(io.BytesIO(ran.stdout))
    assert made["city"].tolist() == place.frame["city"].tolist()
    assert made["label"].tolist() == place.pipeline.predict(place.frame).tolist()


@pytest.mark.parametrize("form", ["csv", "jsonl", "arrow", "parquet"])
def test_pipes_that_have_a_path(place: Place, tmp_path: Path, form: str) -> None:
    rows, output = place.root / f"mixed.{form}", tmp_path / "answers.parquet"
    if form == "arrow":
        rows = tmp_path / "mixed.arrow"
        table = pa.Table.from_pandas(place.frame)
        with pa.ipc.new_stream(rows, table.schema) as stream:
            stream.write_table(table)
    command = f"{sys.executable} -m runtime predict {place.root / 'mixed.joblib'}"
    command += f" <(cat {rows}) --format {form} --trust-pickle --keep id --output {output}"
    ran = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if form == "parquet":  # it is read from its end
        assert ran.returncode == 1
        assert "cannot be read from standard input or a pipe" in ran.stderr
        return
    assert ran.returncode == 0, ran.stderr
    made = pd.read_parquet(output)
    assert made["id"].tolist() == place.frame["id"].tolist()
    assert made["label"].tolist() == place.pipeline.predict(place.frame).tolist()


@pytest.mark.parametrize("answers", ["csv", "parquet"])
@pytest.mark.parametrize(("form", "text"), [("csv", "id,age,city\n"), ("jsonl", "")])
def test_texts_without_rows_have_the_columns_of_answers(
    pretzel: Pretzel, place: Place, tmp_path: Path, form: str, text: str, answers: str
) -> None:
    folder, output = tmp_path / "rows", tmp_path / f"answers.{answers}"
    folder.mkdir()
    (folder / f"1.{form}").write_text(text, encoding="utf-8")
    ask = ("predict", place.root / "mixed.joblib", folder, "--trust-pickle", "--keep", "id")
    read = pd.read_csv if answers == "csv" else pd.read_parquet
    for rows in (0, len(X)):  # another file has rows: its columns are the same
        if rows:
            shutil.copy(place.root / f"mixed.{form}", folder / f"2.{form}")
        ran = pretzel(*ask, "--output", output)
        assert ran.code == 0, ran.err
        made = read(output)
        assert len(made) == rows
        if not rows:
            columns, types = list(made), made.dtypes
    assert columns == list(made)
    assert answers == "csv" or types.equals(made.dtypes)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_no_row_verifies_nothing(
    pretzel: Pretzel, place: Place, tmp_path: Path, ending: str
) -> None:
    rows, none = tmp_path / f"rows.{ending}", place.frame.iloc[:0]
    none.to_csv(rows, index=False) if ending == "csv" else none.to_parquet(rows)
    model = place.root / "mixed.joblib"
    ran = pretzel("verify", model, "--against", model, "--rows", rows, "--trust-pickle")
    assert ran.code != 0
    assert "no row was compared" in ran.err


def test_what_a_killed_run_has_left_is_removed(
    pretzel: Pretzel, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, output = place.root / "mixed.csv", tmp_path / "answers.csv"
    ask = ("predict", place.root / "mixed.joblib", rows, "--trust-pickle", "--output", output)
    (tmp_path / f".{output.name}.4194305.part").write_text("label\nye", encoding="utf-8")
    with Journal(tmp_path / f".{output.name}.journal", {}):  # of a run that goes on
        ran = pretzel(*ask)
        assert ran.code != 0
        assert "another process is writing this output" in ran.err
    monkeypatch.setattr(journal, "system", SimpleNamespace(lock=without_locks))
    assert pretzel(*ask).code == 0
    assert [each.name for each in tmp_path.iterdir()] == [output.name]


def without_locks(*_: object, **__: object) -> None:
    """Refuse a lock as file systems do that have none."""
    raise OSError(errno.ENOLCK, "no locks available")


@pytest.mark.parametrize("chunk", [1, 10])
def test_objects_are_rows_of_models_without_columns(
    pretzel: Pretzel, place: Place, tmp_path: Path, chunk: int
) -> None:
    """As CSV is: numbers in the order of the first row's names, or the only value."""
    rows, answers = tmp_path / "r.jsonl", tmp_path / "answers.csv"
    rows.write_text(
        '{"id": 7, "a": 1, "b": 2, "c": 3, "d": 4}\n{"d": 7, "c": null, "b": 6, "a": 5, "id": 8}\n',
        encoding="utf-8",
    )
    ask = ("predict", rows, "--keep", "id", "--output", answers, "--chunk", chunk)
    ran = pretzel(ask[0], place.root / "trees.txt", *ask[1:])
    assert ran.code == 0, ran.err
    wanted = lgb("number").predict(np.array([[1, 2, 3, 4], [5, 6, np.nan, 7]]))
    made = pd.read_csv(answers)
    assert made["id"].tolist() == [7, 8]
    assert made["value"].tolist() == wanted.tolist()
    rows.write_text('{"id": 7, "review": "good"}\n{"review": "bad", "id": 8}\n', "utf-8")
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(["good", "bad"], [1, 0])
    joblib.dump(model, tmp_path / "text.joblib")
    ran = pretzel(ask[0], tmp_path / "text.joblib", *ask[1:], "--trust-pickle")
    assert ran.code == 0, ran.err
    assert pd.read_csv(answers)["label"].tolist() == [1, 0]
    rows.write_text('{"review": "good", "stars": 1}\n', "utf-8")
    ran = pretzel(ask[0], tmp_path / "text.joblib", *ask[1:], "--trust-pickle")
    assert "expected text" in ran.err


def test_a_column_that_is_read_can_be_kept(pretzel: Pretzel, place: Place) -> None:
    ran = pretzel(
        *("predict", place.root / "mixed.joblib", place.root / "mixed.jsonl", "--trust-pickle"),
        *("--keep", "city", "--outputs", "label", "--output-format", "jsonl"),
    )
    assert ran.code == 0, ran.err
    made = [json.loads(line) for line in ran.out.splitlines()]
    assert [row["city"] for row in made] == place.frame["city"].tolist()
    assert [row["label"] for row in made] == place.pipeline.predict(place.frame).tolist()


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["1", '"x"'], "a column to keep has no one type"),
        (["1", "1", "1.5", "2.5"], "columns of other types than those before"),
    ],
)
def test_kept_values_of_json_have_one_type_where_files_have_types(
    pretzel: Pretzel, place: Place, tmp_path: Path, ids: list[str], said: str
) -> None:
    rows = tmp_path / "r.jsonl"
    text = "".join(f'{{"id": {each}, "age": 1, "city": "Graz"}}\n' for each in ids)
    rows.write_text(text, encoding="utf-8")
    ask = ("predict", place.root / "mixed.joblib", rows, "--trust-pickle", "--keep", "id")
    for ending, code in (("csv", 0), ("jsonl", 0), ("parquet", 1), ("arrow", 1)):
        ran = pretzel(*ask, "--chunk", 2, "--output", tmp_path / f"answers.{ending}")
        assert ran.code == code, ran.err
        assert code == 0 or said in ran.err
        assert code == 0 or "write CSV or JSON lines" in ran.err
    rows.write_text(text.replace(ids[0], "0.5", 1).replace(ids[-1], "3"), encoding="utf-8")
    assert pretzel(*ask, "--chunk", 1, "--output", tmp_path / "answers.parquet").code == 0
    assert pd.read_parquet(tmp_path / "answers.parquet")["id"].iloc[[0, -1]].tolist() == [0.5, 3.0]


@pytest.mark.parametrize("rows", [5, 80])
def test_verification_reads_parquet(
    pretzel: Pretzel, place: Place, tmp_path: Path, rows: int
) -> None:
    frame = pd.DataFrame(np.resize(X, (rows, X.shape[1])), columns=list("abcd"))
    frame.to_parquet(tmp_path / "trees.parquet")
    mixed = place.frame.iloc[np.arange(rows) % len(place.frame)]
    mixed.to_parquet(tmp_path / "mixed.parquet")
    for model, name in (("trees.txt", "trees"), ("mixed.joblib", "mixed")):
        path = place.root / model
        ask = ("verify", path, "--against", path, "--rows", tmp_path / f"{name}.parquet")
        ran = pretzel(*ask, "--trust-pickle", "--json")
        assert ran.code == 0, ran.err
        assert ran.data["rows"] == rows


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_the_line_that_is_no_utf8_is_named(
    pretzel: Pretzel, place: Place, tmp_path: Path, form: str
) -> None:
    lines = (place.root / f"mixed.{form}").read_bytes().splitlines()
    lines = [*lines, *lines[1:] * (3000 // len(lines))]
    lines[2500] = (
        lines[2500].replace(b"G", b"\xe9").replace(b"C", b"\xe9").replace(b"\xc5", b"\xe9")
    )
    (tmp_path / f"bad.{form}").write_bytes(b"\n".join(lines))
    ran = pretzel(
        *("predict", place.root / "mixed.joblib", tmp_path / f"bad.{form}", "--trust-pickle"),
        *("--output", tmp_path / "answers.csv"),
    )
    assert ran.code == 1
    assert "this text is not UTF-8" in ran.err
    assert f"bad.{form}:2501\n" in ran.err
    assert "0xe9 after " in ran.err
