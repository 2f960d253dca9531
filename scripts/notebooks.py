"""Tutorials as Jupyter notebooks: prose becomes Markdown cells, `python` blocks become code cells.

    scripts/notebooks            writes build/notebooks/*.ipynb

Other blocks (commands of a shell, files of a service) stay in the prose, to be run beside it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PYTHON = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)]+)\)")
SITE = "https://pretzel-runtime.readthedocs.io/en/latest/"


def notebook(page: Path) -> dict[str, Any]:
    """The notebook of a page, as nbformat 4 has it."""
    return {
        "cells": [
            {"id": f"cell-{number}", "metadata": {}, **cell}
            for number, cell in enumerate(_cells(page.read_text(encoding="utf-8"), page))
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cells(text: str, page: Path) -> Iterator[dict[str, Any]]:
    for place, part in enumerate(PYTHON.split(text)):
        if place % 2:
            code = part.rstrip()
            yield {"cell_type": "code", "execution_count": None, "outputs": [], "source": code}
        elif part.strip():
            prose = LINK.sub(lambda found: f"]({_address(page, found[1])})", part.strip())
            yield {"cell_type": "markdown", "source": prose}


def _address(page: Path, target: str) -> str:
    """The address on the site of a page that is linked by its path."""
    path, _, anchor = target.partition("#")
    inside = (page.parent / path).resolve().relative_to(ROOT / "docs").as_posix()
    return SITE + re.sub(r"\.md$", ".html", inside) + (f"#{anchor}" if anchor else "")


def main() -> int:
    """Write all notebooks."""
    folder = ROOT / "build" / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        if page.stem != "index":
            path = folder / f"{page.stem}.ipynb"
            path.write_text(json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n")
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
