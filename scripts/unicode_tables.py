"""Writes the tables of characters for the Python that runs it: flour/strings/tables.

    for each in 3.10 3.11 3.12 3.13 3.14: python$each scripts/unicode_tables.py

Once for each version of Python that is new, or whose Unicode is: tests/flour/test_unicode_tables.py
fails where the tables are not those that Python would build.
"""

from __future__ import annotations

import json
import sys
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from flour.strings import unicode, unicode_tables


def write(tables: Mapping[str, Sequence[NDArray[Any]]], place: Path | None = None) -> None:
    """Write a file; without a place, that for this Python."""
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
    place = place or unicode_tables.path()
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(b"\n".join([head.encode(), b"".join(packed.values())]))


def main() -> None:
    """Build the tables and write them."""
    write(unicode.built())
    print(f"{unicode_tables.path()}: {unicode_tables.path().stat().st_size} bytes")


if __name__ == "__main__":
    main()
