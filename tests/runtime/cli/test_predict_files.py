"""Parquet and Arrow files: read by column, answered in order, gone on with after a kill."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from sklearn.preprocessing import OneHotEncoder

import flour
import oven
from flour.core.types import Category, Scalar, Type
from runtime.bulk.files import FileSource, parts_of, reads
from runtime.bulk.journal import Journal
from runtime.cli.output import Rate
from runtime.errors import OutputInUse
from tests.house import ROOT
from tests.runtime.cli.conftest import Place, Pretzel

WIDTH = 4
RNG = np.random.default_rng(0)


def numbers(rows: int) -> pa.Table:
    """Return a table of numbers, and an id for each row."""
    columns = {f"c{at}": RNG.normal(size=rows) for at in range(WIDTH)}
    return pa.table({**columns, "id": np.arange(rows)})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a linear model over the first columns."""
    program = flour.vector("x", WIDTH).linear([[1.0, 2.0, 3.0, 4.0]], [0.5])
    path = tmp_path_factory.mktemp("model") / "m.pretzel"
    oven.bake(program).save(path)
    return path


def answers(model: Path, table: pa.Table) -> list[float]:
    """Return what the plan answers to the rows."""
    (made,) = oven.load(model).run(np.column_stack(table.columns[:WIDTH])).values()
    return [float(value) for value in np.ravel(made)]


def values(column: pa.ChunkedArray) -> list[float]:
    """Return a column's values, of which each may be in a list of its own."""
    return [float(value) for value in np.ravel(column.to_pylist())]


@pytest.mark.parametrize("source", ["parquet", "arrow", "feather"])
@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "jsonl"])
def test_files_in_files_out(
    pretzel: Pretzel, model: Path, tmp_path: Path, source: str, ending: str
) -> None:
    table = numbers(1000)
    rows, output = tmp_path / f"rows.{source}", tmp_path / f"answers.{ending}"
    if source == "parquet":
        pq.write_table(table, rows, row_group_size=300)
    elif source == "feather":
        pa.feather.write_feather(table, rows)
    else:
        with pa.ipc.new_stream(rows, table.schema) as stream:
            stream.write_table(table, max_chunksize=170)
    ran = pretzel(
        *("predict", model, rows, "--output", output),
        *("--keep", "id", "--chunk", 64, "--executors", 3),
    )
    assert ran.code == 0, ran.err
    read = {
        "parquet": pq.read_table,
        "arrow": lambda path: pa.ipc.open_file(path).read_all(),
        "csv": lambda path: pa.Table.from_pandas(pd.read_csv(path)),
        "jsonl": lambda path: pa.Table.from_pylist(
            [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        ),
    }
    made = read[ending](output)
    assert made["id"].to_pylist() == list(range(1000))
    assert values(made[made.column_names[1]]) == answers(model, table)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([rows.name, output.name])


def test_categories_and_holes(pretzel: Pretzel, place: Place, tmp_path: Path) -> None:
    output = tmp_path / "answers.parquet"
    for ending in ("parquet", "csv", "jsonl"):
        ran = pretzel(
            *("predict", place.root / "mixed.joblib", place.root / f"mixed.{ending}"),
            *("--trust-pickle", "--output", output, "--outputs", "probabilities,label"),
        )
        assert ran.code == 0, ran.err
        made = pq.read_table(output)
        assert made.column_names == ["probabilities", "label"]
        rows = place.frame[["age", "city"]]
        assert made["label"].to_pylist() == place.pipeline.predict(rows).tolist()


def test_streams_in_and_out(model: Path) -> None:
    table = numbers(500).drop_columns(["id"])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=90)
    command = [sys.executable, "-m", "runtime", "predict", str(model), "-", "--format", "arrow"]
    ran = subprocess.run(command, input=sink.getvalue(), capture_output=True, check=True, cwd=ROOT)
    made = pa.ipc.open_stream(ran.stdout).read_all()
    assert values(made[0]) == answers(model, table)


