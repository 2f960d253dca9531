"""Rows of Arrow for exports in C, and a program that gives them to one: see test_arrow.py.

python -m tests.oven.export.arrowed table LIBRARY FOLDER OUTPUTS
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

#: No text has more bytes, but the one of the variant that is too long.
LONGEST = 40
_COUNT = 300


def variants(name: str) -> dict[str, Any]:
    """Struct arrays for the model of this name."""
    if name == "table":
        return _tables()
    if name == "lightgbm":
        return _vectors()
    return _wholes(name)


def _tables() -> dict[str, Any]:
    rng = np.random.default_rng(11)
    age = pa.array(rng.normal(size=_COUNT), mask=rng.random(_COUNT) < 0.2)
    items = pa.array(rng.integers(0, 9, _COUNT), pa.int32(), mask=rng.random(_COUNT) < 0.2)
    cities = rng.choice(np.array(["x", "", "zé", "nowhere", None], object), _COUNT)
    city = pa.array(cities, pa.string())
    names = ["age", "n items", "for"]
    columns = [age, items, city]
    made = {"plain": pa.StructArray.from_arrays(columns, names)}
    made["slice"] = made["plain"].slice(37, 201)
    inner = [each.slice(k + 9, 250) for k, each in enumerate(columns)]
    made["columns at offsets"] = pa.StructArray.from_arrays(inner, names).slice(3)
    mask = pa.array(rng.random(_COUNT) < 0.3)
    made["rows that are null"] = pa.StructArray.from_arrays(columns, names, mask=mask).slice(5)
    coded = [age.cast(pa.float32()), items.cast(pa.uint8()), city.dictionary_encode()]
    made["dictionary"] = pa.StructArray.from_arrays(coded, names).slice(2)
    large = city.cast(pa.large_string())
    more = [large, pa.array(["other"] * _COUNT), pa.nulls(_COUNT), items.cast(pa.float64())]
    made["other columns"] = pa.StructArray.from_arrays(more, ["for", "more", "age", "n items"])
    wide = [age, items, large.dictionary_encode()]
    nulls = pa.DictionaryArray.from_arrays(pa.array([0, None] * 150, pa.int8()), pa.nulls(1))
    made["dictionary of nulls"] = pa.StructArray.from_arrays([age, items, nulls], names)
    made["large dictionary"] = pa.StructArray.from_arrays(wide, names)
    made["none"] = made["plain"].slice(0, 0)
    # What is refused.
    made["4"] = age
    made["8"] = pa.StructArray.from_arrays(
        [pa.concat_arrays([each] * 2) for each in columns], names
    )
    made["37"] = pa.StructArray.from_arrays(columns, ["age", "n items", "city"])
    made["21"] = pa.StructArray.from_arrays([*columns, items], [*names, "n items"])
    made["6"] = pa.StructArray.from_arrays([city, items, city], names)
    made["38"] = pa.StructArray.from_arrays([age, items, age], names)
    made["2"] = pa.StructArray.from_arrays([age, items, pa.array(["x" * 41] * _COUNT)], names)
    bad = pa.DictionaryArray.from_arrays(pa.array([0, 7] * 150, pa.int8()), ["x"], safe=False)
    made["39"] = pa.StructArray.from_arrays([age, items, bad], names)
    return made


def _vectors() -> dict[str, Any]:
    rng = np.random.default_rng(12)
    flat = pa.array(rng.normal(size=6 * _COUNT), mask=rng.random(6 * _COUNT) < 0.1)
    lists = pa.FixedSizeListArray.from_arrays(flat.slice(6), 6)
    made = {"lists": pa.StructArray.from_arrays([lists], ["X"])}
    made["lists at offsets"] = pa.StructArray.from_arrays([lists.slice(7)], ["X"]).slice(4)
    mask = pa.array(rng.random(len(lists)) < 0.3)
    holes = pa.FixedSizeListArray.from_arrays(flat.slice(6), 6, mask=mask)
    made["lists that are null"] = pa.StructArray.from_arrays([holes], ["X"])
    names = [f"Column_{k}" for k in range(6)]
    kinds = [pa.float64(), pa.float32(), pa.int64(), pa.bool_(), pa.int8(), pa.uint64()]
    columns = [pa.array(rng.integers(0, 2, _COUNT)).cast(kind) for kind in kinds]
    made["columns in order"] = pa.StructArray.from_arrays(columns, names).slice(1)
    made["5"] = pa.StructArray.from_arrays(columns[:5], names[:5])
    short = pa.FixedSizeListArray.from_arrays(flat.slice(0, 5 * _COUNT), 5)
    made["6"] = pa.StructArray.from_arrays([short], ["X"])
    return made


def _wholes(name: str) -> dict[str, Any]:
    """Two numbers a row, at the ends of the type and beyond."""
    if name == "bool":
        good = pa.array([True, False] * 8)
        bad = [pa.array([True, None])]
    else:
        ends = np.iinfo(name)
        good = pa.array([ends.min, ends.max, 0, 1], pa.int64())
        bad = [pa.array([int(end), 0]) for end in (ends.min - 1, ends.max + 1)]
        bad += [pa.array([0, None], pa.int8()), pa.array([0, 2**63], pa.uint64())]
    made = {"good": good, **{f"7 {k}": each for k, each in enumerate(bad)}}
    return {
        key: pa.StructArray.from_arrays([pa.FixedSizeListArray.from_arrays(each, 2)], ["x"])
        for key, each in made.items()
    }


def main(name: str, library: str, folder: str, outputs: str) -> None:
    """Give every variant to the library; write its code and its answers."""
    loaded = ctypes.CDLL(library)
    loaded.size.restype, loaded.size.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    predict, word = loaded.predict, ctypes.c_size_t
    predict.argtypes = [ctypes.c_void_p] * 3 + [word, word, ctypes.c_void_p]
    for number, array in enumerate(variants(name).values()):
        schema, held = ctypes.create_string_buffer(72), ctypes.create_string_buffer(80)
        places = ctypes.addressof(schema), ctypes.addressof(held)
        array._export_to_c(places[1], places[0])
        capacity = min(len(array), _COUNT)
        made = [np.zeros((capacity, width), dtype) for dtype, width in json.loads(outputs)]
        into = (word * len(made))(*(each.ctypes.data for each in made))
        scratch = np.empty(loaded.size(LONGEST), np.uint8)
        code = predict(*places, ctypes.addressof(into), capacity, LONGEST, scratch.ctypes.data)
        answers: dict[str, Any] = {f"o{k}": each for k, each in enumerate(made)}
        np.savez(Path(folder) / f"{number}.npz", code=code, **answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
