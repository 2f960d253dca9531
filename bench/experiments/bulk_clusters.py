"""Ray and Spark for `bench.experiments.bulk`, in an environment of their own.

Prints what the library costs without a model, and how many times as fast as its peer the
integration is, as the last word:

    python -m bench.experiments.bulk_clusters ray|spark FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.experiments.bulk import THREADS, by_blocks, speeds
from bench.machine import ROOT

#: The rows of the file so many times, so that starting tasks is not all that is measured.
TIMES = 40

#: Rounds of each call: Spark's own code gets faster for the first three.
ROUNDS = 5


def ray(folder: Path) -> float:
    """Ray Data against the same blocks by threads of one process."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray as library

    import oven
    import runtime.bulk as pretzel

    variables = {"PYTHONPATH": str(ROOT), "PRETZEL_CACHE": os.environ.get("PRETZEL_CACHE", "")}
    library.init(
        address="local",
        num_cpus=THREADS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": variables},
    )
    library.data.DataContext.get_current().enable_progress_bars = False
    plan = oven.load(folder / "census.pretzel").wait()
    rows = pa.concat_tables([pq.read_table(folder / "census.parquet")] * TIMES)
    parts = rows.num_rows // 16
    data = library.data.from_arrow([rows.slice(at * parts, parts) for at in range(16)])
    data = data.materialize()
    size = pretzel.ray.task_rows(plan)
    total = rows.num_rows

    def made() -> Any:
        return pretzel.ray.predict(data, plan, ["scores"], keep=[]).materialize()

    def alone() -> Any:
        whole = data.map_batches(_one_column, batch_format="pyarrow", batch_size=size)
        return whole.materialize()

    whole = rows.combine_chunks()
    found = speeds(
        {
            "ours": (made, total),
            "without a model": (alone, total),
            "blocks": (by_blocks(plan, whole, parts), total),
            "blocks of 16,384 rows": (by_blocks(plan, whole), total),
        },
        rounds=ROUNDS,
    )
    model, library_alone = 1 / found["blocks"], 1 / found["without a model"]
    limit = model / (model + library_alone)
    _say("Ray Data", found, f"the model and its own work one after the other {limit:.2f} of blocks")
    return found["ours"] / found["blocks"]


def _one_column(table: Any) -> Any:
    """A column of the table: as many values as the scores, without a model."""
    return table.select(["age"])


def _say(library: str, found: Mapping[str, float], limit: str) -> None:
    print(library, {name: f"{value:,.0f} rows/s" for name, value in found.items()})
    print(f"{library}: {limit}")


def spark(folder: Path) -> float:
    """Spark over Arrow against MLflow's function of the same model."""
    import joblib
    import mlflow
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import struct
    from pyspark.sql.functions import sum as total

    import oven
    import runtime.bulk as pretzel

    os.environ |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    build: Any = SparkSession.builder.master(f"local[{THREADS}]").config(
        "spark.ui.enabled", "false"
    )
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        build = build.config(name, "127.0.0.1")
    session = build.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    plan = oven.load(folder / "census.pretzel").wait()
    paths = [str(folder / "census.parquet")]
    # Both have the same rows, so that starting tasks weighs as much for one as for the other.
    frame = session.read.parquet(*(paths * TIMES)).repartition(THREADS).cache()
    count = frame.count()
    model = joblib.load(folder / "census.joblib")
    mlflow.sklearn.save_model(model, folder / "mlflow", serialization_format="cloudpickle")
    theirs = mlflow.pyfunc.spark_udf(
        session, str(folder / "mlflow"), "boolean", env_manager="local"
    )

    def ours() -> Any:
        made = pretzel.spark.predict(frame, plan, ["label"], keep=[])
        return made.agg(total(made["label"].cast("long"))).collect()

    def peer() -> Any:
        return frame.agg(total(theirs(struct(*frame.columns)).cast("long"))).collect()

    def alone() -> Any:
        return frame.mapInArrow(_first_column, "age double").agg(total("age")).collect()

    if ours() != peer():
        raise AssertionError("the plan and MLflow's model count different rows")
    calls: dict[str, Any] = {"ours": ours, "without a model": alone, "mlflow": peer}
    found = speeds({name: (call, count) for name, call in calls.items()}, rounds=ROUNDS)
    session.stop()
    limit = found["without a model"] / found["mlflow"]
    _say("Spark", found, f"without a model {limit:.2f} times the rows of MLflow's function")
    return found["ours"] / found["mlflow"]


def _first_column(batches: Iterator[Any]) -> Iterator[Any]:
    """The numbers of the first column: as many as there are answers, without a model."""
    for batch in batches:
        yield batch.select(["age"])


MEASURES: dict[str, Callable[[Path], float]] = {"ray": ray, "spark": spark}

if __name__ == "__main__":
    print(MEASURES[sys.argv[1]](Path(sys.argv[2])))
