"""A copy of the sources to change: for pages that say how to add something, done for real."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from tests.house import MADE, PRODUCT, ROOT, ended

LEFT_OUT = shutil.ignore_patterns(*MADE, ".cache")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def copied(target: Path) -> Path:
    """Copy the sources, tests and pages, without what tools made."""
    for name in (*PRODUCT, "tests", "docs", ".ci"):
        shutil.copytree(ROOT / name, target / name, ignore=LEFT_OUT)
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, target / path.name)
    return target


def blocks(page: str, kind: str = "py") -> list[str]:
    """Return the code blocks of one kind on a page of docs."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [code for found, code in FENCE.findall(text) if found == kind]


def put(tree: Path, name: str, text: str) -> None:
    """Write a file of the copy."""
    (tree / name).write_text(text, encoding="utf-8")


def insert(tree: Path, name: str, before: str, new: str) -> None:
    """Put text into a file of the copy, ahead of the first place that reads `before`."""
    text = (tree / name).read_text(encoding="utf-8")
    assert before in text, f"{name} has no {before!r}"
    put(tree, name, text.replace(before, new + before, 1))


def run(tree: Path, *arguments: str, timeout: float = 300) -> str:
    """Run Python in the copy, on the code cache that all tests share."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = ended(sys.executable, *arguments, cwd=tree, env=environment, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_tests(tree: Path, *arguments: str) -> int:
    """Run tests of the copy; how many passed."""
    report = run(tree, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments)
    return int(re.findall(r"(\d+) passed", report)[0])
