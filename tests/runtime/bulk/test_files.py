"""Plans over files of every format: the answers of `predict`, for missing and unseen values too."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from runtime.cli import main
from tests.runtime.bulk.conftest import Known


def as_csv(table: pa.Table, path: Path) -> None:
    """Write a CSV file, in which a missing value is an empty cell."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.column_names)
        writer.writerows(row.values() for row in table.to_pylist())


def as_lines(table: pa.Table, path: Path) -> None:
    """Write a line for each row: an object, a list for a vector, a string for a document."""
    rows: list[object] = table.to_pylist()
    if table.num_columns == 1:
        rows = table[0].to_pylist()
    elif "c0" in table.column_names:
        rows = [list(row) for row in zip(*table.to_pydict().values(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def as_stream(table: pa.Table, path: Path) -> None:
    """Write Arrow's stream."""
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table, max_chunksize=700)


FORMS: dict[str, Callable[[pa.Table, Path], None]] = {
    "csv": as_csv,
    "jsonl": as_lines,
    "parquet": lambda table, path: pq.write_table(table, path, row_group_size=2000),
    "arrow": as_stream,
    "feather": pa.feather.write_feather,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("answers", ["parquet", "arrow"])
def test_answers_are_those_of_predict(
    known: Known, tmp_path: Path, form: str, answers: str
) -> None:
    if form == "csv" and any(pa.types.is_list(kind) for kind in known.table.schema.types):
        pytest.skip("cells of CSV hold no lists")
    rows, plan, output = (tmp_path / name for name in (f"rows.{form}", "m.pretzel", "answers"))
    FORMS[form](known.table, rows)
    known.plan.save(plan)
    ask = ["predict", str(plan), str(rows), "--output", str(output), "--chunk", "900"]
    assert main([*ask, "--output-format", answers]) == 0
    known.check((pq.read_table if answers == "parquet" else pa.feather.read_table)(output))
