"""Rows of numbers as dicts by name: what ONNX's ZipMap answers, built by machine code.

    rows = zipped(["no", "yes"])
    rows(np.array([[0.25, 0.75]], np.float32))     # [{"no": 0.25, "yes": 0.75}]

A dict for each of thousands of rows takes Python longer than the model behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from oven.entry.builtin import NativeTable, made_of

Rows = Callable[[Any], list[dict[Any, float]]]

_WORDS = (
    *("ARRAY_TYPE", "DTYPE", "WIDTH", "KEYS", "FALLBACK", "CALL", "INCREASE", "DECREASE"),
    *("LIST_NEW", "LIST_SET", "DICT_NEW", "DICT_SET", "FLOAT_NEW"),
)
_NAME = "zipped"
# A list that is not full yet has no addresses in it, which the collector knows how to pass over.
_CODE = """\
def zipped(self, argument):
    table = ld_int64(self, 2)
    width, known = ldc_int64(table, WIDTH), False
    if ld_int64(argument, 1) == ldc_int64(table, ARRAY_TYPE) and ld_int32(argument, 6) == 2:
        known = ld_int64(argument, 7) == ldc_int64(table, DTYPE)
        known = known and ld_int64(ld_int64(argument, 4), 1) == width
        known = known and ld_int32(argument, 16) & 256 != 0
    if not known:
        return c_call_2(ldc_int64(table, CALL), ldc_int64(table, FALLBACK), argument)
    rows, keys = ld_int64(ld_int64(argument, 4), 0), ldc_int64(table, KEYS)
    made = c_call_1(ldc_int64(table, LIST_NEW), rows)
    if made == 0:
        return 0
    for i in range(rows):
        item, wrong = c_call_0(ldc_int64(table, DICT_NEW)), 0
        if item == 0:
            c_call_1(ldc_int64(table, DECREASE), made)
            return 0
        strides = ld_int64(argument, 5)
        place = ld_int64(argument, 2) + i * ld_int64(strides, 0)
        for j in range(width):
            number = float64(ld_float32(place + j * ld_int64(strides, 1), 0))
            value = c_call_float(ldc_int64(table, FLOAT_NEW), number)
            if value == 0:
                wrong = 1
                break
            key = ldc_int64(keys, j)
            wrong |= c_call_3(ldc_int64(table, DICT_SET), item, key, value) & 0xFFFFFFFF
            c_call_1(ldc_int64(table, DECREASE), value)
        c_call_3(ldc_int64(table, LIST_SET), made, i, item)
        if wrong != 0:
            c_call_1(ldc_int64(table, DECREASE), made)
            return 0
    return made
"""
_SOURCE = "".join(f"{word} = {place}\n" for place, word in enumerate(_WORDS)) + _CODE


def zipmap(labels: Sequence[Hashable]) -> Rows:
    """What makes a list of dicts with these keys of a block of float32, a row each.

    Keys come in their order, as from onnxruntime, so that tables made of the dicts are the same.
    """
    keys = tuple(labels)
    if len(set(map(type, keys))) == 1 and (order := _order(keys)) != list(range(len(keys))):
        return _arranged(zipmap([keys[place] for place in order]), order)

    def rows(block: Any) -> list[dict[Any, float]]:
        return [dict(zip(keys, row, strict=True)) for row in np.asarray(block).tolist()]

    return made_of(_SOURCE, _NAME, partial(_table, keys, rows)) or rows


def _order(keys: Sequence[Any]) -> list[int]:
    """The last place of each key, smallest key first: what onnxruntime's maps are."""
    last = {key: place for place, key in enumerate(keys)}
    return [last[key] for key in sorted(last)]


def _arranged(rows: Rows, order: list[int]) -> Rows:
    """The same of a block whose columns have another order."""
    return lambda block: rows(np.asarray(block)[:, order])


def _table(keys: tuple[Hashable, ...], fallback: Rows, known: Mapping[str, int]) -> NativeTable:
    dtype, places = np.dtype(np.float32), np.array([id(key) for key in keys], np.int64)
    words = {**known, "DTYPE": id(dtype), "WIDTH": len(keys), "KEYS": places.ctypes.data}
    words["FALLBACK"] = id(fallback)
    table = np.array([words[word] for word in _WORDS], np.int64).view(NativeTable)
    table.kept = (keys, fallback, dtype, places)
    return table
