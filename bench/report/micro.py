"""Tables of pytest-benchmark's measurements of single parts: the ratios attached by each test."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from bench.report.tables import Table
from bench.workload import cache_folder


def newest() -> list[Table]:
    """The tables of the newest results of `scripts/bench`; none if it never ran."""
    paths = sorted((cache_folder() / "micro").glob("*.json"))
    if not paths:
        return []
    data = json.loads(paths[-1].read_text(encoding="utf-8"))
    by_file = tables(data["benchmarks"], f"Part by part, measured on {data['datetime'][:10]}: ")
    commit = str(data.get("commit_info", {}).get("id") or "?")[:10]
    text = f"By scripts/bench at commit {commit}. Called after a contestant: its time by ours."
    return [Table(each.title, text, each.columns, each.rows) for each in by_file]


def tables(benchmarks: Iterable[dict[str, Any]], title: str = "") -> list[Table]:
    """One table per file, one row per benchmark; benchmarks without ratios are left out."""
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
    """A number with four digits, or several of them."""
    if isinstance(value, list):
        return " / ".join(map(_shown, value))
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
