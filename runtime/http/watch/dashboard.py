"""A board for Grafana and alert rules for Prometheus, over the metrics of a server.

Both come from board.toml. A test holds every name in them against `/metrics`, and a real
Prometheus evaluates every expression: see tests/integrations/test_prometheus.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from flour.core.toml import tomllib

#: The version of Grafana's format of boards that this is written in.
SCHEMA = 39
#: Boards are 24 columns wide; three panels stand side by side.
_WIDTH, _HEIGHT, _ACROSS = 8, 8, 3
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """A graph: its title, its unit, expressions with their legends, what it says, and its bound.

    Values beyond the bound are those that an alert fires for.
    """

    title: str
    unit: str
    lines: Sequence[Sequence[str]]
    description: str
    bound: float | None = None


class Alert(NamedTuple):
    """A rule: it fires where the expression has held for so long."""

    name: str
    expression: str
    holds: str
    summary: str
    severity: str = "warning"


_DATA = tomllib.loads(Path(__file__).with_name("board.toml").read_text(encoding="utf-8"))
SECTIONS = {
    section["title"]: tuple(Panel(**panel) for panel in section["panels"])
    for section in _DATA["sections"]
}
PANELS = tuple(panel for panels in SECTIONS.values() for panel in panels)
ALERTS = tuple(Alert(**alert) for alert in _DATA["alerts"])


def dashboard() -> str:
    """The board as JSON, to be imported into Grafana."""
    return json.dumps(
        {
            "title": "Pretzel",
            "uid": "pretzel",
            "tags": ["pretzel"],
            "schemaVersion": SCHEMA,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {"list": [_DATASOURCES, _MODELS]},
            "annotations": {"list": []},
            "panels": [*_panels()],
        },
        indent=2,
    )


_DATASOURCES = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
}
_MODELS = {
    "name": "model",
    "label": "Model",
    "type": "query",
    "datasource": _DATASOURCE,
    "query": {"query": "label_values(pretzel_version_tier, model)", "refId": "models"},
    "refresh": 2,
    "includeAll": True,
    "allValue": ".*",
    "multi": True,
    "current": {"text": "All", "value": "$__all"},
}


def _panels() -> Iterator[dict[str, object]]:
    down, number = 0, 0
    for title, panels in SECTIONS.items():
        spot = {"x": 0, "y": down, "w": _WIDTH * _ACROSS, "h": 1}
        yield {"id": 1000 + down, "type": "row", "title": title, "gridPos": spot, "panels": []}
        down += 1
        for place, panel in enumerate(panels):
            number += 1
            below, across = divmod(place, _ACROSS)
            spot = {"x": _WIDTH * across, "y": down + _HEIGHT * below, "w": _WIDTH, "h": _HEIGHT}
            yield {"id": number, "gridPos": spot, **_graph(panel)}
        down += _HEIGHT * -(-len(panels) // _ACROSS)


def _graph(panel: Panel) -> dict[str, object]:
    defaults: dict[str, object] = {"unit": panel.unit, "min": 0}
    if panel.bound is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.bound}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["custom"] = {"thresholdsStyle": {"mode": "line"}}
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _DATASOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for place, (expression, legend) in enumerate(panel.lines)
        ],
    }


def alert_rules(alerts: Sequence[Alert] = ALERTS) -> str:
    """The rules as YAML, for the `rule_files` of Prometheus."""
    lines = ["groups:", "  - name: pretzel", "    rules:"]
    for each in alerts:
        lines += [
            f"      - alert: {each.name}",
            f"        expr: {json.dumps(each.expression)}",
            f"        for: {each.holds}",
            f"        labels: {{severity: {each.severity}}}",
            f"        annotations: {{summary: {json.dumps(each.summary)}}}",
        ]
    return "\n".join(lines) + "\n"
