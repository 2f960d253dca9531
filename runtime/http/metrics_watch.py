"""Figures of watched endpoints: drift by column, rows, errors, scores and labels by segment.

Samples are bounded: a watch has at most as many segments as its limit, and one for all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from runtime.http.metrics_data import Family, Labels
from runtime.service.version import ModelVersion
from runtime.watch.segments import SCORE_BINS, Cell
from runtime.watch.watching import Watch, watches_of


def families(versions: Iterable[ModelVersion]) -> list[Family]:
    """The families of all watches; empty ones are not shown."""
    drift = {name: _gauge(name) for name in ("psi", "ks", "missing", "unseen", "rows")}
    rows = Family("pretzel_segment_rows_total", "counter", "Rows of a segment.")
    errors = Family("pretzel_segment_errors_total", "counter", "Rows that were refused.")
    labels = Family("pretzel_segment_labels_total", "counter", "Answers by their label.")
    seconds = Family(
        "pretzel_segment_compute_seconds_total", "counter", "What its rows took to compute."
    )
    latency = Family(
        *("pretzel_segment_latency_seconds", "gauge", "Mean of the calls that were timed."),
        over="max",
    )
    stages = Family(
        *("pretzel_stage_compute_share", "gauge", "Part of a stage in computing."), over="max"
    )
    scores = Family("pretzel_segment_scores_total", "counter", "Scores up to the bound `up_to`.")
    dropped = Family("pretzel_watch_dropped_rows_total", "counter", "Rows not looked at.")
    looked = Family("pretzel_outlier_rows_total", "counter", "Rows that were looked at.")
    strange = Family("pretzel_outliers_total", "counter", "Rows unlike the reference's.")
    alarms = Family("pretzel_watch_alarms_total", "counter", "Alarms of detectors on scores.")
    segments = (rows, errors, labels, scores, seconds, latency)
    for version in versions:
        model: Labels = (("model", version.name), ("version", version.version))
        for number, watch in enumerate(watches_of(version)):
            if number:  # of several watches, each has series of its own
                model = (*model[:2], ("watch", str(number + 1)))
            _drift(drift, watch, model)
            for cell in watch.cells():
                _cell(segments, watch, cell, model)
            for stage, share in watch.costs.shares.items() if watch.costs else ():
                stages.put(share, (*model, ("stage", stage)))
            for each in watch.outliers:
                looked.put(each.rows, (*model, ("detector", each.name)))
                strange.put(each.found, (*model, ("detector", each.name)))
            dropped.put(watch.dropped, model)
            alarms.put(len(watch.alarms), model)
    return [*drift.values(), *segments, stages, looked, strange, dropped, alarms]


def _gauge(name: str) -> Family:
    return Family(
        f"pretzel_drift_{name}", "gauge", f"Columns against the reference: {name}.", over="max"
    )


def _drift(into: dict[str, Family], watch: Watch, model: Labels) -> None:
    for each in watch.drift():
        for name, family in into.items():
            value = getattr(each, name)
            if value is not None:
                family.put(value, (*model, ("column", each.column)))


def _cell(into: tuple[Family, ...], watch: Watch, cell: Cell, model: Labels) -> None:
    rows, errors, labels, scores, seconds, latency = into
    names = [] if watch.segments is None else [each.text for each in watch.segments.columns]
    pairs = zip(names, cell.segment, strict=True)
    where = (*model, ("segment", ",".join(f"{name}={value}" for name, value in pairs)))
    rows.put(cell.rows, where)
    errors.put(cell.errors, where)
    if cell.latency is not None:
        latency.put(cell.latency, where)
    if cell.seconds:
        seconds.put(cell.seconds, where)
    for label, count in cell.labels.items():
        labels.put(count, (*where, ("label", label)))
    if any(cell.scores):
        for place, count in enumerate(accumulate(cell.scores), 1):
            scores.put(count, (*where, ("up_to", f"{place / SCORE_BINS:g}")))
