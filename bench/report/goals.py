"""The project's goals, the measured figures, and by how much a goal is missed."""

from __future__ import annotations

from bench.report.figures import OURS, Figures, geometric_mean, ratio, shown, times
from bench.report.tables import Table, added, core_peak
from bench.report.told import counted
from bench.workload import NAMES

#: Memory that a plan may take beside its parameters.
PLAN_KIB = 16

Row = list[str]


def goals(figures: Figures) -> Table:
    """One row for each goal; of a run without figures for any of them, none."""
    theirs = [added(figures, "ac", who) for who in ("onnxruntime", "sklearn")]
    sizes = [each for each in theirs if each]
    by = ratio(min(sizes, default=None), added(figures, "ac", OURS))
    memory = _at_least("AC: memory below one session or object each", 25, by)
    rows = [*_latency(figures), memory, _parameters(figures), _loading(figures), *_cold(figures)]
    rows += [*_throughput(figures), *_load(figures), *_scale(figures), *_entries(figures)]
    if all(row[-1] == "not measured" for row in rows):
        rows = []
    text = (
        "Goals were set before anything was measured. What is missed is explained in "
        "docs/contributing/performance.md under Where we lose."
    )
    verdicts = counted([row[-1] for row in rows])
    return Table("Goals", text, ["goal", "wanted", "measured", ""], rows, verdicts)


def _row(goal: str, wanted: str, measured: str | None, *, met: bool) -> Row:
    if measured is None:
        return [goal, wanted, "–", "not measured"]
    return [goal, wanted, measured, "met" if met else "**missed**"]


def _at_least(goal: str, wanted: float, measured: float | None, note: str = "") -> Row:
    if measured is None:
        return _row(goal, f"≥ {wanted:g}x", None, met=False)
    missed = f" ({times(wanted / measured)} short)" if measured < wanted else ""
    return _row(goal, f"≥ {wanted:g}x", times(measured) + missed + note, met=measured >= wanted)


def _at_most(goal: str, wanted: float, measured: float | None, unit: str) -> Row:
    limit = f"≤ {shown(wanted, 4)} {unit}"
    if measured is None:
        return _row(goal, limit, None, met=False)
    over = f" ({times(measured / wanted)} over)" if measured > wanted else ""
    return _row(goal, limit, f"{shown(measured)} {unit}{over}", met=measured <= wanted)


def _latency(figures: Figures) -> list[Row]:
    """Over all calls, and as in the paper: over the means of pipelines."""
    rows = []
    for who, title, wanted in (
        ("onnxruntime", "tuned onnxruntime", 10),
        ("sklearn", "sklearn", 300),
    ):
        for metric, called in (
            ("hot_p99", "hot p99"),
            ("hot_p99_of_means", "hot p99 of pipelines' means"),
        ):
            goal = f"{called} below {title}, geometric mean"
            ratios = {
                name: ratio(*(figures.value("latency", name, each, metric) for each in (who, OURS)))
                for name in NAMES
            }
            missing = [name.upper() for name, value in ratios.items() if value is None]
            note = f", without {', '.join(missing)}" if missing else ""
            rows.append(_at_least(goal, wanted, geometric_mean(ratios.values()), note))
    return rows


def _cold(figures: Figures) -> list[Row]:
    rows = []
    for name in NAMES:
        cold = figures.value("latency", name, OURS, "cold_p99")
        hot = figures.value("latency", name, OURS, "hot_p99")
        rows.append(_at_most(f"{name.upper()}: cold p99 by hot p99", 3, ratio(cold, hot), "times"))
    return rows


def _parameters(figures: Figures) -> Row:
    """SA's memory against its limit: dictionaries once, weights, an allowance for each plan."""
    goal = f"SA: memory, by dictionaries once, own weights and {PLAN_KIB} KiB each"
    unique = figures.find("memory", "sa", OURS, "unique")
    used = added(figures, "sa", OURS)
    if unique is None or used is None:
        return _row(goal, "≤ 1 times", None, met=False)
    limit = (unique.value or 0.0) + (unique.x or 0.0) * PLAN_KIB / 1024
    over = f" ({times(used / limit)} over)" if used > limit else ""
    measured = f"{shown(used)} MiB{over}"
    return _row(goal, f"≤ {shown(limit)} MiB", measured, met=used <= limit)


def _loading(figures: Figures) -> Row:
    goal = "500 plans of SA and AC, loaded with warm code"
    every = [figures.find("load_time", name, OURS, "all") for name in ("sa", "ac")]
    records = [each for each in every if each is not None]
    if len(records) < len(every):
        return _row(goal, "≤ 1 s", None, met=False)
    took = sum(each.value or 0.0 for each in records)
    plans = sum(each.x or 0.0 for each in records)
    if plans != 500:  # what comes with a process's first plan comes once
        found = (figures.value("load_time", name, OURS, "first") for name in ("sa", "ac"))
        firsts = [first for first in found if first is not None]
        others, once = len(firsts), sum(firsts)
        took = once + (took - once) / (plans - others) * (500 - others)
        goal += f", from {plans:g}"
    return _at_most(goal, 1, took, "s")


def _throughput(figures: Figures) -> list[Row]:
    rows = []
    for name, wanted in (("sa", 15.0), ("ac", 8.0)):
        theirs = [core_peak(figures, name, who) for who in ("onnxruntime", "sklearn")]
        best = max((each for each in theirs if each), default=None)
        by = ratio(core_peak(figures, name, OURS), best)
        rows.append(_at_least(f"{name.upper()}: rows a second on one core", wanted, by))
    return rows


def _load(figures: Figures) -> list[Row]:
    rows = []
    for name in ("sa", "ac"):
        goal = f"{name.upper()}: of the peak at twice the load"
        curve = dict(figures.points("heavy_load", name, OURS, "rows"))
        most = max(curve.values(), default=0.0)
        kept = curve[2.0] / most if 2.0 in curve and most else None
        measured = None if kept is None else f"{100 * kept:.0f} %"
        rows.append(_row(goal, "≥ 95 %", measured, met=kept is not None and kept >= 0.95))
    return rows


def _scale(figures: Figures) -> list[Row]:
    seconds = figures.value("scale", "lin", OURS, "load", 20000)
    size = figures.value("scale", "lin", OURS, "rss", 20000)
    return [
        _at_most("20,000 plans: loading", 60, seconds, "s"),
        _at_most("20,000 plans: memory", 4096, size, "MiB"),
    ]


def _entries(figures: Figures) -> list[Row]:
    """Over HTTP: by how much the slower of one and sixteen connections beats each server."""
    rows = []
    for who, title, wanted in (
        ("mlserver", "MLServer", 25),
        ("bentoml", "BentoML", 10),
        ("litserve", "LitServe", 10),
        ("rayserve", "Ray Serve", 10),
        ("echo", "a bare echo", 0.7),
    ):
        goal = f"requests a second, by {title}"
        ratios = []
        for x, theirs in figures.points("end_to_end", "lin", who, "rate"):
            ratios.append(ratio(figures.value("end_to_end", "lin", OURS, "rate", x), theirs))
        measured = [each for each in ratios if each is not None]
        rows.append(_at_least(goal, wanted, min(measured, default=None)))
    for name, metric, connections, limit in (
        ("p99", "p99", 16, 1),
        ("p99.9", "p999", 16, 5),
        ("p99.9", "p999", 256, 25),
    ):
        waits = figures.value("end_to_end", "lin", OURS, metric, connections)
        rows.append(_at_most(f"{name} of {connections} connections", limit, waits, "ms"))
    return rows