def peak(model: Path, rows: Path, output: Path) -> float:
    """Return the most memory, in MiB, that a process has which answers these rows."""
    words = [str(each) for each in ("predict", model, rows, "--output", output)]
    text = f"from runtime.cli import main; assert main({words}) == 0\n"
    text += "print([each for each in open('/proc/self/status') if 'VmHWM' in each][0])"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, cwd=ROOT)
    return int(ran.stdout.split()[-2]) / 1024


@pytest.mark.soak
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """100,000,000 rows of 20 floats, which are 100 times the same file."""
    width, count = 20, 1_000_000
    model, rows = tmp_path / "m.pretzel", tmp_path / "rows"
    oven.bake(flour.vector("x", width).linear([[1.0] * width], [0.5])).save(model)
    table = pa.table({f"c{at}": RNG.normal(size=count) for at in range(width)})
    rows.mkdir()
    pq.write_table(table.slice(0, 10), tmp_path / "few.parquet")
    pq.write_table(table, rows / "000.parquet", use_dictionary=False)
    for number in range(1, 100):
        (rows / f"{number:03}.parquet").hardlink_to(rows / "000.parquet")
    output = tmp_path / "answers.parquet"
    few = peak(model, tmp_path / "few.parquet", output)
    assert peak(model, rows, output) - few <= 300
    made = pq.ParquetFile(output)
    assert made.metadata.num_rows == 100 * count
    assert made.read_row_group(0)[0].slice(0, 10) == pq.read_table(output).slice(99 * count, 10)[0]


