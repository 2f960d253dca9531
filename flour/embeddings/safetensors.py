"""Files of safetensors: a JSON header of names, dtypes, shapes and places, then the numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import DamagedProgram
from flour.embeddings.json_part import JsonPart

#: The longest header that is read.
_LONGEST = 16 << 20
_DTYPES = {
    "BOOL": "?",
    "BF16": "<u2",
    **{f"F{8 * size}": f"<f{size}" for size in (2, 4, 8)},
    **{f"{sign}{8 * size}": f"<{sign.lower()}{size}" for sign in "IU" for size in (1, 2, 4, 8)},
}


def read_safetensors(raw: bytes, where: str) -> dict[str, NDArray[Any]]:
    """The tensors of a file by their names; they are views of its bytes."""
    size = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or size > min(len(raw) - 8, _LONGEST):
        raise DamagedProgram(
            "this is no file of safetensors", where=where, found=f"{len(raw):,} bytes"
        )
    header = JsonPart.of_json(raw[8 : 8 + size], where)
    return {
        name: _tensor(header[name], memoryview(raw)[8 + size :])
        for name in header.names()
        if name != "__metadata__"
    }


def _tensor(about: JsonPart, numbers: memoryview) -> NDArray[Any]:
    dtype = _DTYPES.get(about["dtype"].text(), "")
    shape, places = (about[each].whole_numbers() for each in ("shape", "data_offsets"))
    if not dtype or len(places) != 2:
        raise about.wrong("a tensor of this kind is not read")
    start, end = places
    width = np.dtype(dtype).itemsize
    if not 0 <= start <= end <= len(numbers) or end - start != math.prod(shape) * width:
        raise about.wrong("this tensor does not fit the file")
    found = np.frombuffer(numbers[start:end], dtype).reshape(shape)
    if about["dtype"].text() == "BF16":  # the upper half of a float32
        return (found.astype(np.uint32) << 16).view(np.float32)
    return found
