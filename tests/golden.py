"""Golden files: the text a test expects, beside the test, accepted with `--update-golden`.

The file's name follows from the test's: `tests/flour/test_show.py::test_tree[wide]` compares with
`tests/flour/golden/test_tree-wide.txt`. A test with several texts names each of them.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

HOW = "run pytest with --update-golden to accept it, then read the difference in git"


class Golden:
    """The expected text of one test: compare with `golden == text` or `golden(text, "name")`."""

    def __init__(self, stem: Path, *, update: bool) -> None:
        self._stem = stem
        self._update = update

    def __call__(self, text: str, name: str = "") -> None:
        """Fail unless `text` is the golden text called `name` of this test."""
        path = self.path(name)
        if self._update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(_ended(text), encoding="utf-8")
        if not path.exists():
            raise AssertionError(f"no golden file {_shown(path)}: {HOW}\n\n{text}")
        expected = path.read_text(encoding="utf-8")
        if expected != _ended(text):
            raise AssertionError(f"{_shown(path)} differs: {HOW}\n\n{_diff(expected, text)}")

    def __eq__(self, text: object) -> bool:
        """Compare as a call does, so that `assert golden == text` reads well."""
        if not isinstance(text, str):
            return NotImplemented
        self(text)
        return True

    __hash__ = None  # type: ignore[assignment]  # equality has a side effect: never a key

    def path(self, name: str = "") -> Path:
        """Return the file that holds the text called `name`."""
        return self._stem.with_name(self._stem.name + (f".{name}" if name else "") + ".txt")


def stem_of(test_file: Path, test_name: str) -> Path:
    """Return where the golden files of a test are, without their ending."""
    safe = re.sub(r"[^A-Za-z0-9_]+", "-", test_name).strip("-")
    return test_file.parent / "golden" / safe


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _shown(path: Path) -> str:
    root = Path(__file__).parent.parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _diff(expected: str, found: str) -> str:
    lines = difflib.unified_diff(
        expected.splitlines(), found.splitlines(), "golden", "now", lineterm="", n=3
    )
    return "\n".join(lines)
