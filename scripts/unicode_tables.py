"""Writes the tables of characters for the Python that runs it: flour/strings/tables.

    for each in 3.10 3.11 3.12 3.13 3.14: python$each scripts/unicode_tables.py

Once for each version of Python that is new, or whose Unicode is: tests/flour/test_unicode_tables.py
fails where the tables are not those that Python would build.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from flour.strings import unicode, unicode_tables


def main() -> None:
    """Build the tables and write them."""
    unicode_tables.write(unicode.built())
    print(f"{unicode_tables.path()}: {unicode_tables.path().stat().st_size} bytes")


if __name__ == "__main__":
    main()
