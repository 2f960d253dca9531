"""Print two tables: states by what happened to them, and features by every way in to them.

A cell of tests/matrices/*.toml lists tests or gives a reason. With `--check` an empty cell, or a
test that is not there, is an error. The tables are those of tests/test_matrices.py.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
MATRICES = (TESTS / "matrices" / "states.toml", TESTS / "matrices" / "ways.toml")


class Cell(NamedTuple):
    """What is known of a row in a column: its tests, or why there are none."""

    row: str
    column: str
    tests: tuple[str, ...]
    reason: str

    @property
    def mark(self) -> str:
        """Return the number of tests, a dash for a reason, or a question mark."""
        return str(len(self.tests)) if self.tests else "-" if self.reason else "?"


class Matrix(NamedTuple):
    """A table of cells."""

    title: str
    columns: dict[str, str]
    cells: tuple[Cell, ...]

    def problems(self) -> Iterator[str]:
        """Return every empty cell and every test that there is not."""
        for each in self.cells:
            place = f"{self.title}: {each.row}, {self.columns[each.column]}"
            if each.mark == "?":
                yield f"{place}: no test and no reason"
            for test in each.tests:
                path, _, name = test.partition("::")
                if name not in functions(TESTS / path):
                    yield f"{place}: there is no test {test}"

    def __str__(self) -> str:
        """Return the table as text."""
        rows = list(dict.fromkeys(each.row for each in self.cells))
        width = max(map(len, rows))
        lines = [self.title, " " * width + "".join(f"  {name:>8}" for name in self.columns)]
        marks = {(each.row, each.column): each.mark for each in self.cells}
        for row in rows:
            lines.append(f"{row:{width}}" + "".join(f"  {marks[row, c]:>8}" for c in self.columns))
        return "\n".join(lines)


def read(path: Path) -> Matrix:
    """Return the matrix of a file."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    cells = []
    for row, columns in found["rows"].items():
        unknown = columns.keys() - found["columns"].keys()
        if unknown:
            raise SystemExit(f"{path.name}: {row} has no column {', '.join(sorted(unknown))}")
        for column in found["columns"]:
            value = columns.get(column, [])
            tests, reason = ((), value) if isinstance(value, str) else (tuple(value), "")
            cells.append(Cell(row, column, tests, reason))
    return Matrix(found["title"], found["columns"], tuple(cells))


@cache
def functions(path: Path) -> frozenset[str]:
    """Return the names of the functions of a file, and of its rule-based machines."""
    if not path.exists():
        return frozenset()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = {n.name for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, kinds)}
    return frozenset(found)


def main() -> int:
    """Print the tables and their problems."""
    matrices = [read(path) for path in MATRICES]
    for each in matrices:
        print(each, end="\n\n")
    print("a number: so many tests; -: a reason why there is none; ?: neither")
    problems = [problem for each in matrices for problem in each.problems()]
    print(*problems, sep="\n")
    return 1 if problems and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
