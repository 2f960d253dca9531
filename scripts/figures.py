"""Write docs/contributing/performance.md from what pytest-benchmark measured."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.report.micro import tables
from bench.report.tables import Table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "contributing" / "performance.md"
PACKAGES = ("numpy", "numba", "llvmlite", "scikit-learn", "onnxruntime", "skl2onnx", "lightgbm")

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
WHAT = """`python -m bench report --docs` writes this part: [how it is measured](bench.md).
"""

HEAD = """# Figures

All figures here are generated; what is said of those that disappoint is not.
"""
PARTS = """## Part by part

Written by `scripts/bench`, which races contestants in turns in one run: only ratios mean anything
on a shared machine. Where a column is called after a contestant, it is its time by ours: above
one, ours is faster. What each benchmark does, and what its other columns mean, stands in its file;
onnxruntime runs on one thread.
"""


def main() -> None:
    """Read the figures named on the command line and write the page."""
    data = json.loads(Path(sys.argv[1]).read_text())
    PAGE.write_text(
        "\n".join([HEAD, kept(), PARTS, *machine(data), *parts(data["benchmarks"])]) + "\n"
    )
    sys.stdout.write(f"written: {PAGE.relative_to(ROOT)}\n")


def kept() -> str:
    """What `python -m bench report --docs` has put into the page, and what is said of it."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    found = re.search(f"{re.escape(BEGIN)}.*(?=## Part by part)", text, re.DOTALL)
    section = found[0].rstrip() if found else f"{BEGIN}\n{END}"
    return f"## Against peers\n\n{WHAT}\n{section}\n"


def machine(data: dict[str, Any]) -> list[str]:
    """What it was measured on, and when."""
    info = data["machine_info"]
    cpu = info["cpu"].get("brand_raw", info["processor"])
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    cores = info["cpu"].get("count", "?")
    where = f"{cpu}, {cores} cores, Python {info['python_version']}, {versions}"
    return [f"Measured on {data['datetime'][:10]}: {where}.", ""]


def parts(benchmarks: list[dict[str, Any]]) -> list[str]:
    """One table a file, one row a benchmark: the ratios it attached."""
    return [line for each in tables(benchmarks) for line in _lines(each)]


def _lines(table: Table) -> list[str]:
    untitled = Table("", "", table.columns, table.rows)
    return [f"### {table.title}", "", *untitled.markdown().splitlines(), ""]


if __name__ == "__main__":
    main()
