"""What pytest-benchmark measured of single parts, as tables: the ratios that each test attached."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from bench.report.tables import Table
from bench.workload import cache_folder


def newest() -> list[Table]:
    """The tables of the newest figures that `scripts/bench` has written; none if it never ran."""
    found = sorted((cache_folder() / "micro").glob("*.json"))
    if not found:
        return []
    data = json.loads(found[-1].read_text(encoding="utf-8"))
    made = tables(data["benchmarks"], f"Part by part, measured on {data['datetime'][:10]}: ")
    commit = str(data.get("commit_info", {}).get("id") or "?")[:10]
    text = f"By scripts/bench at commit {commit}. Called after a contestant: its time by ours."
    return [Table(each.title, text, each.columns, each.rows) for each in made]


def tables(benchmarks: Iterable[dict[str, Any]], title: str = "") -> list[Table]:
    """One table a file, one row a benchmark; those that attached nothing are left out."""
    files: dict[str, list[dict[str, Any]]] = {}
    for item in benchmarks:
        if item["extra_info"]:
            files.setdefault(item["fullname"].split("::")[0], []).append(item)
    return [_table(title + name, items) for name, items in sorted(files.items())]


def _table(title: str, items: list[dict[str, Any]]) -> Table:
    columns = list(dict.fromkeys(key for item in items for key in item["extra_info"]))
    rows = [
        [
            item["name"].removeprefix("test_"),
            *(_shown(item["extra_info"].get(key)) for key in columns),
        ]
        for item in items
    ]
    return Table(title, "", ["benchmark", *columns], rows)


def _shown(value: Any) -> str:
    """A number in four digits, several of them in a row."""
    if isinstance(value, list):
        return " / ".join(map(_shown, value))
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
