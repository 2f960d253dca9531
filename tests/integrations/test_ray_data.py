"""Plans in Ray Data, on a real local cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.runtime.bulk.conftest import Known

pytestmark = pytest.mark.integrations


def answers(cluster: Any, rows: pa.Table, function: Any) -> pa.Table:
    """Return what `map_batches` makes of rows, in their order."""
    made = cluster.data.from_arrow(rows).map_batches(
        function, batch_format="pyarrow", batch_size=700
    )
    return pa.concat_tables(cluster.get(made.to_arrow_refs()))


def test_answers_are_those_of_predict(cluster: Any, known: Known) -> None:
    import runtime.bulk as pretzel

    known.check(answers(cluster, known.table, pretzel.ray.batch(known.plan)))


def test_columns_are_kept_and_outputs_chosen(cluster: Any, one: Known) -> None:
    import runtime.bulk as pretzel

    made = answers(cluster, one.table, pretzel.ray.batch(one.plan, ["label"], keep=["row"]))
    assert made.column_names == ["row", "label"]
    labels = dict(zip(made["row"].to_pylist(), made["label"].to_pylist(), strict=True))
    assert [labels[row] for row in range(len(labels))] == one.answers["label"].tolist()


def test_what_is_sent_is_small(cluster: Any, one: Known) -> None:
    from ray import cloudpickle

    import runtime.bulk as pretzel

    assert cluster.is_initialized()
    assert len(cloudpickle.dumps(pretzel.ray.batch(one.plan))) < 2000


def test_predict_reads_what_the_plan_reads(cluster: Any, one: Known, tmp_path: Path) -> None:
    import runtime.bulk as pretzel

    more = one.table.append_column("more", pa.array(["x"] * one.table.num_rows))
    pq.write_table(more, tmp_path / "rows.parquet")
    data = cluster.data.read_parquet(str(tmp_path / "rows.parquet"))
    made = pretzel.ray.predict(data, one.plan, ["label"], keep=["row"])
    (read,) = made._logical_plan.dag.input_dependencies
    assert "more" not in read.infer_schema().names
    labels = {row["row"]: row["label"] for row in made.take_all()}
    assert [labels[row] for row in range(len(labels))] == one.answers["label"].tolist()
    whole = pretzel.ray.predict(data, one.plan).materialize()
    assert whole.columns() == [*more.column_names, *one.answers]


def test_predict_gives_a_task_several_blocks(cluster: Any, one: Known) -> None:
    import runtime.bulk as pretzel

    parts = [one.table.slice(at * 20, 20) for at in range(10)]
    data = cluster.data.from_arrow(parts).materialize()
    assert pretzel.ray.predict(data, one.plan).materialize().num_blocks() == 1
    assert pretzel.ray.predict(data, one.plan, batch_size=50).materialize().num_blocks() > 1


def test_no_two_columns_of_one_name(cluster: Any, one: Known) -> None:
    import runtime.bulk as pretzel
    from runtime.errors import BadCall

    names = ["label" if name == "row" else name for name in one.table.column_names]
    data = cluster.data.from_arrow(one.table.rename_columns(names))
    with pytest.raises(BadCall, match="name of an output"):
        pretzel.ray.predict(data, one.plan)
    function = pretzel.ray.batch(one.plan, keep=None)
    with pytest.raises(BadCall, match="name of an output"):
        function(one.table.rename_columns(names))


def test_no_rows_have_the_columns_of_answers(cluster: Any, one: Known) -> None:
    import runtime.bulk as pretzel

    assert cluster.is_initialized()
    made = pretzel.ray.batch(one.plan, ["label"], keep=["row"])(one.table.slice(0, 0))
    assert made.column_names == ["row", "label"]
    assert made.num_rows == 0


@pytest.mark.parametrize("form", ["arrow", "pandas", "items"])
def test_a_dataset_without_rows_has_the_columns_of_answers(
    cluster: Any, one: Known, form: str
) -> None:
    import runtime.bulk as pretzel

    none = one.table.slice(0, 0)
    data = {
        "arrow": lambda: cluster.data.from_arrow(none),
        "pandas": lambda: cluster.data.from_pandas(none.to_pandas()),
        "items": lambda: cluster.data.from_items([]),
    }[form]()
    made = pretzel.ray.predict(data, one.plan, ["label"])
    kept = [] if form == "items" else none.column_names
    assert made.columns() == [*kept, "label"]
    assert made.count() == 0


def test_a_missing_column_is_told_before_the_job(cluster: Any, one: Known) -> None:
    import runtime.bulk as pretzel
    from flour.core.errors import MissingColumn

    rows = cluster.data.from_arrow(one.table.drop_columns("age"))
    for keep in (None, ["row"]):
        with pytest.raises(MissingColumn, match="'age'"):
            pretzel.ray.predict(rows, one.plan, keep=keep)
