"""Class names that mean two things: defined in two places of the product or more.

`python scripts/class_names.py` lists them with their places; `scripts/gauges` counts them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from module_graph import parsed


def ambiguous(paths: Iterable[Path]) -> dict[str, list[tuple[Path, int]]]:
    """Return the places of each such name, without the underscore that private ones begin with."""
    places = defaultdict(list)
    for path in paths:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append((path, node.lineno))
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


if __name__ == "__main__":
    from gauges import PACKAGES, ROOT

    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    for name, found in ambiguous(files).items():
        print(name, *(f"{path.relative_to(ROOT)}:{line}" for path, line in found))
