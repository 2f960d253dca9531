"""`pretzel predict --on-error`: rows that are refused among others, counted, told and resumed."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flour
import oven
from objectstore import system
from oven import Plan
from runtime.bulk import files, journal
from runtime.errors import OutputInUse
from tests.runtime.cli.conftest import Pretzel

ROWS, BAD = 400, [3, 170, 171, 399]
MODEL = "m.pretzel"


def frame() -> pd.DataFrame:
    """Return rows of which four are refused, with an id each."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.normal(size=ROWS), "city": rng.choice(["Oslo", "Rome"], ROWS)})
    rows["id"], rows["share"] = np.arange(ROWS), np.where(np.arange(ROWS) % 9, 0.5, np.nan)
    return rows.astype({"city": object})


@pytest.fixture(scope="module")
def plan() -> Plan:
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rows = frame()[["a", "city"]]
    columns = make_column_transformer((StandardScaler(), ["a"]), (OneHotEncoder(), ["city"]))
    model = make_pipeline(columns, LogisticRegression()).fit(rows, np.arange(ROWS) % 2)
    return oven.bake(flour.from_sklearn(model, sample=rows)).wait()


@pytest.fixture
def place(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the model, into which the test goes."""
    monkeypatch.chdir(tmp_path)
    plan.save(tmp_path / MODEL)
    return tmp_path


def bad() -> pd.DataFrame:
    """Return the rows with four that are refused."""
    rows = frame()
    rows.loc[BAD[:3], "a"] = np.nan
    rows.loc[BAD[3], "city"] = "Nowhere"
    return rows


def write(rows: pd.DataFrame, name: str) -> None:
    """Write rows in the form that a file's name says."""
    if name.endswith("parquet"):
        how = {"compression": None, "use_dictionary": False}  # sizes do not depend on values
        rows.to_parquet(name, index=False, row_group_size=100, **how)
    elif ".jsonl" in name:
        rows.to_json(name, orient="records", lines=True)
    elif ".csv" in name:
        rows.to_csv(name, index=False)
    else:
        with pa.ipc.new_stream(name, (table := pa.Table.from_pandas(rows)).schema) as stream:
            stream.write_table(table)


def read(name: str) -> pd.DataFrame:
    """Return what is in a file."""
    if name.endswith("parquet"):
        return pq.read_table(name).to_pandas()
    if name.endswith("arrow"):
        return pa.ipc.open_file(name).read_all().to_pandas()
    return pd.read_json(name, lines=True) if ".jsonl" in name else pd.read_csv(name)


SOURCES = ["rows.csv", "rows.csv.gz", "rows.jsonl", "rows.jsonl.gz", "rows.parquet", "rows.arrow"]


ANSWERS = ["a.csv", "a.jsonl.gz", "a.parquet", "a.arrow"]
POLICIES = ["null", "skip", "refused.jsonl", "null", "refused.csv.gz"]
WAYS = [
    (source, ANSWERS[(place + turn) % 4], POLICIES[(3 * place + turn) % 5])
    for place, source in enumerate(SOURCES)
    for turn in range(2)
]


@pytest.mark.parametrize(("source", "answers", "policy"), WAYS)
def test_other_rows_are_answered(
    pretzel: Pretzel, place: Path, plan: Plan, source: str, answers: str, policy: str
) -> None:
    write(bad(), source)
    ask = ("predict", MODEL, source, "--output", answers, "--keep", "id", "--chunk", 90)
    ran = pretzel(*ask, "--on-error", policy, "--json")
    assert ran.code == 0, ran.err
    written = ROWS if policy == "null" else ROWS - len(BAD)
    assert ran.data == {"rows": written, "file": answers, "refused": len(BAD)}
    made, good = read(answers), [row for row in range(ROWS) if row not in BAD]
    assert made["id"].tolist() == (list(range(ROWS)) if policy == "null" else good)
    if policy == "null":
        assert made.loc[BAD].drop(columns="id").isna().all(axis=None)
        made = made.drop(index=BAD)
    wanted = plan.run(frame()[["a", "city"]].iloc[good])["scores"]
    assert np.allclose(made["scores"].astype(float), wanted, 1e-9)
    if policy.startswith("refused"):
        told = read(policy)
        first = 2 if ".csv" in source else 1  # the header is a line
        assert told["row"].tolist() == [row + first for row in BAD]
        assert told["file"].unique().tolist() == [source]
        assert told["reason"].str.contains("refuses NaN|not a category").all()
    kept = {path.name for path in place.iterdir()} - {MODEL, source, answers, policy}
    assert not kept


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("form", "wrong"),
    [("csv", {1: b"x,Oslo,1,", 4: b"1,2", 5: b"1,Os\xfflo,4,"}), ("jsonl", {1: b"{", 4: b"[1]"})],
)
def test_rows_that_cannot_be_read(pretzel: Pretzel, form: str, wrong: dict[int, bytes]) -> None:
    write(frame(), f"rows.{form}")
    rows = Path(f"rows.{form}")
    lines = rows.read_bytes().splitlines()
    for line, text in wrong.items():
        lines[line] = text
    rows.write_bytes(b"\n".join(lines) + b"\n")
    ask = ("predict", MODEL, rows, "--output", "a.csv", "--keep", "id")
    assert pretzel(*ask).code == 1
    assert pretzel(*ask, "--on-error", "r.jsonl").code == 0
    assert read("r.jsonl")["row"].tolist() == [line + 1 for line in wrong]
    assert len(read("a.csv")) == ROWS - len(wrong)
    assert pretzel(*ask, "--on-error", "null").code == 0
    assert len(read("a.csv")) == ROWS


