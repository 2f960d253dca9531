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
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def path(name: str = "") -> Path:
    """The file of a name; without one, the file for this Python."""
    return Path(__file__).parent / "tables" / f"{name or sys.implementation.cache_tag}.tables"


def stored(name: str) -> list[NDArray[Any]] | None:
    """The arrays of a table; None where there is none for this Python."""
    packed = _packed().get(name)
    return None if packed is None else _unpacked(*packed)


def stored_for_all(name: str, file: str) -> list[NDArray[Any]]:
    """The arrays of a table that is the same for every Python, in a file of this name."""
    arrays = _unpacked(*_read(path(file))[1][name])
    assert arrays is not None, f"{path(file)} is damaged"
    return arrays


def _unpacked(
    dtypes: Sequence[str], sizes: Sequence[int], content: bytes
) -> list[NDArray[Any]] | None:
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
    """Every table as it is in the file for this Python."""
    try:
        version, packed = _read(path())
    except (OSError, ValueError, KeyError):
        return {}
    return packed if version == unicodedata.unidata_version else {}


def _read(place: Path) -> tuple[str, dict[str, tuple[list[str], list[int], bytes]]]:
    """The version of Unicode of a file, and its tables."""
    head, _, body = place.read_bytes().partition(b"\n")
    about = json.loads(head)
    packed, start = {}, 0
    for name, (dtypes, sizes, length) in about["tables"].items():
        packed[name] = dtypes, sizes, body[start : start + length]
        start += length
    return about["unicode"], packed
