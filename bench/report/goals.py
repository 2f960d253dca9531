"""What the project set out to reach, what was measured, and by how much a goal is missed."""

from __future__ import annotations

from bench.report.figures import OURS, Figures, geometric_mean, ratio, shown, times
from bench.report.tables import Table, added, peak


def goals(figures: Figures) -> Table:
    """One row for each goal that this run has figures for."""
    rows = [*_latency(figures), *_memory(figures), *_loading(figures)]
    rows += [*_throughput(figures), *_load(figures), *_scale(figures)]
    text = "Goals were set before anything was measured. Small scales say little about memory."
    return Table("Goals", text, ["goal", "wanted", "measured", ""], rows)


def _row(goal: str, wanted: str, found: str, *, met: bool) -> list[str]:
    return [goal, wanted, found, "met" if met else "**missed**"]


def _at_least(goal: str, wanted: float, found: float | None) -> list[list[str]]:
    if found is None:
        return []
    missed = f" ({times(wanted / found)} short)" if found < wanted else ""
    return [_row(goal, f"≥ {wanted:g}x", times(found) + missed, met=found >= wanted)]


def _at_most(goal: str, wanted: float, found: float | None, unit: str) -> list[list[str]]:
    if found is None:
        return []
    over = f" ({times(found / wanted)} over)" if found > wanted else ""
    said = f"{shown(found)} {unit}{over}"
    return [_row(goal, f"≤ {wanted:g} {unit}", said, met=found <= wanted)]


def _latency(figures: Figures) -> list[list[str]]:
    def mean(who: str) -> float | None:
        return geometric_mean(
            ratio(
                figures.value("latency", name, who, "hot_p99"),
                figures.value("latency", name, OURS, "hot_p99"),
            )
            for name in figures.workloads("latency")
        )

    rows = _at_least("hot p99 below tuned onnxruntime (mean)", 10, mean("onnxruntime"))
    rows += _at_least("hot p99 below scikit-learn (mean)", 300, mean("sklearn"))
    for name in figures.workloads("latency"):
        cold = figures.value("latency", name, OURS, "cold_p99")
        hot = figures.value("latency", name, OURS, "hot_p99")
        rows += _at_most(f"{name.upper()}: cold p99 by hot p99", 3, ratio(cold, hot), "times")
    return rows


def _memory(figures: Figures) -> list[list[str]]:
    theirs = [added(figures, "ac", who) for who in ("onnxruntime", "sklearn")]
    known = [each for each in theirs if each]
    found = ratio(min(known, default=None), added(figures, "ac", OURS))
    return _at_least("AC: memory below one session or object each", 25, found)


def _loading(figures: Figures) -> list[list[str]]:
    seconds = [
        figures.find("load_time", name, OURS, "all") for name in figures.workloads("load_time")
    ]
    paper = [each for each in seconds if each is not None and each.workload in {"sa", "ac"}]
    if len(paper) != 2:
        return []
    took = sum(each.value or 0.0 for each in paper)
    plans = sum(each.x or 0.0 for each in paper)
    return _at_most("load SA and AC, as if they were 500 plans", 1, took / plans * 500, "s")


def _throughput(figures: Figures) -> list[list[str]]:
    rows = []
    for name, wanted in (("sa", 15.0), ("ac", 8.0)):
        theirs = [peak(figures, name, who) for who in ("onnxruntime", "sklearn")]
        best = max((each for each in theirs if each), default=None)
        found = ratio(peak(figures, name, OURS), best)
        rows += _at_least(f"{name.upper()}: rows a second on one core", wanted, found)
    return rows


def _load(figures: Figures) -> list[list[str]]:
    rows = []
    for name in figures.workloads("heavy_load"):
        curve = dict(figures.points("heavy_load", name, OURS, "rows"))
        if 2.0 in curve and max(curve.values()) > 0:
            kept = curve[2.0] / max(curve.values())
            said = f"{100 * kept:.0f} %"
            goal = f"{name.upper()}: of the peak at twice the load"
            rows.append(_row(goal, "≥ 95 %", said, met=kept >= 0.95))
    return rows


def _scale(figures: Figures) -> list[list[str]]:
    seconds = figures.value("scale", "lin", OURS, "load", 20000)
    size = figures.value("scale", "lin", OURS, "rss", 20000)
    return [
        *_at_most("20,000 plans: loading", 60, seconds, "s"),
        *_at_most("20,000 plans: memory", 4096, size, "MiB"),
    ]