def test_nothing_private_is_told(pretzel: Pretzel, place: Path) -> None:
    """Columns that one version of a name hides are hidden by the others, too."""
    for version in ("1", "2"):
        folder = place / "models" / "m" / version
        folder.mkdir(parents=True)
        shutil.copy(place / MODEL, folder / MODEL)
    (folder / "notes.toml").write_text('private = ["city"]\n', encoding="utf-8")
    write(bad().replace("Nowhere", "SecretTown"), "rows.parquet")
    for model in ("models/m", "models/m@1"):
        ask = ("predict", model, "rows.parquet", "--output", "a.parquet", "--on-error", "r.jsonl")
        ran = pretzel(*ask)
        assert ran.code == 0, ran.err
        told = Path("r.jsonl").read_text("utf-8")
        assert len(told.splitlines()) == len(BAD)
        assert "SecretTown" not in told


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("rows.csv", "would be written into the rows"),
        ("a.csv", "would be written into the answers"),
        ("none/r.jsonl", "null and skip need no file"),
        ("r.parquet", "JSON lines or CSV"),
        ("r.dat", "null, skip, or a FILE.jsonl"),
        ("NULL", "null, skip, or a FILE.jsonl"),
    ],
)
def test_where_refused_rows_cannot_go(pretzel: Pretzel, option: str, said: str) -> None:
    write(bad(), "rows.csv")
    before = Path("rows.csv").read_bytes()
    ran = pretzel("predict", MODEL, "rows.csv", "--output", "a.csv", "--on-error", option)
    assert ran.code == 2
    assert said in ran.err
    assert "--format" not in ran.err
    assert Path("rows.csv").read_bytes() == before
    assert not Path("a.csv").exists()


@pytest.mark.usefixtures("place")
def test_what_is_wrong_with_all_rows_is_one_error(pretzel: Pretzel) -> None:
    for name in ("rows.parquet", "rows.csv"):
        write(frame().drop(columns="city"), name)
        ran = pretzel("predict", MODEL, name, "--output", "a.csv", "--on-error", "skip")
        assert ran.code == 1
        assert "city" in ran.err
    write(frame().assign(a="6"), "texts.parquet")
    ran = pretzel("predict", MODEL, "texts.parquet", "--output", "a.csv", "--on-error", "null")
    assert ran.code == 1
    assert "str '6'" in ran.err


