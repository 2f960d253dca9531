"""Ray and Spark for `bench.experiments.bulk`, in an environment of their own.

Prints how many times as fast as its peer the integration is:

    python -m bench.experiments.bulk_clusters ray|spark FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.experiments.bulk import THREADS, by_blocks, speeds
from bench.machine import ROOT

#: The rows of the file so many times, so that starting tasks is not all that is measured.
TIMES = 40


def ray(folder: Path) -> float:
    """Ray Data against the same blocks by threads of one process."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray as library

    import oven
    import runtime.bulk as pretzel

    variables = {"PYTHONPATH": str(ROOT), "PRETZEL_CACHE": os.environ.get("PRETZEL_CACHE", "")}
    library.init(
        num_cpus=THREADS,
        include_dashboard=False,
        logging_level="ERROR",
        runtime_env={"env_vars": variables},
    )
    library.data.DataContext.get_current().enable_progress_bars = False
    plan = oven.load(folder / "census.pretzel").wait()
    rows = pa.concat_tables([pq.read_table(folder / "census.parquet")] * TIMES)
    parts = rows.num_rows // 16
    data = library.data.from_arrow([rows.slice(at * parts, parts) for at in range(16)])
    data = data.materialize()
    function = pretzel.ray.batch(plan, ["scores"])

    def made() -> Any:
        whole = data.map_batches(function, batch_format="pyarrow", batch_size=None)
        return whole.materialize()

    found = speeds(
        {
            "ray": (made, rows.num_rows),
            "block": (by_blocks(plan, rows.combine_chunks(), parts), rows.num_rows),
        },
        rounds=3,
    )
    print(found, file=sys.stderr)
    return found["ray"] / found["block"]


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
    frame = session.read.parquet(*(paths * 8)).repartition(THREADS).cache()
    count = frame.count()
    model = joblib.load(folder / "census.joblib")
    mlflow.sklearn.save_model(model, folder / "mlflow", serialization_format="cloudpickle")
    theirs = mlflow.pyfunc.spark_udf(
        session, str(folder / "mlflow"), "boolean", env_manager="local"
    )

    def ours() -> Any:
        made = pretzel.spark.predict(frame, plan, ["scores"], keep=[])
        return made.agg(total("scores")).collect()

    def peer() -> Any:
        return frame.agg(total(theirs(struct(*frame.columns)).cast("long"))).collect()

    found = speeds({"ours": (ours, count), "peer": (peer, count)}, rounds=3)
    print(found, file=sys.stderr)
    session.stop()
    return found["ours"] / found["peer"]


MEASURES: dict[str, Callable[[Path], float]] = {"ray": ray, "spark": spark}

if __name__ == "__main__":
    print(MEASURES[sys.argv[1]](Path(sys.argv[2])))
