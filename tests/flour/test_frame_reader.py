"""Frames read as arrays are what flour.data.coerce makes of them, or are left to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from flour.core.types import FLOATS, Category, Record, Scalar, Text, Type, Vector
from flour.data import pandas_blocks
from flour.data.coerce import coerce, native_types
from flour.data.frame_reader import FrameReader
from flour.data.frames import as_column
from tests.forms import DTYPES, frame_of

LIBRARIES: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "Arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}
MIXES: tuple[tuple[str, ...], ...] = (
    *((dtype, dtype) for dtype in DTYPES),
    ("float64", "int64"),
    ("float64", "float32"),
    ("int64", "uint64"),
    ("string", "string"),
    ("string", "float64", "int64", "bool", "float32"),
    DTYPES,
)


def record_of(dtypes: tuple[str, ...], frame: Any) -> Record:
    return Record(tuple(zip(frame.columns, [Scalar(dtype) for dtype in dtypes], strict=True)))


def check(kind: Vector | Record, frame: Any) -> bool:
    """Whether the frame is read; what is read is what coercion makes of it, in the same types.

    A frame of float64 for a vector of float32 is read in its own, as an array would be.
    """
    inputs: dict[str, Type] = {"x": kind}
    found = FrameReader(kind).read(frame)
    if found is None:
        return False
    own = native_types(inputs, frame)["x"]
    if isinstance(kind, Record) and isinstance(own, Record):
        same = native_types(inputs, found)["x"]
        assert isinstance(same, Record)
        assert all(own[name] == same[name] for name in kind.names if name not in kind.unread)
    else:
        wider = getattr(kind, "dtype", "") == "float32" and own == Vector(2, "float64")
        assert own == kind or wider
    inputs = {"x": own}
    want, _ = coerce(inputs, frame)
    if isinstance(kind, Vector):
        assert isinstance(found, np.ndarray)
        assert found.dtype == want["x"].dtype
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, want["x"])
        return True
    got, _ = coerce(inputs, found)
    assert isinstance(found, dict)
    for name, column in want["x"].items():
        assert as_column(got["x"][name]).dtype == column.dtype
        assert list(map(repr, got["x"][name])) == list(map(repr, column))  # NaN in objects, too
    return True


@pytest.mark.parametrize("rows", [0, 1, 2, 7])
@pytest.mark.parametrize("dtypes", MIXES, ids="-".join)
@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_of_the_programs_own_types(library: str, dtypes: tuple[str, ...], rows: int) -> None:
    frame = frame_of(dtypes, rows)
    made = LIBRARIES[library](frame)
    # A column of strings without any is of another type to polars and Arrow.
    assert check(record_of(dtypes, frame), made) or (rows == 0 and "string" in dtypes)
    for width in FLOATS:
        check(Vector(len(dtypes), width), made)
        check(record_of((width,) * len(dtypes), frame), made)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtypes", [("float64", "int64"), ("int8", "uint8"), ("float64",) * 2])
def test_blocks_of_numbers_are_read(library: str, dtypes: tuple[str, str]) -> None:
    assert check(Vector(2), LIBRARIES[library](frame_of(dtypes)))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", [1, 5])
def test_columns_are_found_by_name_and_may_be_missing_where_nothing_reads_them(
    library: str, rows: int
) -> None:
    frame = frame_of(("string", "float64", "int64"), rows)
    kind = record_of(("string", "float64", "int64"), frame)
    assert check(kind, LIBRARIES[library](frame[list(reversed(frame.columns))]))
    assert not check(kind, LIBRARIES[library](frame.iloc[:, :2]))
    for more in (1, 0.5, "x", True, pd.Timestamp("2020-01-01")):
        assert check(kind, LIBRARIES[library](frame.assign(more=more)))
    last = frame.columns[2]
    assert check(Record(kind.fields, unread=(last,)), LIBRARIES[library](frame.iloc[:, :2]))
    renamed = frame.iloc[:, :2].set_axis(["a", "b"], axis=1)
    assert check(Record(kind.fields[:2], positional=True), LIBRARIES[library](renamed))


@pytest.mark.parametrize("rows", [1, 3])
def test_whole_numbers_stay_exact_beside_fractions(rows: int) -> None:
    number = 2**60 + 1
    frame = pd.DataFrame({"a": [number] * rows, "b": [0.5] * rows})
    found = FrameReader(record_of(("int64", "float64"), frame)).read(frame)
    assert isinstance(found, dict)
    assert found["a"].tolist() == [number] * rows


HOLES: dict[str, Any] = {
    "pandas": pd.DataFrame({"n": [1.5, np.nan], "s": ["a", None]}),
    "pandas, nullable": pd.DataFrame({"n": [1, 2], "s": ["a", None]}).astype({"n": "Int64"}),
    "pandas, category": pd.DataFrame({"n": [1.0, 2.0], "s": ["a", "b"]}).astype({"s": "category"}),
    "pandas, category, missing": pd.DataFrame(
        {"n": [1.0, 2.0], "s": pd.Categorical(["b", None], ["b", "a", "é"], ordered=True)}
    ),
    "pandas, category of objects": pd.DataFrame(
        {"n": [1.0, 2.0], "s": pd.Categorical(["b", None], pd.Index(["b", "a"], dtype=object))}
    ),
    "pandas, category of any": pd.DataFrame(
        {"n": [1.0, 2.0], "s": pd.Categorical(["b", 1], pd.Index(["b", 1], dtype=object))}
    ),
    "pandas, category of numbers": pd.DataFrame(
        {"n": [1.0, 2.0], "s": pd.Categorical([1, None], [1, 2])}
    ),
    "pandas, category of nothing": pd.DataFrame(
        {"n": [1.0, 2.0], "s": pd.Categorical([None, None], pd.Index([], dtype="str"))}
    ),
    "pandas, nullable, whole": pd.DataFrame({"n": [1, 2], "s": ["a", "b"]}).astype({"n": "Int64"}),
    "pandas, nullable, missing": pd.DataFrame({"n": pd.array([1, None], "Int64"), "s": ["a", "b"]}),
    "pandas, nullable floats": pd.DataFrame(
        {"n": pd.array([1.5, None], "Float64"), "s": ["a", "b"]}
    ),
    "pandas, nullable bools": pd.DataFrame(
        {"n": pd.array([True, False], "boolean"), "s": ["a", "b"]}
    ),
    "pandas, nullable float32": pd.DataFrame({"n": pd.array([1.5, 2], "Float32"), "s": ["a", "b"]}),
    **{
        f"pandas, Arrow's {kind}{' missing' * missing}": pd.DataFrame(
            {
                "n": pd.array([value, None if missing else value], f"{kind}[pyarrow]"),
                "s": pd.array(["a", None if missing else "b"], "string[pyarrow]"),
            }
        )
        for kind, value in (("int64", 1), ("double", 1.5), ("bool", True), ("float", 0.5))
        for missing in (False, True)
    },
    "pandas, Arrow's strings": pd.DataFrame(
        {"n": [1.0, 2.0], "s": pd.array(["a", None], pd.ArrowDtype(pa.string()))}
    ),
    "pandas, other byte order": pd.DataFrame({"n": np.ones(2, ">f8"), "s": ["a", "b"]}),
    "polars": pl.DataFrame({"n": [1.5, None], "s": ["a", None]}),
    "polars, category": pl.DataFrame(
        {"n": [1.5, None], "s": pl.Series(["a", None], dtype=pl.Categorical)}
    ),
    "polars, enum": pl.DataFrame(
        {"n": [1.5, None], "s": pl.Series(["a", None], dtype=pl.Enum(["b", "a"]))}
    ),
    "polars, whole": pl.DataFrame({"n": [1, None], "s": ["a", None]}),
    "polars, bool": pl.DataFrame({"n": [True, None], "s": ["a", None]}),
    "Arrow": pa.table({"n": [1.5, None], "s": ["a", None]}),
    "Arrow, whole": pa.table({"n": [1, None], "s": ["a", None]}),
    "Arrow, bool": pa.table({"n": [True, None], "s": ["a", None]}),
    "Arrow, dictionary, missing": pa.table(
        {"n": [1.0, 2.0], "s": pa.array(["a", None]).dictionary_encode()}
    ),
    "Arrow, dictionary of numbers": pa.table(
        {"n": [1.0, 2.0], "s": pa.array([1, 2]).dictionary_encode()}
    ),
    "Arrow, dictionary": pa.table({"n": [1.0, 2.0], "s": pa.array(["a", "b"]).dictionary_encode()}),
}


#: In which types of the first column frames are read.
_ANY = ("float64", "float32", "int64", "bool")  # arrays of numpy's own types always are
_READ = {
    **dict.fromkeys(("pandas", "pandas, category", "pandas, category, missing"), _ANY),
    **dict.fromkeys(("pandas, category of objects", "pandas, category of nothing"), _ANY),
    **dict.fromkeys(("polars", "Arrow", "polars, category", "polars, enum"), ("float64",)),
    **dict.fromkeys(("Arrow, dictionary", "Arrow, dictionary, missing"), ("float64",)),
    **dict.fromkeys(("pandas, nullable", "pandas, nullable, whole"), ("float64", "int64")),
    **dict.fromkeys(("pandas, Arrow's double", "pandas, Arrow's double missing"), ("float64",)),
    "pandas, Arrow's int64": ("float64", "int64"),
    "pandas, Arrow's bool": ("float64", "bool"),
    "pandas, Arrow's strings": _ANY,
    "pandas, nullable floats": ("float64",),
    "pandas, nullable bools": ("float64", "bool"),
}


def test_frames_with_other_categories_are_told_apart() -> None:
    kind = Record((("n", Scalar("float64")), ("s", Category("string"))))
    reader = FrameReader(kind)
    for name in ("category", "category of numbers", "category of any", "category, missing"):
        frame = HOLES[f"pandas, {name}"]
        found = reader.read(frame)
        assert (found is not None) == (f"pandas, {name}" in _READ)
        if found is not None:
            assert isinstance(found, dict)
            assert list(map(repr, found["s"])) == list(map(repr, frame["s"].to_numpy()))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
@pytest.mark.parametrize("name", HOLES)
def test_missing_values_and_other_types(name: str, dtype: str) -> None:
    kind = Record((("n", Scalar(dtype)), ("s", Category("string"))))
    read = check(kind, HOLES[name])
    assert read == (dtype in _READ.get(name, ()))
    for one in (HOLES[name][:1], HOLES[name][1:]):
        check(kind, one)


def test_what_is_left_to_coercion() -> None:
    frame = pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])
    assert FrameReader(Vector(2)).read(frame) is None
    assert FrameReader(Vector(2, "string")).read(frame) is None
    assert FrameReader(Vector(2, sparse=True)).read(pd.DataFrame([[1.0, 2.0]])) is None
    assert FrameReader(Vector(3)).read(pd.DataFrame([[1.0, 2.0]])) is None
    assert FrameReader(Vector(2)).read([[1.0, 2.0]]) is None

    class Other(pd.DataFrame):  # type: ignore[misc]  # pandas is untyped
        pass

    assert FrameReader(Vector(2)).read(Other([[1.0, 2.0]])) is None


@pytest.mark.parametrize("rows", [1, 70])
def test_pandas_blocks_in_any_order(rows: int) -> None:
    dtypes = ("float64", "string", "float64", "int64", "float64", "string", "float64")
    frame = frame_of(dtypes, rows)
    kind = record_of(dtypes, frame)
    added = frame.iloc[:, :2].copy()
    for name in frame.columns[2:]:
        added[name] = frame[name].to_numpy()
    mixed = frame[[frame.columns[place] for place in (4, 0, 5, 6, 3, 1, 2)]]
    reader = FrameReader(kind)
    for each in (frame, added, mixed, frame[::-1], frame.copy(), mixed.T.T.infer_objects()):
        assert check(kind, each)
        found = reader.read(each)
        assert isinstance(found, dict)
        assert {name: as_column(part).tolist() for name, part in found.items()} == each.to_dict(
            "list"
        )
    widened = frame.astype({frame.columns[3]: "float64"})
    wide, own = reader.read(widened), reader.read(frame)
    assert isinstance(wide, dict)
    assert isinstance(own, dict)
    name = frame.columns[3]
    assert (wide[name].dtype.name, own[name].dtype.name) == ("float64", "int64")
    assert check(kind, widened)


def test_labels_that_are_equal_but_written_differently() -> None:
    reader = FrameReader(Record((("True", Scalar()), ("b", Scalar()))))
    for label, known in ((1, False), (True, True), (1.0, False), ("True", True)):
        index = pd.Index([label, "b"], dtype=object)
        found = reader.read(pd.DataFrame([[1.0, 2.0]], columns=index))
        assert (found is not None) == known


@pytest.mark.parametrize("other", [lambda own: own[::-1], lambda own: own.missing])
def test_pandas_that_keeps_its_blocks_otherwise_is_left_to_coercion(
    monkeypatch: pytest.MonkeyPatch, other: Callable[[Any], Any]
) -> None:
    frame, arrays = pd.DataFrame({"a": [1.0], "b": [2.0]}), pandas_blocks.arrays
    kind = Record((("a", Scalar()), ("b", Scalar())))
    assert FrameReader(kind).read(frame) is not None, "the trial fails with this pandas"
    pandas_blocks._manager.cache_clear()
    with monkeypatch.context() as changed:
        changed.setattr(pandas_blocks, "arrays", lambda given: [*map(other, arrays(given))])
        assert FrameReader(kind).read(frame) is None
    pandas_blocks._manager.cache_clear()
    assert FrameReader(kind).read(frame) is not None


def test_one_reader_reads_frames_of_every_library_in_turn() -> None:
    frame = frame_of(("float64", "string"), 3)
    reader = FrameReader(record_of(("float64", "string"), frame))
    for _ in range(2):
        for make in LIBRARIES.values():
            for rows in (frame, frame.head(1), frame[list(reversed(frame.columns))]):
                found = reader.read(make(rows))
                assert isinstance(found, dict)
                for name in frame.columns:
                    assert found[name].tolist() == rows[name].tolist()


def test_categories_after_objects() -> None:
    frame = frame_of(("string", "float64"), 5)
    objects = frame.astype({frame.columns[0]: object})
    reader = FrameReader(record_of(("string", "float64"), frame))
    for each in (objects, frame.astype({frame.columns[0]: "category"}), objects):
        found = reader.read(each)  # numpy says that its dtype of objects equals any class
        assert isinstance(found, dict)
        assert found["c0 string"].tolist() == objects.iloc[:, 0].tolist()


def test_documents_in_a_column() -> None:
    kind = Record((("t", Text()), ("n", Scalar("float64"))))
    assert check(kind, pd.DataFrame({"n": [1.0], "t": ["one two"]}))
