"""Tables of characters that come with the package, one file for each version of Python.

Building them takes half a second, as every character is looked at. scripts/unicode_tables.py writes
the file of the Python that runs it. A Python that has no file, or knows another version of Unicode
than the one that wrote it, builds its tables itself: see flour.strings.unicode.

A file is a line of JSON, then each table's arrays, compressed. The line says {"unicode": version,
"tables": {name: [[dtype, ...], [size, ...], compressed bytes]}}.
"""

from __future__ import annotations

import json
import sys
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def path() -> Path:
    """The file for this Python."""
    return Path(__file__).parent / "tables" / f"{sys.implementation.cache_tag}.tables"


def stored(name: str) -> list[NDArray[Any]] | None:
    """The arrays of a table; None where there is none for this Python."""
    packed = _packed().get(name)
    if packed is None:
        return None
    dtypes, sizes, content = packed
    try:
        raw = zlib.decompress(content)
    except zlib.error:
        return None
    arrays, start = [], 0
    for dtype, size in zip(dtypes, sizes, strict=True):
        arrays.append(np.frombuffer(raw, dtype, size, start))
        start += arrays[-1].nbytes
    return arrays


@cache
def _packed() -> dict[str, tuple[list[str], list[int], bytes]]:
    """Every table as it is in the file."""
    try:
        head, _, body = path().read_bytes().partition(b"\n")
        about = json.loads(head)
        fits = about["unicode"] == unicodedata.unidata_version
    except (OSError, ValueError, KeyError):
        return {}
    if not fits:
        return {}
    packed, start = {}, 0
    for name, (dtypes, sizes, length) in about["tables"].items():
        packed[name] = dtypes, sizes, body[start : start + length]
        start += length
    return packed


def write(tables: Mapping[str, Sequence[NDArray[Any]]]) -> None:
    """Write the file for this Python."""
    packed = {
        name: zlib.compress(b"".join(each.tobytes() for each in arrays), 9)
        for name, arrays in tables.items()
    }
    rows = {
        name: [
            [each.dtype.str for each in arrays],
            [each.size for each in arrays],
            len(packed[name]),
        ]
        for name, arrays in tables.items()
    }
    head = json.dumps({"unicode": unicodedata.unidata_version, "tables": rows})
    path().parent.mkdir(exist_ok=True)
    path().write_bytes(b"\n".join([head.encode(), b"".join(packed.values())]))
