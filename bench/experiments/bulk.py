"""Do databases, data frames, clusters and files get what a block of rows costs, or nearly?

    python -m bench bulk

A table by itself, like `engines`: contestants take turns in one process, the best of several
rounds counts, and it ends with 1 where a goal is missed. Two threads each. The models are boosted
trees (100 of 31 leaves) behind encoders, over a table of 14 columns like that of the census, and a
linear model over n-grams of reviews. Ray and Spark are measured where scripts/test-integrations has
made their environment.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import environments
from bench.goal import Goal
from bench.machine import ROOT

QUESTION = "DuckDB, Polars, files, Spark and Ray against blocks of rows and other ways"
ROWS, THREADS, ROUNDS = 48_842, 2, 5
_NUMBERS = ("age", "weight", "years", "gain", "loss", "hours")
_WORDS = {"work": 9, "degree": 16, "marital": 7, "job": 15, "family": 6, "race": 5, "sex": 2}
_WORDS |= {"country": 42}
_WIDTH, _GROUP, _GROUPS = 20, 1_000_000, 10
#: DuckDB gives its threads whole groups of 122,880 rows, so a table has as many for each thread: of
#: 4.8 groups one thread has 2.8 at least, and the other waits for it.
_TIMES, _GROUPED = 12, 4 * 122_880
Call = Callable[[], object]


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    with tempfile.TemporaryDirectory(prefix="pretzel-bench-") as place:
        folder = Path(place)
        table = census(folder)
        yield from _databases(table)
        yield from _text()
        yield from _dictionary()
        yield from _files(folder)
        yield from _clusters(folder)


class Model(NamedTuple):
    """A model with its plan and rows."""

    estimator: Any
    plan: Any
    rows: Any
    """A table of Arrow's."""


