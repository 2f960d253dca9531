"""CSV and JSON lines in gzip and Zstandard; the types of kept columns; files without a byte."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flour
import oven
from tests.runtime.cli.conftest import Pretzel

ROWS = 2500


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a linear model of two columns, into which the test goes."""
    monkeypatch.chdir(tmp_path)
    program = flour.vector("x", 2).linear([[1.0, 2.0]], [0.5])
    oven.bake(program).save(tmp_path / "m.pretzel")
    return tmp_path


def text(form: str) -> bytes:
    """Return rows of numbers."""
    x = np.random.default_rng(0).normal(size=(ROWS, 2)).tolist()
    if form == "csv":
        return b"a,b\n" + b"".join(f"{a},{b}\n".encode() for a, b in x)
    return b"".join(json.dumps(row).encode() + b"\n" for row in x)


def zstd(raw: bytes) -> bytes:
    """Return the bytes compressed by Zstandard."""
    packed: bytes = pa.compress(raw, codec="zstd", asbytes=True)
    return packed


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstd,
    "GZ": gzip.compress,
}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_files_are_read_and_written(pretzel: Pretzel, ending: str, form: str) -> None:
    raw = text(form)
    Path(f"rows.{form}").write_bytes(raw)
    half = len(raw) // 2
    several = COMPRESS[ending](raw[:half]) + COMPRESS[ending](raw[half:])
    Path(f"rows.{form}.{ending}").write_bytes(several)
    assert pretzel("predict", "m.pretzel", f"rows.{form}", "--output", f"a.{form}").code == 0
    ask = ("predict", "m.pretzel", f"rows.{form}.{ending}", "--output", f"a.{form}.{ending}")
    ran = pretzel(*ask)
    assert ran.code == 0, ran.err
    made = Path(f"a.{form}.{ending}").read_bytes()
    file = pa.CompressedInputStream(pa.BufferReader(made), "zstd")
    plain = file.read() if ending == "zst" else gzip.decompress(made)
    assert plain == Path(f"a.{form}").read_bytes()


@pytest.mark.usefixtures("place")
def test_a_folder_may_have_both(pretzel: Pretzel) -> None:
    raw = text("csv")
    Path("rows").mkdir()
    for name, data in (("0.csv.gz", gzip.compress(raw)), ("1.csv", raw), ("2.csv.zst", zstd(raw))):
        (Path("rows") / name).write_bytes(data)
    ran = pretzel("predict", "m.pretzel", "rows", "--output", "a.parquet")
    assert ran.code == 0, ran.err
    assert pq.read_table("a.parquet").num_rows == 3 * ROWS


DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "cut short": lambda packed, _: packed[:-9],
    "half": lambda packed, _: packed[: len(packed) // 2],
    "second member": lambda packed, _: packed + packed[:-9],
    "garbage behind": lambda packed, _: packed + b"garbage",
    "not compressed": lambda _, raw: raw,
    "nothing": lambda *_: b"",
}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("ending", ["csv.gz", "jsonl.gz", "csv.zst", "jsonl.zst"])
def test_damage_is_told(pretzel: Pretzel, damage: str, ending: str) -> None:
    form, _, kind = ending.partition(".")
    raw = text(form)
    rows = Path(f"rows.{ending}")
    rows.write_bytes(DAMAGE[damage](COMPRESS[kind](raw), raw))
    for more in ((), ("--on-error", "skip")):
        ran = pretzel("predict", "m.pretzel", rows, "--output", "a.csv", *more)
        assert ran.code in {1, 5}
        assert str(rows) in ran.err
        assert "damaged, or cut short" in ran.err
        assert not Path("a.csv").exists()


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("policy", [(), ("--on-error", "skip")])
def test_flipped_bits_leave_no_answers(pretzel: Pretzel, policy: tuple[str, ...]) -> None:
    packed = bytearray(gzip.compress(text("csv")))
    packed[len(packed) // 2] ^= 255
    Path("rows.csv.gz").write_bytes(packed)
    assert pretzel("predict", "m.pretzel", "rows.csv.gz", "--output", "a.csv", *policy).code == 1
    assert not Path("a.csv").exists()


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("ending", ["parquet.gz", "arrow.zst", "gz"])
def test_what_is_not_compressed_as_a_whole(pretzel: Pretzel, ending: str) -> None:
    Path("rows.csv").write_bytes(text("csv"))
    Path(f"rows.{ending}").write_bytes(b"x")
    assert pretzel("predict", "m.pretzel", "rows.csv", "--output", f"a.{ending}").code == 1
    assert pretzel("predict", "m.pretzel", f"rows.{ending}", "--output", "a.csv").code == 1
    assert not Path("a.csv").exists()


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("raw", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_a_file_without_a_line_is_an_error(pretzel: Pretzel, raw: bytes) -> None:
    for name in ("rows.csv", "rows.tsv"):
        Path(name).write_bytes(raw)
        ran = pretzel("predict", "m.pretzel", name, "--output", "a.csv")
        assert ran.code == 1
        assert "this file is empty" in ran.err
        assert name in ran.err
        assert not Path("a.csv").exists()


CELLS = {
    "id": (["1", "-20", "9223372036854775807"], pa.int64(), [1, -20, 2**63 - 1]),
    "some": (["1", "", "NA"], pa.int64(), [1, None, None]),
    "late": (["1", "2", "x"], pa.string(), ["1", "2", "x"]),
    "part": (["1", "2.50", "1e3"], pa.float64(), [1.0, 2.5, 1000.0]),
    "flag": (["True", "false", ""], pa.bool_(), [True, False, None]),
    "zip": (["0123", "10", "20"], pa.string(), ["0123", "10", "20"]),
    "plus": (["+1", "2", "3"], pa.string(), ["+1", "2", "3"]),
    "large": (["9223372036854775808", "1", "2"], pa.string(), ["9223372036854775808", "1", "2"]),
    "both": (["9007199254740993", "0.5", "1"], pa.string(), ["9007199254740993", "0.5", "1"]),
    "none": (["", "NA", ""], pa.string(), ["", "NA", ""]),
    "day": (["2026-01-01", "", "x"], pa.string(), ["2026-01-01", "", "x"]),
}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv"])
@pytest.mark.parametrize("chunk", [1, 100])
def test_kept_columns_have_their_types(pretzel: Pretzel, ending: str, chunk: int) -> None:
    sign = "\t" if ending == "tsv" else ","
    lines = [["a", "b", *CELLS]]
    lines += [["1", "2", *(cells[row] for cells, *_ in CELLS.values())] for row in range(3)]
    raw = "".join(sign.join(line) + "\n" for line in lines).encode()
    Path(f"rows.{ending}").write_bytes(gzip.compress(raw) if ending.endswith("gz") else raw)
    keep = [word for name in CELLS for word in ("--keep", name)]
    for output in ("a.parquet", "a.arrow", "a.jsonl", "a.csv"):
        ask = ("predict", "m.pretzel", f"rows.{ending}", "--output", output, "--chunk", chunk)
        ran = pretzel(*ask, *keep)
        assert ran.code == 0, ran.err
    for table in (pq.read_table("a.parquet"), pa.ipc.open_file("a.arrow").read_all()):
        for name, (_, kind, values) in CELLS.items():
            assert table[name].type == kind, name
            assert table[name].to_pylist() == values, name
    objects = [json.loads(line) for line in Path("a.jsonl").read_text("utf-8").splitlines()]
    assert all([each[n] for each in objects] == values for n, (_, _, values) in CELLS.items())
    assert Path("a.csv").read_text("utf-8").splitlines()[1].startswith("1,1,1,1,True,0123,+1")


@pytest.mark.usefixtures("place")
def test_of_a_pipe_the_first_rows_say_the_types(
    pretzel: Pretzel, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    def ask(raw: bytes) -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        words = ("predict", "m.pretzel", "-", "--format", "csv", "--keep", "id", "--chunk", 2)
        return pretzel(*words, "--output", "a.parquet").code

    assert ask(b"a,b,id\n1,2,7\n1,2,\n1,2,8\n") == 0
    assert pq.read_table("a.parquet")["id"].to_pylist() == [7, None, 8]
    assert ask(b"a,b,id\n1,2,7\n1,2,\n1,2,x\n") == 1
    assert ask(b"") == 1
