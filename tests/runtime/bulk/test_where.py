"""Conditions on rows: what they select, in memory and in files, and how wrong ones are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from runtime.bulk.files import FileSource
from runtime.bulk.where import RowCondition
from runtime.errors import BadCall

ROWS = pa.record_batch(
    {
        "age": pa.array([20.0, None, 40.0, 60.0]),
        "city": pa.array(["Oslo", "Graz", None, "Rome"]),
        "new": pa.array([True, False, None, True]),
        "odd name": pa.array([1, 2, 3, 4]),
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("age > 30", [3, 4]),
        ("not age > 30", [1]),
        ("30 < age <= 40", [3]),
        ("age != 20", [3, 4]),
        ("-1 < age < 30", [1]),
        ("age is None", [2]),
        ("age is not None and city == 'Rome'", [4]),
        ("city in ['Oslo', 'Graz']", [1, 2]),
        ("city not in ('Oslo', 'Graz')", [4]),
        ("not city in ['Oslo']", [2, 4]),
        ("new", [1, 4]),
        ("not new or column('odd name') == 3", [2, 3]),
        ("column('odd name') >= 2.5", [3, 4]),
    ],
)
def test_rows_are_selected(text: str, rows: list[int]) -> None:
    found, places = RowCondition(text).matching(ROWS)
    assert found["odd name"].to_pylist() == [place + 1 for place in places] == rows


def selected(text: str) -> object:
    """Return the rows that a condition selects, whose columns are checked before."""
    where = RowCondition(text)
    where.check(ROWS.schema.names, "ROWS")
    return where.matching(ROWS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age >", "this is no condition"),
        ("age > f(3)", r"'f\(3\)' is not known"),
        ("age > b and new", "no column 'b' .*\n.*ROWS"),
        ("age > 99999999999999999999", "this is no condition"),
        ("city in ['Oslo', 3]", "this is no condition"),
        ("age + 1 > 2", "this is no condition"),
        ("age is 3", "'3' is not known"),
        ("age > b'x'", "no number and no string"),
        ("age in 3", "'3' is not known"),
        ("(" * 4000, "this is no condition"),
        ("height > 3", "no column 'height'"),
        ("city > 3", "(?s)does not fit the columns.*'city > 3', where city is a string"),
        ("age", "(?s)does not fit the columns.*age is a double.*alone it has to be bool"),
    ],
)
def test_mistakes_are_told(text: str, said: str) -> None:
    with pytest.raises(BadCall, match=said) as caught:
        selected(text)
    assert "place" not in str(caught.value)
    assert " at 0x" not in str(caught.value)


def test_hints_for_folders_are_about_folders() -> None:
    """The values in paths are strings; a mistake about a column of the file is another one."""
    with pytest.raises(BadCall, match="the values of folders are strings"):
        RowCondition("city == 3").matching(ROWS, ["city"])
    with pytest.raises(BadCall, match="of its own type"):
        RowCondition("city == 3").matching(ROWS, ["year"])


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_files_are_read_where_it_holds(tmp_path: Path, form: str) -> None:
    """The rows keep their numbers, and those that were answered before are left out."""
    for number in range(2):
        table = pa.table({"n": np.arange(100), "m": np.arange(100) % 2})
        path = tmp_path / f"part={number}" / f"rows.{form}"
        path.parent.mkdir()
        if form == "parquet":
            pq.write_table(table, path, row_group_size=30)
        else:
            pa.feather.write_feather(table, path)
    where = RowCondition("n >= 80 and m == 1 and part == '1' or n == 3")
    read = FileSource(str(tmp_path), form, lambda names: names, 4, where)
    wanted = [("0", 3), ("1", 3), *(("1", n) for n in range(81, 100, 2))]
    found: list[tuple[str, int]] = []
    lines: list[int] = []
    for each in read.read():
        found += zip(each.batch["part"].to_pylist(), each.batch["n"].to_pylist(), strict=True)
        lines += each.lines
    assert found == wanted
    assert lines == [n + 1 for _, n in wanted]
    whole = list(read.read())
    batches = [len(each.batch) for each in whole]
    for skip in (sum(batches[:place]) for place in range(len(batches) + 1)):
        rest = [value for each in read.read(skip) for value in each.batch["n"].to_pylist()]
        assert rest == [n for _, n in wanted][skip:]
    assert whole[-1].done == 200


def test_row_groups_in_which_it_cannot_hold_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": np.arange(100)}), path, row_group_size=10)
    decoded: list[int] = []
    batches = pq.ParquetFile.iter_batches

    def watched(file: pq.ParquetFile, *rows: int, **how: list[int]) -> object:
        decoded.extend(how["row_groups"])
        return batches(file, *rows, **how)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    read = list(
        FileSource(str(path), "parquet", lambda names: names, 4, RowCondition("n > 85")).read()
    )
    assert decoded == [8, 9]
    assert [line for each in read for line in each.lines] == list(range(87, 101))