def census(folder: Path | None = None) -> Model:
    """Boosted trees over numbers and categories; in a folder, with all it takes as files."""
    import pandas as pd
    import pyarrow as pa
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    import flour
    import oven

    rng = np.random.default_rng(0)
    drawn: dict[str, Any] = {name: rng.gamma(2.0, 20.0, ROWS).round() for name in _NUMBERS}
    for name, count in _WORDS.items():
        words = np.array([f"{name}-{'x' * (n % 9)}{n}" for n in range(count)], object)
        drawn[name] = rng.choice(words, ROWS)
    frame = pd.DataFrame(drawn)
    risk = frame["age"] - frame["hours"] + 30 * (frame["sex"] == "sex-1") + rng.normal(0, 9, ROWS)
    encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((SimpleImputer(), [*_NUMBERS]), (encode, [*_WORDS]))
    trees = HistGradientBoostingClassifier(max_iter=100, max_leaf_nodes=31, early_stopping=False)
    model = make_pipeline(columns, trees).fit(frame, risk > risk.median())
    plan = oven.bake(flour.from_sklearn(model, sample=frame)).wait()
    arrays = {n: pa.array(v) for n, v in drawn.items()}
    rows = pa.table(arrays)
    if folder is not None:
        import joblib
        import pyarrow.parquet as pq

        plan.save(folder / "census.pretzel")
        joblib.dump(model, folder / "census.joblib")
        pq.write_table(rows, folder / "census.parquet", row_group_size=ROWS // 4)
    return Model(model, plan, rows)


def speeds(calls: Mapping[str, tuple[Call, int]], rounds: int = ROUNDS) -> dict[str, float]:
    """The rows in a second of each call, taken in turns; the best round counts."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, (call, rows) in calls.items():
            start = time.perf_counter()
            call()
            best[name] = max(best.get(name, 0.0), rows / (time.perf_counter() - start))
    return best


def by_blocks(plan: Any, table: Any, rows: int = 1 << 14) -> Call:
    """The same columns in blocks by two threads, in one process: what others are held against."""
    from runtime.bulk.plans import in_parallel

    batches = table.to_batches(max_chunksize=rows)
    return lambda: list(in_parallel(plan.run_arrow, batches, THREADS))


# --- databases and frames -------------------------------------------------------------------------


def _databases(model: Model) -> Iterator[Goal]:
    import polars as pl
    import pyarrow as pa

    import runtime.bulk as pretzel

    rows = pa.concat_tables([model.rows] * _TIMES).slice(0, _GROUPED)
    some, count = ROWS // 20, rows.num_rows
    names = ", ".join(rows.column_names)
    connection = pretzel.duckdb.connect(config={"threads": str(THREADS)})
    connection.execute("create table rows as select * from rows")
    pretzel.duckdb.register(connection, "ours", model.plan, outputs="scores")
    _register_others(connection, model)
    frame: Any = pl.from_arrow(rows)
    expression = pretzel.polars.predict(model.plan, outputs="scores")

    def sql(function: str, limit: int = 0) -> Call:
        source = f"(select * from rows limit {limit})" if limit else "rows"
        query = f"select sum({function}({names})) from {source}"
        return lambda: connection.execute(query).fetchall()

    def theirs(part: Any) -> Any:
        return pl.Series(model.estimator.predict_proba(part.struct.unnest().to_pandas())[:, 1])

    struct = pl.struct(*model.rows.column_names)
    peer = struct.map_batches(theirs, pl.Float64, is_elementwise=True)
    found = speeds(
        {
            "block": (by_blocks(model.plan, rows.combine_chunks()), count),
            "duckdb": (sql("ours"), count),
            "duckdb rows": (sql("by_row", some), some),
            "duckdb arrow": (sql("by_arrow", ROWS), ROWS),
            "polars": (lambda: frame.select(expression), count),
            "polars peer": (lambda: frame.head(ROWS).select(peer), ROWS),
        }
    )
    print({name: f"{value:,.0f} rows/s" for name, value in found.items()})
    yield Goal("DuckDB against a row UDF", found["duckdb"] / found["duckdb rows"], 10)
    yield Goal("DuckDB against an Arrow UDF", found["duckdb"] / found["duckdb arrow"], 3)
    yield Goal("DuckDB against blocks", found["duckdb"] / found["block"], 0.8)
    yield Goal("Polars against map_batches", found["polars"] / found["polars peer"], 8)
    yield Goal("Polars against blocks", found["polars"] / found["block"], 0.8)


def _register_others(connection: Any, model: Model) -> None:
    """What one writes without us: a function of a row, and one of Arrow's columns."""
    import pyarrow as pa

    kinds = ["DOUBLE"] * len(_NUMBERS) + ["VARCHAR"] * len(_WORDS)
    columns = model.rows.column_names
    parameters = ", ".join(columns)

    def of_row(row: dict[str, Any]) -> float:
        return float(model.plan.run({name: [value] for name, value in row.items()})["scores"][0])

    def of_arrow(*given: Any) -> Any:
        frame = pa.table(list(given), names=columns).to_pandas()
        return pa.array(model.estimator.predict_proba(frame)[:, 1])

    scope: dict[str, Any] = {"of_row": of_row, "of_arrow": of_arrow}
    # DuckDB counts the parameters of a function, so these have as many as there are columns.
    named = ", ".join(f"{name}={name}" for name in columns)
    exec(f"by_row = lambda {parameters}: of_row(dict({named}))", scope)
    exec(f"by_arrow = lambda {parameters}: of_arrow({parameters})", scope)
    connection.create_function("by_row", scope["by_row"], kinds, "DOUBLE")
    connection.create_function("by_arrow", scope["by_arrow"], kinds, "DOUBLE", type="arrow")


def _reviews(count: int) -> tuple[Any, list[str]]:
    """A linear model over n-grams of reviews, and texts for it."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    import flour
    import oven

    path = ROOT / "bench" / "workloads" / "reviews.tsv"
    texts = [line.split("\t")[-1] for line in path.read_text("utf-8").splitlines()[1:]]
    words = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression())
    model = words.fit(texts, [len(text) % 2 for text in texts])
    plan = oven.bake(flour.from_sklearn(model, sample=texts[:50])).wait()
    return plan, (texts * (count // len(texts) + 1))[:count]


def _text() -> Iterator[Goal]:
    import polars as pl
    import pyarrow as pa

    import runtime.bulk as pretzel

    plan, texts = _reviews(_GROUPED)
    (name,) = plan.inputs
    rows = pa.table({name: texts})
    connection = pretzel.duckdb.connect(config={"threads": str(THREADS)})
    connection.execute("create table rows as select * from rows")
    pretzel.duckdb.register(connection, "ours", plan, outputs="scores")
    frame: Any = pl.from_arrow(rows)
    expression = pretzel.polars.predict(plan, outputs="scores")
    query = f'select sum(ours("{name}")) from rows'
    count = len(texts)
    found = speeds(
        {
            "block": (by_blocks(plan, rows, 2048), count),
            "duckdb": (lambda: connection.execute(query).fetchall(), count),
            "polars": (lambda: frame.select(expression), count),
        },
        rounds=3,
    )
    for library in ("duckdb", "polars"):
        yield Goal(f"texts in {library} against blocks", found[library] / found["block"], 0.8)


def _dictionary() -> Iterator[Goal]:
    import pyarrow as pa

    plan, texts = _reviews(20_000)
    (name,) = plan.inputs
    distinct = pa.array(list(dict.fromkeys(texts))[:100])
    codes = np.random.default_rng(0).integers(0, len(distinct), 10_000_000).astype(np.int32)
    coded = pa.table({name: pa.DictionaryArray.from_arrays(codes, distinct)})
    plain = pa.table({name: distinct.take(pa.array(codes[:20_000]))})
    found = speeds(
        {
            "coded": (lambda: plan.run_arrow(coded), coded.num_rows),
            "plain": (lambda: plan.run_arrow(plain), plain.num_rows),
        },
        rounds=2,
    )
    yield Goal("100 distinct texts in a dictionary", found["coded"] / found["plain"], 20)


# --- files ----------------------------------------------------------------------------------------


def _files(folder: Path) -> Iterator[Goal]:
    """Parquet to Parquet by the command, beside the reader alone and the kernel alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from sklearn.ensemble import HistGradientBoostingRegressor

    import flour
    import oven
    from runtime.cli import main

    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, _WIDTH))
    trees = HistGradientBoostingRegressor(max_iter=100, early_stopping=False)
    model = trees.fit(x, x[:, 0] * x[:, 1])
    plan = oven.bake(flour.from_sklearn(model, sample=x)).wait()
    plan.save(folder / "trees.pretzel")
    rows = pa.table({f"c{at}": rng.normal(size=_GROUP) for at in range(_WIDTH)})
    path, count = folder / "rows.parquet", _GROUP * _GROUPS
    with pq.ParquetWriter(path, rows.schema, use_dictionary=False) as file:
        for _ in range(_GROUPS):
            file.write_table(rows)
    x = rng.normal(size=(1 << 16, _WIDTH))

    def reader() -> None:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            for _ in file.iter_batches(1 << 16):
                pass

    def kernel() -> None:
        from runtime.bulk.plans import in_parallel

        list(in_parallel(plan.run, [x] * 30, THREADS))

    few = folder / "few.parquet"
    pq.write_table(rows.slice(0, 10), few)

    def words(source: Path) -> list[str]:
        places = (folder / "trees.pretzel", source, "--output", folder / "answers.parquet")
        return ["predict", *map(str, places)]

    def predict() -> None:  # in this process: starting one takes longer than a million rows
        with redirect_stdout(io.StringIO()):
            main(words(path))

    calls = {"reader": (reader, count), "kernel": (kernel, 30 * len(x))}
    found = speeds({**calls, "files": (predict, count)})
    print({name: f"{value:,.0f} rows/s" for name, value in found.items()})
    least = min(found["reader"], found["kernel"])
    # Each of them alone has all cores, which they share when one works after the other.
    shared = 1 / (1 / found["reader"] + 1 / found["kernel"])
    print(f"reader and kernel on the same cores: at most {shared / least:.2f} of the slower one")
    yield Goal(
        "Parquet to Parquet, of the slower of reader and kernel", found["files"] / least, 0.7
    )
    more = _peak(_COMMAND.format(words(path))) - _peak(_COMMAND.format(words(few)))
    print(f"{more:,.0f} MiB more for {count:,} rows than for 10")
    yield Goal("300 MiB by the memory that these rows take", 300 / more, 1.0)


_COMMAND = "from runtime.cli import main; main({})"


def _peak(text: str) -> float:
    """The most memory, in MiB, that a process with this program ever had."""
    text += "; print([line for line in open('/proc/self/status') if 'VmHWM' in line][0])"
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return int(done.stdout.split()[-2]) / 1024


# --- clusters -------------------------------------------------------------------------------------


def _clusters(folder: Path) -> Iterator[Goal]:
    """Ray and Spark, in their own environment and process."""
    python = environments.python("integrations")
    if python is None:
        print("Ray and Spark were not measured: run scripts/test-integrations once")
        return
    for name, wanted in (("ray", 0.85), ("spark", 5.0)):
        command = [str(python), "-m", "bench.experiments.bulk_clusters", name, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode:
            print(f"{name} failed: {done.stderr.strip()[-200:]}")
        *said, ratio = done.stdout.strip().splitlines() or ["0"]
        print(*said, sep="\n")
        measured = 0.0 if done.returncode else float(ratio)
        yield Goal(f"{name} against {_PEERS[name]}", measured, wanted)


_PEERS = {"ray": "the same blocks in one process", "spark": "mlflow.pyfunc.spark_udf"}
