"""Figures of watched endpoints: drift by column, rows, errors, scores and labels by segment.

Samples are bounded: a watch has at most as many segments as its limit, and one for all others.
Drift is computed from the counts of all processes together, as it cannot be merged itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from runtime.http.snapshots import Distribution, Family, Labels, Snapshot
from runtime.service.version import ModelVersion
from runtime.watch.segments import SCORE_BINS, SegmentCell
from runtime.watch.statistics import Drift, Window, drift_of
from runtime.watch.watching import Watch, watches_of

_WINDOWS = "pretzel_drift_windows"
#: Of windows of less rows, nothing but that is told: any two rows have a PSI of several.
_LEAST_ROWS = 100


def families(versions: Iterable[ModelVersion]) -> list[Family]:
    """The families of all watches; empty ones are not shown."""
    windows = Family(_WINDOWS, "histogram", "Counts of columns by bin, before drift is computed.")
    rows = Family("pretzel_segment_rows_total", "counter", "Rows of a segment.")
    errors = Family("pretzel_segment_errors_total", "counter", "Rows that were refused.")
    labels = Family("pretzel_segment_labels_total", "counter", "Answers by their label.")
    seconds = Family(
        "pretzel_segment_compute_seconds_total", "counter", "Computing time of a segment's rows."
    )
    latency = Family(
        *("pretzel_segment_latency_seconds", "gauge", "Mean time of the timed calls of a segment."),
        over="max",
    )
    stages = Family(
        *("pretzel_stage_compute_share", "gauge", "A stage's share of time."), over="max"
    )
    scores = Family("pretzel_segment_scores_total", "counter", "Scores up to the bound `up_to`.")
    dropped = Family("pretzel_watch_dropped_rows_total", "counter", "Rows that watches left out.")
    looked = Family("pretzel_outlier_rows_total", "counter", "Rows examined for outliers.")
    strange = Family("pretzel_outliers_total", "counter", "Rows unlike the reference's.")
    alarms = Family("pretzel_watch_alarms_total", "counter", "Alarms of detectors on scores.")
    segments = (rows, errors, labels, scores, seconds, latency)
    for version in versions:
        model: Labels = (("model", version.name), ("version", version.version))
        for number, watch in enumerate(watches_of(version)):
            if number:  # of several watches, each has series of its own
                model = (*model[:2], ("watch", str(number + 1)))
            for each in watch.windows():
                kind = "numbers" if each.is_numbers else "words"
                bins = Distribution([*each.reference.tolist(), *each.counts.tolist()])
                where = (("column", each.column), (kind, str(len(each.counts))))
                windows.put(bins, (*model, *where))
            for cell in watch.cells():
                _cell(segments, watch, cell, model)
            for stage, share in watch.costs.shares.items() if watch.costs else ():
                stages.put(share, (*model, ("stage", stage)))
            for finder in watch.outliers:
                looked.put(finder.rows, (*model, ("detector", finder.name)))
                strange.put(finder.found, (*model, ("detector", finder.name)))
            dropped.put(watch.dropped, model)
            alarms.put(len(watch.alarms), model)
    return [windows, *segments, stages, looked, strange, dropped, alarms]


def with_drift(snapshot: Snapshot) -> Snapshot:
    """A merged snapshot with the drift of columns instead of their counts."""
    return [
        made for each in snapshot for made in (_drift(each) if each.name == _WINDOWS else [each])
    ]


def _drift(windows: Family) -> list[Family]:
    found: dict[Labels, Drift] = {}
    for (*where, (kind, _)), value in windows.samples:
        assert isinstance(value, Distribution), "windows have counts by bin"
        # The references of several processes add up too, which leaves their shares as they are.
        reference, counts = np.array(value.counts, np.int64).reshape(2, -1)
        one = drift_of(Window(where[-1][1], kind == "numbers", reference, counts))
        # While a model is replaced, processes may have different bins; most rows have those shown.
        if one.rows >= (known.rows if (known := found.get(tuple(where))) else 0):
            found[tuple(where)] = one
    families = []
    for name in (
        "psi",
        "psi_error",
        "ks",
        "p_value",
        "missing",
        "unseen",
        "beyond",
        "rows",
        "alarms",
    ):
        text = f"Columns against the reference: {name}."
        family = Family(f"pretzel_drift_{name}", "gauge", text)
        for labels, one in found.items():
            told = one.rows >= _LEAST_ROWS or name in {"rows", "alarms"}
            if told and (figure := getattr(one, name)) is not None:
                family.put(figure, labels)
        families.append(family)
    return families


def _cell(into: tuple[Family, ...], watch: Watch, cell: SegmentCell, model: Labels) -> None:
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
