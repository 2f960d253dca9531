"""Plans in Spark, with two local cores."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.runtime.bulk.conftest import Known

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start Spark."""
    sql = pytest.importorskip("pyspark.sql")
    build = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        build = build.config(name, "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    build = build.config("spark.sql.shuffle.partitions", "2")
    build = build.config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
    made = build.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    yield made
    made.stop()


def test_answers_are_those_of_predict(session: Any, known: Known, tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    import runtime.bulk as pretzel

    pq.write_table(known.table, tmp_path / "rows.parquet")
    frame = session.read.parquet(str(tmp_path / "rows.parquet"))
    made = pretzel.spark.predict(frame, known.plan)
    columns = known.table.column_names
    assert made.columns == [*columns, *known.answers]
    known.check(
        pa.Table.from_pylist([row.asDict() for row in made.select(*known.answers).collect()])
    )


def test_only_columns_to_keep_come_back(session: Any, one: Known, tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    import runtime.bulk as pretzel

    more = one.table.append_column("more", pa.array(["x"] * one.table.num_rows))
    pq.write_table(more, tmp_path / "rows.parquet")
    frame = session.read.parquet(str(tmp_path / "rows.parquet"))
    made = pretzel.spark.predict(frame, one.plan, ["label"], keep=["row"])
    assert made.columns == ["row", "label"]
    labels = {row["row"]: row["label"] for row in made.collect()}
    assert [labels[row] for row in range(len(labels))] == one.answers["label"].tolist()
    bare = pretzel.spark.predict(frame, one.plan, ["label"], keep=[])
    assert sorted(row["label"] for row in bare.collect()) == sorted(one.answers["label"].tolist())


def test_no_two_columns_of_one_name(session: Any, one: Known, tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    import runtime.bulk as pretzel
    from runtime.errors import BadCall

    pq.write_table(one.table, tmp_path / "rows.parquet")
    frame = session.read.parquet(str(tmp_path / "rows.parquet")).withColumnRenamed("row", "label")
    with pytest.raises(BadCall, match="name of an output"):
        pretzel.spark.predict(frame, one.plan, keep=["label"])


def test_functions_of_columns(session: Any, one: Known, tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    import runtime.bulk as pretzel

    pq.write_table(one.table, tmp_path / "rows.parquet")
    frame = session.read.parquet(str(tmp_path / "rows.parquet"))
    columns = [name for name in one.table.column_names if name != "row"]
    label = pretzel.spark.udf(session, one.plan, "label")
    both = pretzel.spark.udf(session, one.plan, ["label", "probabilities"])
    rows = frame.select(label(*columns).alias("label"), both(*columns).alias("both")).collect()
    assert [row["label"] for row in rows] == one.answers["label"].tolist()
    shares = np.array([row["both"]["probabilities"] for row in rows])
    assert np.array_equal(shares, one.answers["probabilities"])


def test_a_plan_is_sent_once(session: Any, one: Known) -> None:
    import runtime.bulk as pretzel

    def sent() -> int:
        return len(session.sparkContext.listFiles)

    pretzel.spark.udf(session, one.plan)
    before = sent()
    pretzel.spark.udf(session, one.plan, "label")
    assert sent() == before


def test_a_missing_column_is_told_before_the_job(session: Any, one: Known) -> None:
    import runtime.bulk as pretzel
    from flour.core.errors import MissingColumn

    frame = session.createDataFrame(one.frame.drop(columns="age").iloc[:5])
    for keep in (None, ["row"]):
        with pytest.raises(MissingColumn, match="'age'"):
            pretzel.spark.predict(frame, one.plan, keep=keep)
