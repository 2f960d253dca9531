"""Strings as native code reads them: one cell of two int64 each, an address and a length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NONE, NAN = -1, -2


class Cells(np.ndarray[Any, Any]):
    """Cells that keep the bytes they point to alive."""

    text: bytes


def cells(values: NDArray[Any]) -> NDArray[Any]:
    """The strings (None and NaN allowed) as a block of cells, row after row."""
    flat = values.reshape(-1)
    encoded = [v.encode("utf-8", "surrogatepass") if isinstance(v, str) else b"" for v in flat]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    text = b"".join(encoded)
    base = np.frombuffer(text or b"\0", np.uint8).ctypes.data
    made = np.empty((flat.size, 2), np.int64)
    made[:, 0] = base + np.cumsum(lengths) - lengths
    made[:, 1] = lengths
    for place, value in enumerate(flat):
        if not isinstance(value, str):
            made[place, 1] = NONE if value is None else NAN
    width = values.shape[1] if values.ndim == 2 else 1
    block = made.reshape(len(values), 2 * width).view(Cells)
    block.text = text
    return block
