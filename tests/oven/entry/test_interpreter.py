"""The layout of objects is measured in every process; what is ambiguous is refused."""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oven.entry import interpreter
from oven.entry.interpreter import object_layout
from tests.house import run_python

FOUND = """
from oven.entry.interpreter import object_layout
print(object_layout() is not None)
"""
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        sys.platform != "linux", reason="entries are for machines that tests run on"
    ),
]


def test_entries_are_there_from_source_and_from_byte_code(tmp_path: Path) -> None:
    """Strings of byte code have no hash until it is asked for, those just compiled have."""
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    assert [run_python(FOUND, environment=kept).strip() for _ in range(2)] == ["True", "True"]
    assert list(tmp_path.rglob("interpreter.*.pyc"))


def test_fields_are_where_they_were_measured() -> None:
    """On objects that were not looked at to measure them."""
    layout = object_layout()
    assert layout is not None

    def field(item: Any, name: str) -> Any:
        dtype, place = layout.offsets[name]
        kind = np.ctypeslib.as_ctypes_type(dtype)
        return kind.from_address(id(item) + np.dtype(dtype).itemsize * place).value

    array, items, pair = np.ones((2, 3, 4))[1:, ::2], [object(), 7, None], (object(), "x", 2.5)
    assert field(array, "ARRAY_DATA") == array.ctypes.data
    assert field(array, "ARRAY_RANK") == array.ndim
    assert field(array, "ARRAY_FLAGS") == array.flags.num
    shape = (ctypes.c_int64 * 3).from_address(field(array, "ARRAY_SHAPE"))
    strides = (ctypes.c_int64 * 3).from_address(field(array, "ARRAY_STRIDES"))
    assert (tuple(shape), tuple(strides)) == (array.shape, array.strides)
    words = (ctypes.c_int64 * 3).from_address(field(items, "LIST_ITEMS"))
    assert [*words] == [*map(id, items)]
    start = id(pair) + 8 * layout.offsets["TUPLE_ITEMS"].place
    assert [*(ctypes.c_int64 * 3).from_address(start)] == [*map(id, pair)]
    assert (field(items, "SIZE"), field(pair, "SIZE"), field(2.5, "FLOAT_VALUE")) == (3, 3, 2.5)
    word = "größe"
    expected = hash(word)  # which is kept in the string from now on
    assert field(word, "STRING_HASH") == expected
    count = field(array, "REFERENCES")
    held = [array, array]
    assert field(array, "REFERENCES") == count + len(held)


def test_a_field_in_several_places_is_refused() -> None:
    """Lists of a length that is also what they have room for do not tell which of both it is."""
    full: list[list[int]] = [[0] * 5, [0] * 9]
    with pytest.raises(interpreter._AmbiguousError, match="SIZE"):
        interpreter._field("SIZE", "int64", [(item, len(item)) for item in full])


def test_a_field_in_no_place_is_refused() -> None:
    values = [(1.5, 1.5), (2.5, 3.5)]
    with pytest.raises(interpreter._AmbiguousError, match="FLOAT_VALUE"):
        interpreter._field("FLOAT_VALUE", "float64", values)


def test_where_a_field_is_not_found_there_are_no_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_of_strings", lambda: interpreter._only("STRING_HASH", ()))
    assert interpreter.object_layout.__wrapped__() is None


@pytest.mark.parametrize(
    "raised", [struct.error, OSError, TypeError, IndexError, ctypes.ArgumentError]
)
def test_where_measuring_fails_there_are_no_entries(
    raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise raised

    monkeypatch.setattr(interpreter, "_of_values", fail)
    assert interpreter.object_layout.__wrapped__() is None


def test_counts_that_say_something_else_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries take a count of one as "only here": of immortal objects it says nothing."""
    shared = type("Shared", (), {"__slots__": (), "__new__": lambda _: None})
    monkeypatch.setattr(interpreter, "object", shared, raising=False)
    with pytest.raises(interpreter._AmbiguousError, match="REFERENCES"):
        interpreter._of_headers()


def test_memory_that_is_not_there_is_not_read() -> None:
    with interpreter._mapped() as readable:
        assert readable(id(object), 8)
        assert not readable(8, 8)
        assert not readable(2**47 - 4096, 8)
