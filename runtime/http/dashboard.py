"""A board for Grafana and alert rules for Prometheus, over the metrics of a server.

Both come from the two tables here. A test holds every name in them against `/metrics`, and a real
Prometheus evaluates every expression: see tests/integrations/test_prometheus.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: The version of Grafana's format of boards that this is written in.
SCHEMA = 39
#: Boards are 24 columns wide; three panels stand side by side.
_WIDTH, _HEIGHT, _ACROSS = 8, 8, 3
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_MODEL = 'model=~"$model"'
_LABELS = f"sum by (model, label) (rate(pretzel_segment_labels_total{{{_MODEL}}}[15m]))"
_ALL_LABELS = f"sum by (model) (rate(pretzel_segment_labels_total{{{_MODEL}}}[15m]))"
_OUTLIERS = f"rate(pretzel_outliers_total{{{_MODEL}}}[15m])"


class Panel(NamedTuple):
    """A graph: its title, its unit, and expressions with their legends."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


class Alert(NamedTuple):
    """A rule: it fires where the expression has held for so long."""

    name: str
    expression: str
    holds: str
    summary: str
    severity: str = "warning"


def _quantile(share: float, by: str) -> str:
    name = "pretzel_http_request_duration_seconds_bucket"
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({name}{{{_MODEL}}}[5m])))"


def _rate(name: str, by: str = "model") -> tuple[str, str]:
    """The rate of a counter of models, by one label, and its legend."""
    return f"sum by ({by}) (rate({name}{{{_MODEL}}}[5m]))", f"{{{{{by}}}}}"


PANELS = (
    Panel("Requests", "reqps", (_rate("pretzel_http_requests_total"),)),
    Panel("Requests by status", "reqps", (_rate("pretzel_http_requests_total", "status"),)),
    Panel(
        "Time of a request",
        "s",
        tuple(
            (_quantile(share, "model"), f"{{{{model}}}} p{100 * share:g}") for share in (0.5, 0.99)
        ),
    ),
    Panel("Rows", "rps", (_rate("pretzel_rows_total"),)),
    Panel("Calls by engine", "cps", (_rate("pretzel_engine_calls_total", "engine"),)),
    Panel(
        "Behind",
        "s",
        (
            ("pretzel_http_loop_lag_seconds", "event loop"),
            ("pretzel_http_unread_seconds", "unread requests"),
            ("sum(pretzel_queued_seconds)", "queued work"),
        ),
    ),
    Panel(
        "Memory",
        "bytes",
        (
            ("pretzel_process_proportional_bytes", "processes"),
            ("pretzel_unique_parameter_bytes", "parameters"),
            ("pretzel_unshared_parameter_bytes", "parameters, if none were shared"),
        ),
    ),
    Panel(
        "Processor seconds",
        "percentunit",
        (
            ("rate(pretzel_process_cpu_seconds_total[5m])", "processes"),
            _rate("pretzel_compute_seconds_total"),
        ),
    ),
    Panel(
        "Versions that native code answers",
        "none",
        ((f"pretzel_version_tier{{{_MODEL}}}", "{{model}}@{{version}}"),),
    ),
    Panel(
        "Drift of columns (PSI)",
        "none",
        ((f"topk(10, pretzel_drift_psi{{{_MODEL}}})", "{{model}} {{column}}"),),
    ),
    Panel(
        "Missing and unseen values",
        "percentunit",
        (
            (f"topk(10, pretzel_drift_missing{{{_MODEL}}})", "{{model}} {{column}} missing"),
            (f"topk(10, pretzel_drift_unseen{{{_MODEL}}})", "{{model}} {{column}} unseen"),
        ),
    ),
    Panel(
        "Outliers",
        "percentunit",
        (
            (
                f"{_OUTLIERS} / rate(pretzel_outlier_rows_total{{{_MODEL}}}[15m])",
                "{{model}} {{detector}}",
            ),
        ),
    ),
    Panel(
        "Rows by segment",
        "rps",
        (
            (
                f"topk(20, rate(pretzel_segment_rows_total{{{_MODEL}}}[5m]))",
                "{{model}} {{segment}}",
            ),
        ),
    ),
    Panel(
        "Labels",
        "percentunit",
        ((f"{_LABELS} / ignoring (label) group_left {_ALL_LABELS}", "{{model}} {{label}}"),),
    ),
    Panel(
        "Shadows",
        "reqps",
        (
            (
                f"sum by (model, state) (rate(pretzel_shadow_requests_total{{{_MODEL}}}[5m]))",
                "{{model}} {{state}}",
            ),
        ),
    ),
    Panel(
        "Rollouts: share of the challenger",
        "percent",
        ((f"pretzel_rollout_weight{{{_MODEL}}}", "{{challenger}}"),),
    ),
)

ALERTS = (
    Alert("PretzelDown", "absent(pretzel_build_info)", "2m", "no server is scraped", "critical"),
    Alert(
        "PretzelErrors",
        'sum by (model) (rate(pretzel_http_requests_total{status=~"500|504"}[5m]))'
        " / sum by (model) (rate(pretzel_http_requests_total[5m])) > 0.01",
        "5m",
        "{{ $value | humanizePercentage }} of the requests of {{ $labels.model }} fail",
        "critical",
    ),
    Alert(
        "PretzelRefuses",
        'sum(rate(pretzel_http_requests_total{status=~"429|503"}[5m]))'
        " / sum(rate(pretzel_http_requests_total[5m])) > 0.05",
        "5m",
        "{{ $value | humanizePercentage }} of the requests are refused: there are too many",
    ),
    Alert(
        "PretzelSlow",
        "histogram_quantile(0.99, sum by (model, le)"
        ' (rate(pretzel_http_request_duration_seconds_bucket{model!=""}[5m]))) > 0.1',
        "5m",
        "one request in a hundred of {{ $labels.model }} takes {{ $value | humanizeDuration }}",
    ),
    Alert(
        "PretzelLoopBehind",
        "pretzel_http_loop_lag_seconds > 0.1",
        "5m",
        "the event loop is late by {{ $value | humanizeDuration }}",
    ),
    Alert(
        "PretzelInterprets",
        "pretzel_version_tier < 1",
        "10m",
        "{{ $labels.model }}@{{ $labels.version }} is answered without native code",
    ),
    Alert(
        "PretzelDrifts",
        "pretzel_drift_psi > 0.2 and pretzel_drift_rows >= 500",
        "15m",
        "column {{ $labels.column }} of {{ $labels.model }} has a PSI of {{ $value }}",
    ),
    Alert(
        "PretzelUnseen",
        "pretzel_drift_unseen > 0.05 and pretzel_drift_rows >= 500",
        "15m",
        "{{ $value | humanizePercentage }} of {{ $labels.column }} of {{ $labels.model }} is new",
    ),
    Alert(
        "PretzelScoresChange",
        "increase(pretzel_watch_alarms_total[15m]) > 0",
        "0m",
        "a detector says that the scores of {{ $labels.model }} have changed",
    ),
    Alert(
        "PretzelRolloutAborted",
        'pretzel_rollout_state{state="aborted"} == 1',
        "0m",
        "the rollout of {{ $labels.model }} was aborted: its champion answers",
    ),
)


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
    for number, panel in enumerate(PANELS):
        down, across = divmod(number, _ACROSS)
        place = {"x": _WIDTH * across, "y": _HEIGHT * down, "w": _WIDTH, "h": _HEIGHT}
        yield {
            "id": number + 1,
            "type": "timeseries",
            "title": panel.title,
            "datasource": _DATASOURCE,
            "gridPos": place,
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
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
