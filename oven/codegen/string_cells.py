"""Strings as native code reads them: one cell of two int64 each, an address and a length.

A row of words is three int64: the address of its bytes, the address of its list of slices, and the
number of slices. A slice is the offset of a word times 2**32, plus its length in bytes. A row of
pairs has a fourth: the address of its float64 values. Native code may read sixteen bytes beyond the
end of texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.data.arrow_strings import NONE

#: The length of a cell whose value is missing: NONE for None, this for NaN.
NAN = -2
PADDING = bytes(16)


class TextCells(np.ndarray[Any, Any]):
    """Cells that keep the bytes they point to alive."""

    text: bytes | NDArray[np.uint8]
    #: The lists of slices, if rows are words.
    slices: NDArray[np.int64] | None = None
    #: The numbers of the pairs, if rows are pairs.
    values: NDArray[np.float64] | None = None


def cells(values: NDArray[Any]) -> NDArray[Any]:
    """The strings (None and NaN allowed) as a block of cells, row after row."""
    flat = values.reshape(-1)
    encoded = [v.encode("utf-8", "surrogatepass") if isinstance(v, str) else b"" for v in flat]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    text = b"".join([*encoded, PADDING])
    base = np.frombuffer(text, np.uint8).ctypes.data
    table = np.empty((flat.size, 2), np.int64)
    table[:, 0] = base + np.cumsum(lengths) - lengths
    table[:, 1] = lengths
    for index, value in enumerate(flat):
        if not isinstance(value, str):
            table[index, 1] = NONE if value is None else NAN
    width = values.shape[1] if values.ndim == 2 else 1
    block = table.reshape(len(values), 2 * width).view(TextCells)
    block.text = text
    return block


def word_cells(rows: Sequence[Sequence[str]]) -> TextCells:
    """Rows of words as a block of cells."""
    encoded = [word.encode("utf-8", "surrogatepass") for word in chain.from_iterable(rows)]
    text = b"".join([*encoded, PADDING])
    sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    ends = np.cumsum(counts)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    first = starts[ends - counts]
    slices = (starts[:-1] - np.repeat(first, counts)) << 32 | sizes
    table = np.empty((len(rows), 3), np.int64)
    table[:, 0] = np.frombuffer(text, np.uint8).ctypes.data + first
    table[:, 1] = slices.ctypes.data + 8 * (ends - counts)
    table[:, 2] = counts
    block = table.view(TextCells)
    block.text, block.slices = text, slices
    return block


def pair_cells(rows: Sequence[Sequence[tuple[str, float]]]) -> TextCells:
    """Rows of names with numbers as a block of cells."""
    names = word_cells([[name for name, _ in row] for row in rows])
    counts = names[:, 2]
    values = np.fromiter((value for row in rows for _, value in row), np.float64, counts.sum())
    table = np.empty((len(rows), 4), np.int64)
    table[:, :3] = names
    table[:, 3] = values.ctypes.data + 8 * (np.cumsum(counts) - counts)
    block = table.view(TextCells)
    block.text, block.slices, block.values = names.text, names.slices, values
    return block


def lengths(block: NDArray[Any], *, words: bool) -> NDArray[np.int64]:
    """The bytes of each row (of its longest text); for words, plus one byte per word."""
    if not words or not len(block):
        return np.asarray(np.maximum(block[:, 1::2].max(axis=1, initial=0), 0), np.int64)
    assert isinstance(block, TextCells)
    assert block.slices is not None
    ends = np.cumsum(block[:, 2])
    sizes = np.concatenate([[0], np.cumsum((block.slices & 0xFFFFFFFF) + 1)])
    return np.asarray(sizes[ends] - sizes[ends - block[:, 2]])