@pytest.mark.usefixtures("place")
def test_all_rows_may_be_refused(pretzel: Pretzel) -> None:
    write(frame().assign(a=np.nan)[:30], "rows.csv")
    for answers in ("a.csv", "a.parquet"):
        ask = ("predict", MODEL, "rows.csv", "--output", answers, "--on-error")
        assert "30 of 30 rows" in pretzel(*ask, "null").out
        assert len(read(answers)) == 30
        assert f"0 rows in {answers}" in pretzel(*ask, "skip").out
        assert "scores" in read(answers).columns


@pytest.mark.usefixtures("place")
def test_to_standard_output(pretzel: Pretzel) -> None:
    write(bad(), "rows.csv")
    ran = pretzel("predict", MODEL, "rows.csv", "--on-error", "skip")
    assert len(ran.out.splitlines()) == 1 + ROWS - len(BAD)
    assert f"{len(BAD)} of {ROWS} rows were refused" in ran.err


# --- journals ------------------------------------------------------------------------------------


def left(place: Path) -> list[str]:
    """Return the journals that are left."""
    return [path.name for path in place.iterdir() if path.name.endswith(".journal")]


class Answers:
    """Counts the blocks that are answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from runtime.cli import answers

        self.count, self._answered = 0, answers.answered
        monkeypatch.setattr(answers, "answered", self)

    def __call__(self, *given: Any) -> Any:
        self.count += 1
        return self._answered(*given)


@pytest.mark.parametrize(
    ("source", "policy"),
    [("rows.parquet", "null"), ("rows.parquet", "r.jsonl"), ("rows.csv", "skip")],
)
def test_a_refused_row_does_not_undo_the_rows_before_it(
    pretzel: Pretzel, place: Path, monkeypatch: pytest.MonkeyPatch, source: str, policy: str
) -> None:
    rows = frame()
    rows.loc[BAD[1:], "a"] = np.nan
    write(rows, source)
    ask = ("predict", MODEL, source, "--output", "a.parquet", "--keep", "id", "--chunk", 50)
    assert pretzel(*ask, "--executors", 1).code == 1
    assert left(place)
    counted = Answers(monkeypatch)
    ran = pretzel(*ask, "--on-error", policy)
    assert ran.code == 0, ran.err
    assert counted.count < 8  # not all blocks
    assert f"3 of {ROWS} rows" in ran.out
    assert not left(place)
    whole = Path("a.parquet").read_bytes()
    assert pretzel(*ask, "--on-error", policy).code == 0
    assert Path("a.parquet").read_bytes() == whole


class FullDisk(OSError):
    """A disk that is full."""


def full(*_: object) -> None:
    """Fail as a full disk does."""
    raise FullDisk(28, "No space left on device")


@pytest.mark.parametrize("when", ["append", "end", "publish"])
@pytest.mark.parametrize("policy", ["null", "r.jsonl"])
def test_a_full_disk(
    pretzel: Pretzel, place: Path, monkeypatch: pytest.MonkeyPatch, when: str, policy: str
) -> None:
    write(bad(), "rows.parquet")
    ask: tuple[object, ...] = ("predict", MODEL, "rows.parquet", "--output", "a.parquet")
    ask = (*ask, "--chunk", 50, "--on-error", policy)
    assert pretzel(*ask).code == 0
    whole, told = Path("a.parquet").read_bytes(), Path(policy)
    wanted = told.read_bytes() if told.exists() else b""
    Path("a.parquet").unlink()
    with monkeypatch.context() as patch:
        append, calls = journal.Journal.append, iter(range(100))
        if when == "append":
            patch.setattr(
                journal.Journal,
                "append",
                lambda self, batch: append(self, batch) if next(calls) < 5 else full(),
            )
        elif when == "end":
            patch.setattr(files.FileWriter, "close", full)
        else:
            patch.setattr(Path, "replace", full)
        ran = pretzel(*ask)
        assert ran.code == 5
        assert "No space left" in ran.err
        assert "a.parquet" in ran.err
        assert "make room" in ran.err
    assert left(place)
    assert not Path("a.parquet").exists()
    counted = Answers(monkeypatch)
    ran = pretzel(*ask)
    assert f"{len(BAD)} of {ROWS} rows" in ran.out
    assert counted.count < 8
    assert Path("a.parquet").read_bytes() == whole
    assert (told.read_bytes() if told.exists() else b"") == wanted
    assert {path.name for path in place.iterdir()} <= {
        *(MODEL, "rows.parquet", "a.parquet", policy)
    }


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("change", ["policy", "model", "rows", "older", "replaced", "format"])
def test_a_journal_of_anything_else_is_not_gone_on_with(
    pretzel: Pretzel, plan: Plan, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    write(bad(), "rows.parquet")
    ask: tuple[object, ...] = ("predict", MODEL, "rows.parquet", "--output", "a.parquet")
    ask = (*ask, "--keep", "id", "--chunk", 50, "--on-error")
    with monkeypatch.context() as patch:
        patch.setattr(files.FileWriter, "close", full)
        if change == "format":
            patch.setattr(journal, "FORMAT", 1)
        assert pretzel(*ask, "null").code == 5
    about = Path("rows.parquet").stat()
    times = about.st_atime_ns, about.st_mtime_ns
    if change == "model":
        program = plan.flow
        oven.bake(flour.outputs(scores=program["scores"], label=program["label"])).save(MODEL)
    elif change in {"rows", "older", "replaced"}:
        write(bad().assign(id=np.arange(ROWS)[::-1]), "new.parquet")
        assert Path("new.parquet").stat().st_size == about.st_size
        Path("new.parquet").replace("rows.parquet")
        if change != "rows":  # a clock that was set back, and a copy that keeps the time
            os.utime("rows.parquet", ns=times if change == "replaced" else (0, 0))
    policy = "skip" if change == "policy" else "null"
    counted = Answers(monkeypatch)
    ran = pretzel(*ask, policy)
    assert ran.code == 0, ran.err
    assert counted.count == 8 if change != "policy" else counted.count > 0
    resumed = Path("a.parquet").read_bytes()
    assert pretzel(*ask, policy).code == 0
    assert Path("a.parquet").read_bytes() == resumed
    assert len(read("a.parquet")) == (ROWS - len(BAD) if policy == "skip" else ROWS)


@pytest.mark.usefixtures("place")
def test_a_file_that_changes_meanwhile_is_told(
    pretzel: Pretzel, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(frame(), "rows.csv")
    times = iter(range(9))
    monkeypatch.setattr("runtime.cli.answers.stamp", lambda path: (str(path), 1, next(times)))
    ran = pretzel("predict", MODEL, "rows.csv", "--output", "a.parquet")
    assert ran.code == 1
    assert "was changed while its rows were answered" in ran.err
    assert not Path("a.parquet").exists()


def test_a_journal_that_was_removed_meanwhile_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process opens the file, another one finishes and removes it, a third begins."""
    path, lock = tmp_path / "journal", system.lock
    first = journal.Journal(path, {})

    def finish(file: Any, *, wait: bool) -> None:
        if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:
            monkeypatch.setattr(system, "lock", lock)
            first.__exit__(None)
        lock(file, wait=wait)

    monkeypatch.setattr(system, "lock", finish)
    second = journal.Journal(path, {})
    with pytest.raises(OutputInUse):
        journal.Journal(path, {})
    second.close()


@pytest.mark.usefixtures("place")
def test_compressed_answers_are_whole(pretzel: Pretzel) -> None:
    write(frame(), "rows.csv")
    for name in ("a.csv.gz", "b.csv.gz"):
        assert pretzel("predict", MODEL, "rows.csv", "--output", name).code == 0
    assert Path("a.csv.gz").read_bytes() == Path("b.csv.gz").read_bytes()
    assert gzip.decompress(Path("a.csv.gz").read_bytes()).count(b"\n") == ROWS + 1