@pytest.mark.parametrize("width", [3, 4000])
def test_wide_rows_are_decoded_few_at_a_time(tmp_path: Path, width: int) -> None:
    table = pa.table({f"c{at}": np.zeros(40_000 // width) for at in range(width)})
    pq.write_table(table, tmp_path / "rows.parquet", use_dictionary=False)
    asked = FileSource(str(tmp_path / "rows.parquet"), "parquet", lambda names: names, 5)
    sizes: list[int] = []
    decoded = pq.ParquetFile.iter_batches

    def watched(file: pq.ParquetFile, rows: int, **how: object) -> object:
        sizes.append(rows)
        return decoded(file, rows, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq.ParquetFile, "iter_batches", watched)
        assert sum(len(each.batch) for each in asked.read()) == table.num_rows
    assert sizes[0] % 5 == 0
    assert sizes[0] * width * 8 <= 16 << 20


def test_only_what_is_read_is_read(tmp_path: Path) -> None:
    pq.write_table(numbers(10), tmp_path / "rows.parquet")
    asked = FileSource(str(tmp_path / "rows.parquet"), "parquet", lambda names: names[1:3], 4)
    assert asked.rows() == 10
    read = list(asked.read())
    assert [each.lines for each in read] == [range(1, 5), range(5, 9), range(9, 11)]
    assert all(each.batch.schema.names == ["c1", "c2"] for each in read)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("skip", [0, 7, 14, 30, 37, 60, 90])
def test_batches_are_left_out(tmp_path: Path, form: str, skip: int) -> None:
    for number in range(3):
        table = pa.table({"n": np.arange(30) + 30 * number})
        path = tmp_path / f"{number}.{form}"
        if form == "parquet":
            pq.write_table(table, path, row_group_size=30)
        else:
            pa.feather.write_feather(table, path)
    read = FileSource(str(tmp_path), form, lambda names: names, 7).read(skip)
    left = [value for each in read for value in each.batch["n"].to_pylist()]
    assert left == list(range(skip, 90))


@pytest.mark.parametrize("distinct", [3, 5000])
def test_categories_stay_places_in_short_dictionaries(
    pretzel: Pretzel, tmp_path: Path, distinct: int
) -> None:
    """What is kept or compared has its own type, and the answers are the same."""
    rows, count = tmp_path / "rows.parquet", 20_000
    words = [None if at % 17 == 0 else f"word {at % distinct}" for at in range(count)]
    table = pa.table({"a": words, "b": words, "text": words, "id": np.arange(count)})
    pq.write_table(table, rows)
    ask = (str(rows), "parquet", lambda names: names, 4096, None, {"a", "b", "id", "other"})
    types = [str(kind) for kind in next(iter(FileSource(*ask).read())).batch.schema.types]
    coded = "dictionary<values=string, indices=int32, ordered=0>" if distinct == 3 else "string"
    assert types == [coded, coded, "string", "int64"]
    held = {"a": ["word 0", "word 2", None], "b": ["word 2", "", None]}
    fitted = pd.DataFrame(held, dtype=object)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(fitted)
    plan = oven.bake(flour.from_sklearn(encoder, sample=fitted))
    plan.save(tmp_path / "m.pretzel")
    output = tmp_path / "answers.parquet"
    for more in ((), ("--where", "b != 'word 1'")):
        ask = ("predict", tmp_path / "m.pretzel", rows, "--output", output, "--keep", "a", *more)
        ran = pretzel(*ask, "--chunk", 1000)
        assert ran.code == 0, ran.err
        made = pq.read_table(output)
        asked = table.filter(pa.compute.field("b") != "word 1") if more else table
        assert made["a"] == asked["a"]
        assert made[1].to_pylist() == plan.run_arrow(asked)[0].to_pylist()


def test_folders_and_patterns(pretzel: Pretzel, tmp_path: Path) -> None:
    """The values in the names of folders are columns, and paths say the order."""
    kinds: dict[str, Type] = {"city": Category(), "n": Scalar()}
    fields = flour.record("r", kinds)
    oven.bake(fields["n"].plus(fields["n"]).named("twice")).save(tmp_path / "m.pretzel")
    for city, start in (("Oslo", 10), ("Graz", 0), ("A%20b", 20)):
        folder = tmp_path / "rows" / f"city={city}"
        folder.mkdir(parents=True)
        table = pa.table({"n": np.arange(5.0) + start})
        pq.write_table(table, folder / "part.parquet")
    (tmp_path / "rows" / "_SUCCESS").touch()
    output = tmp_path / "answers.parquet"
    for rows in (tmp_path / "rows", tmp_path / "rows" / "*" / "*.parquet"):
        ran = pretzel("predict", tmp_path / "m.pretzel", rows, "--keep", "city", "--output", output)
        assert ran.code == 0, ran.err
        made = pq.read_table(output)
        assert made["city"].to_pylist() == ["A b"] * 5 + ["Graz"] * 5 + ["Oslo"] * 5
        wanted = [2.0 * n for n in (*range(20, 25), *range(5), *range(10, 15))]
        assert made["twice"].to_pylist() == wanted
    assert pretzel("predict", tmp_path / "m.pretzel", tmp_path / "none" / "*.parquet").code == 5
    assert parts_of(str(tmp_path / "rows"))[0].path.parent.name == "city=A%20b"


def test_text_files_of_a_folder(pretzel: Pretzel, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.csv").write_text(f"a,b,c,d\n{number},0,0,0\n", "utf-8")
    ran = pretzel("predict", model, folder)
    assert [float(line) for line in ran.out.splitlines()[1:]] == [0.5, 1.5]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_a_column_too_many_is_no_feature(
    pretzel: Pretzel, model: Path, tmp_path: Path, ending: str
) -> None:
    """A model without names reads columns by position: an id in front must not be one of them."""
    table = numbers(10)
    moved = table.select(["id", *table.column_names[:WIDTH]])
    rows, output = tmp_path / f"rows.{ending}", tmp_path / "answers.parquet"
    write = {"parquet": pq.write_table, "arrow": pa.feather.write_feather}
    write.get(ending, pa.csv.write_csv)(moved, rows)
    ran = pretzel("predict", model, rows, "--output", output)
    assert ran.code == 1
    for said in ("4 columns", "5", "--keep", f"rows.{ending}"):
        assert said in ran.err
    ran = pretzel("predict", model, rows, "--output", output, "--keep", "id")
    assert ran.code == 0, ran.err
    assert values(pq.read_table(output)[1]) == answers(model, table)


def test_only_some_rows(pretzel: Pretzel, model: Path, tmp_path: Path) -> None:
    table = numbers(1000)
    rows, output = tmp_path / "rows.parquet", tmp_path / "answers.parquet"
    pq.write_table(table, rows, row_group_size=300)
    ask = ("predict", model, rows, "--output", output, "--keep", "id", "--chunk", 64)
    ran = pretzel(*ask, "--where", "c0 > 0 and id >= 500")
    assert ran.code == 0, ran.err
    chosen = (np.asarray(table["c0"]) > 0) & (np.arange(1000) >= 500)
    made = pq.read_table(output)
    assert made["id"].to_pylist() == np.flatnonzero(chosen).tolist()
    assert values(made[1]) == np.asarray(answers(model, table))[chosen].tolist()
    assert "this is no condition" in pretzel(*ask, "--where", "c0 >").err
    assert "no column 'height'" in pretzel(*ask, "--where", "height > 3").err
    (tmp_path / "rows.csv").write_text("a,b,c,d\n", "utf-8")
    ran = pretzel("predict", model, tmp_path / "rows.csv", "--where", "a > 3")
    assert "--where is for Parquet and Arrow files" in ran.err


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_mistakes_name_the_row(pretzel: Pretzel, place: Place, tmp_path: Path, ending: str) -> None:
    cities = ["Graz"] * 99 + ["Nowhere"]
    table = pa.table({"age": np.ones(100), "city": cities})
    rows = tmp_path / f"rows.{ending}"
    writer = pq.write_table if ending == "parquet" else pa.feather.write_feather
    writer(table, rows)
    output = tmp_path / "answers.parquet"
    ask = ("predict", place.root / "mixed.joblib", rows, "--trust-pickle", "--output", output)
    ran = pretzel(*ask, "--chunk", 30)
    assert ran.code == 1
    assert f"rows.{ending}:100, column 0" in ran.err
    journal = tmp_path / ".answers.parquet.journal"  # with the rows before it
    assert {*tmp_path.iterdir()} == {rows, journal}
    rows.write_bytes(rows.read_bytes()[:-40])
    ran = pretzel(*ask)
    assert ran.code == 1
    assert "cannot be read" in ran.err


@pytest.mark.parametrize("source", ["parquet", "arrow"])
@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
@pytest.mark.parametrize("count", [0, 100])
def test_without_rows_there_are_columns(
    pretzel: Pretzel, model: Path, tmp_path: Path, source: str, ending: str, count: int
) -> None:
    """Whether there are none in the file, or the condition holds for none of them."""
    write = pq.write_table if source == "parquet" else pa.feather.write_feather
    read = {"parquet": pq.read_table, "arrow": pa.feather.read_table, "csv": pd.read_csv}[ending]
    rows, output = tmp_path / f"rows.{source}", tmp_path / f"answers.{ending}"
    write(numbers(10), rows)
    assert pretzel("predict", model, rows, "--keep", "id", "--output", output).code == 0
    wanted = read(output)
    for where in ("id < 0", "c0 > 0 and c0 < 0"):
        write(numbers(count), rows)
        ask = ("predict", model, rows, "--keep", "id", "--output", output, "--where", where)
        assert pretzel(*ask).code == 0
        made = read(output)
        assert len(made) == 0
        if ending == "csv":
            assert list(made) == list(wanted)
        else:
            assert made.schema == wanted.schema


def written(folder: Path, *tables: pa.Table) -> Path:
    """Write a file for each table."""
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def test_kept_columns_have_one_type(pretzel: Pretzel, model: Path, tmp_path: Path) -> None:
    first, second = numbers(10), numbers(10)
    ids = first.column_names.index("id")

    def cast(kind: pa.DataType) -> pa.Table:
        return second.set_column(ids, "id", second["id"].cast(kind))

    output = tmp_path / "answers.parquet"
    for kind, whole in ((pa.int32(), pa.int64()), (pa.uint8(), pa.int64())):
        for tables in ((first, cast(kind)), (cast(kind), first)):
            rows = written(tmp_path / "rows", *tables)
            ran = pretzel("predict", model, rows, "--keep", "id", "--output", output)
            assert ran.code == 0, ran.err
            made = pq.read_table(output)["id"]
            assert made.type == whole
            assert made.to_pylist() == [*range(10), *range(10)]
    for kind in (pa.string(), pa.float64(), pa.uint64()):  # no type has every value of both
        rows = written(tmp_path / "rows", first, cast(kind))
        ran = pretzel("predict", model, rows, "--keep", "id", "--output", output)
        assert ran.code == 1
        for said in ("'id' has different types", "1.parquet", "0.parquet", "int64", "--keep"):
            assert said in ran.err


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "jsonl"])
def test_dictionaries_that_differ_are_kept_as_values(
    pretzel: Pretzel, model: Path, tmp_path: Path, ending: str
) -> None:
    places = ["Oslo", "Łódź", None]
    for number, place in enumerate(places):
        held = tmp_path / "rows" / f"c={place or '__HIVE_DEFAULT_PARTITION__'}"
        held.mkdir(parents=True)
        kind = pa.DictionaryArray.from_arrays([0, 0, None, 0, 0], [f"kind {number}"])
        pq.write_table(numbers(5).append_column("k", kind), held / "rows.parquet")
    output = tmp_path / f"answers.{ending}"
    keep = ("--keep", "c", "--keep", "k", "--keep", "id")
    ran = pretzel("predict", model, tmp_path / "rows", *keep, "--output", output)
    assert ran.code == 0, ran.err
    if ending == "parquet":
        made = pq.read_table(output)
        assert Counter(made["c"].to_pylist()) == Counter(places * 5)
        assert made["k"].null_count == 3


@pytest.mark.parametrize("name", ["1.parquet", "1.arrow"])
def test_the_file_that_cannot_be_read_is_named(
    pretzel: Pretzel, model: Path, tmp_path: Path, name: str
) -> None:
    rows = written(tmp_path / "rows", numbers(10))
    (rows / name).write_bytes((rows / "0.parquet").read_bytes()[:300])
    output = tmp_path / "answers.parquet"
    ran = pretzel("predict", model, rows, "--keep", "id", "--output", output)
    assert ran.code == 1
    assert name in ran.err
    assert "0.parquet" not in ran.err


def test_columns_of_one_name_are_refused(pretzel: Pretzel, model: Path, tmp_path: Path) -> None:
    table = numbers(10).rename_columns(["c0", "c1", "c2", "c3", "c0"])
    for ending in ("parquet", "arrow"):
        rows = tmp_path / f"rows.{ending}"
        (pq.write_table if ending == "parquet" else pa.feather.write_feather)(table, rows)
        ran = pretzel("predict", model, rows, "--keep", "c0")
        assert ran.code == 1
        assert "several columns have the name 'c0'" in ran.err
        assert "rename" in ran.err


@pytest.mark.parametrize("rows", [".", "*.parquet", "**/*.parquet", "day=1/../*.parquet"])
def test_answers_are_never_among_the_rows(
    pretzel: Pretzel, model: Path, tmp_path: Path, rows: str
) -> None:
    (tmp_path / "day=1").mkdir()
    pq.write_table(numbers(10).drop_columns(["id"]), tmp_path / "rows.parquet")
    for _ in range(2):
        ask = ("predict", model, tmp_path / rows, "--format", "parquet", "--output")
        ran = pretzel(*ask, tmp_path / "answers.parquet")
        assert ran.code == 2 or "be read as the rows" in ran.err
        assert "be read as the rows" in ran.err
        assert not (tmp_path / "answers.parquet").exists()
        assert pretzel(*ask, tmp_path / ".." / f"{tmp_path.name}.parquet").code == 0
    (tmp_path / "._answers.parquet.part").write_bytes(b"what a killed process left")
    assert pretzel(*ask, tmp_path / ".." / f"{tmp_path.name}.parquet").code == 0
    assert reads(str(tmp_path), tmp_path / "a" / "b.parquet")
    assert not reads(str(tmp_path), tmp_path / "_a" / "b.parquet")
    assert not reads(str(tmp_path / "*.parquet"), tmp_path / "a" / "b.parquet")
    assert not reads(str(tmp_path / "day=1"), tmp_path / "day=2" / "b.parquet")


# --- after a kill ---------------------------------------------------------------------------------


def started(model: Path, rows: Path, output: Path) -> subprocess.Popen[bytes]:
    """Start the command in a process of its own."""
    command = [sys.executable, "-m", "runtime", "predict", str(model), str(rows)]
    command += ["--output", str(output), "--keep", "id", "--chunk", "500"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)


def killed_at(process: subprocess.Popen[bytes], journal: Path, size: int) -> bool:
    """Kill a process as soon as its journal has this size; whether it was still running."""
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if journal.exists() and journal.stat().st_size >= size:
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.0005)
    return process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_what_was_killed_is_gone_on_with(
    model: Path, tmp_path: Path, ending: str, kills: int
) -> None:
    rows = tmp_path / "rows.parquet"
    pq.write_table(numbers(150_000), rows, row_group_size=20_000)
    whole, output = tmp_path / f"whole.{ending}", tmp_path / f"answers.{ending}"
    assert started(model, rows, whole).wait() == 0
    journal = tmp_path / f".{output.name}.journal"
    times, size = 0, 300
    for place in range(kills):
        times += killed_at(started(model, rows, output), journal, size)
        if not journal.exists():
            break
        assert not output.exists()
        size = journal.stat().st_size + 40_000 * place
    assert times > 0
    assert started(model, rows, output).wait() == 0
    assert output.read_bytes() == whole.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {rows.name, whole.name, output.name}


def test_a_journal_of_another_task_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    batch = pa.record_batch({"n": [1, 2]})
    for _ in range(2):
        journal = Journal(path, {"plan": "one"})
        before = len(list(journal.batches()))
        journal.append(batch)
        journal.close()
    assert before == 1
    with path.open("ab") as file:
        file.write(b"\x09\x00")
    journal = Journal(path, {"plan": "one"})
    assert [each.num_rows for each in journal.batches()] == [2, 2]
    with pytest.raises(OutputInUse, match="another process"):
        Journal(path, {"plan": "one"})
    journal.close()
    with Journal(path, {"plan": "two"}) as other:
        assert list(other.batches()) == []
    assert not path.exists()


def test_batches_from_a_damaged_one_on_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    batch = pa.record_batch({"x": np.arange(50.0)})
    journal = Journal(path, {})
    for _ in range(3):
        journal.append(batch)
    journal.close()
    written = path.read_bytes()
    size = (len(written) - 3) // 3
    for place in range(3, len(written), 97):
        path.write_bytes(written[:place] + bytes([written[place] ^ 4]) + written[place + 1 :])
        journal = Journal(path, {})
        assert list(journal.batches()) == [batch] * ((place - 3) // size)
        journal.append(batch)
        journal.close()
        journal = Journal(path, {})
        assert len(list(journal.batches())) == (place - 3) // size + 1
        journal.close()


def test_an_interrupted_journal_stays(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Journal(tmp_path / "journal", {}):
        raise KeyboardInterrupt
    assert (tmp_path / "journal").exists()


def test_the_rate_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rate = Rate()
    rate.rows = rate.before = 1000
    assert rate.note(0.1) == "1,000 rows"
    rate.rows, now[0] = 3000, 110.0
    assert rate.note(0.3) == "3,000 rows, 200 rows/s, 0:35 left"
