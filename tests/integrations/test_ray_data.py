"""Plans in Ray Data, on a real local cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.house import ROOT
from tests.runtime.bulk.conftest import Known

pytestmark = pytest.mark.integrations


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start Ray with two workers."""
    ray = pytest.importorskip("ray")
    variables = {"PYTHONPATH": str(ROOT), "PRETZEL_CACHE": os.environ.get("PRETZEL_CACHE", "")}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        logging_level="ERROR",
        object_store_memory=200 << 20,
        runtime_env={"env_vars": variables},
    )
    yield ray
    ray.shutdown()


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
