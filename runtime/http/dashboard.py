"""A board for Grafana and alert rules for Prometheus, over the metrics of a server.

Both come from the tables here. A test holds every name in them against `/metrics`, and a real
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
    """A graph: its title, its unit, expressions with their legends, what it says, and its bound.

    Values beyond the bound are those that an alert fires for.
    """

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    description: str
    bound: float | None = None


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


SECTIONS = {
    "Requests": (
        Panel(
            *("Requests", "reqps", (_rate("pretzel_http_requests_total"),)),
            "Requests a second by model, over five minutes.",
        ),
        Panel(
            *("Requests by status", "reqps", (_rate("pretzel_http_requests_total", "status"),)),
            "500 and 504 are failures; 429 and 503 are refused, as there are too many; other 4xx "
            "are clients' mistakes.",
        ),
        Panel(
            "Time of a request",
            "s",
            tuple(
                (_quantile(share, "model"), f"{{{{model}}}} p{100 * share:g}")
                for share in (0.5, 0.99)
            ),
            "From the last byte of a request to its answer: the median, and one in a hundred.",
            0.1,
        ),
        Panel("Rows", "rps", (_rate("pretzel_rows_total"),), "Rows that were answered a second."),
        Panel(
            "Labels",
            "percentunit",
            ((f"{_LABELS} / ignoring (label) group_left {_ALL_LABELS}", "{{model}} {{label}}"),),
            "The share of each label among the answers of watched models.",
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
            "The twenty segments of watched models with most rows.",
        ),
        Panel(
            "Refused rows by segment",
            "rps",
            (
                (
                    f"topk(20, rate(pretzel_segment_errors_total{{{_MODEL}}}[5m]))",
                    "{{model}} {{segment}}",
                ),
            ),
            "Rows that the model refuses, each one counted.",
        ),
    ),
    "Drift and alarms": (
        Panel(
            "Alarms",
            "none",
            (
                (f"sum by (model) (pretzel_drift_alarms{{{_MODEL}}})", "{{model}} columns"),
                (
                    f"sum by (model) (increase(pretzel_watch_alarms_total{{{_MODEL}}}[15m]))",
                    "{{model}} scores",
                ),
            ),
            "Columns that have moved from the reference, of windows of 500 rows or more, and "
            "alarms of detectors on scores in 15 minutes.",
            1,
        ),
        Panel(
            "Drift of columns (PSI)",
            "none",
            ((f"topk(10, pretzel_drift_psi{{{_MODEL}}})", "{{model}} {{column}}"),),
            "How far columns are from the reference: 0.1 is a small shift, 0.2 one to be looked "
            "at. pretzel_drift_psi_error is its standard error.",
            0.2,
        ),
        Panel(
            "Missing and unseen values",
            "percentunit",
            (
                (f"topk(10, pretzel_drift_missing{{{_MODEL}}})", "{{model}} {{column}} missing"),
                (f"topk(10, pretzel_drift_unseen{{{_MODEL}}})", "{{model}} {{column}} unseen"),
            ),
            "Values that are missing more often than in the reference; words that it does not "
            "have, and numbers beyond its range.",
            0.05,
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
            "The share of rows that detectors of outliers find strange.",
        ),
        Panel(
            *("Rows not looked at", "rps", (_rate("pretzel_watch_dropped_rows_total"),)),
            "Rows that came while a watch's queue was full: what is told of drift and segments "
            "does not have them.",
            0.001,
        ),
    ),
    "Experiments": (
        Panel(
            "Shadows",
            "reqps",
            (
                (
                    f"sum by (model, state) (rate(pretzel_shadow_requests_total{{{_MODEL}}}[5m]))",
                    "{{model}} {{state}}",
                ),
            ),
            "Requests that shadows were asked, and answers that were dropped (shed) as the "
            "executors had other work.",
        ),
        Panel(
            "Rollouts: share of the challenger",
            "percent",
            ((f"pretzel_rollout_weight{{{_MODEL}}}", "{{challenger}}"),),
            "Step by step up to 100, or back to 0 where it was aborted.",
        ),
    ),
    "Server": (
        Panel(
            *("Calls by engine", "cps", (_rate("pretzel_engine_calls_total", "engine"),)),
            "Inline calls are computed on the thread that asks, batch ones by executors.",
        ),
        Panel(
            "Behind",
            "s",
            (
                ("pretzel_http_loop_lag_seconds", "event loop"),
                ("pretzel_http_unread_seconds", "unread requests"),
                ("sum(pretzel_queued_seconds)", "queued work"),
            ),
            "How late the event loop is, how long requests have waited to be read, and the work "
            "that waits for executors.",
            0.1,
        ),
        Panel(
            "Memory",
            "bytes",
            (
                ("pretzel_process_proportional_bytes", "processes"),
                ("pretzel_unique_parameter_bytes", "parameters"),
                ("pretzel_unshared_parameter_bytes", "parameters, if none were shared"),
            ),
            "What all processes take, and what parameters do with and without sharing.",
        ),
        Panel(
            "Processor seconds",
            "percentunit",
            (
                ("rate(pretzel_process_cpu_seconds_total[5m])", "processes"),
                _rate("pretzel_compute_seconds_total"),
            ),
            "Processors in use, and how much of it each model computes.",
        ),
        Panel(
            "Versions that native code answers",
            "none",
            ((f"pretzel_version_tier{{{_MODEL}}}", "{{model}}@{{version}}"),),
            "Tier 1 is native code, tier 0 the operators' definitions, which are slower.",
        ),
    ),
}
PANELS = tuple(panel for panels in SECTIONS.values() for panel in panels)

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
        "pretzel_drift_psi > 0.2 and pretzel_drift_psi > 2 * pretzel_drift_psi_error"
        " and pretzel_drift_rows >= 500",
        "15m",
        "column {{ $labels.column }} of {{ $labels.model }} has a PSI of {{ $value }}",
    ),
    Alert(
        "PretzelUnseen",
        "(pretzel_drift_unseen > 0.05 or (pretzel_drift_unseen > 0.005 and"
        " pretzel_drift_p_value < 1e-6)) and pretzel_drift_rows >= 500",
        "15m",
        "{{ $value | humanizePercentage }} of {{ $labels.column }} of {{ $labels.model }} is new",
    ),
    Alert(
        "PretzelWatchDrops",
        "rate(pretzel_watch_dropped_rows_total[15m]) > 0",
        "15m",
        "rows of {{ $labels.model }} are not looked at: there are too many for its watch",
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
    down, number = 0, 0
    for title, panels in SECTIONS.items():
        place = {"x": 0, "y": down, "w": _WIDTH * _ACROSS, "h": 1}
        yield {"id": 1000 + down, "type": "row", "title": title, "gridPos": place, "panels": []}
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
