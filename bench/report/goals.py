"""What the project set out to reach, what was measured, and by how much a goal is missed."""

from __future__ import annotations

from bench.report.figures import OURS, Figures, geometric_mean, ratio, shown, times
from bench.report.tables import Table, added, peak
from bench.report.told import counted
from bench.workload import NAMES

#: What a plan may take beside its parameters.
PLAN_KIB = 16

Row = list[str]


def goals(figures: Figures) -> Table:
    """One row for each goal; of a run without figures for any of them, none."""
    rows = [*_latency(figures), *_memory(figures), _loading(figures), *_cold(figures)]
    rows += [*_throughput(figures), *_load(figures), *_scale(figures), *_entries(figures)]
    if all(row[-1] == "not measured" for row in rows):
        rows = []
    text = (
        "Goals were set before anything was measured. What is missed is explained in "
        "docs/performance.md under Where we lose."
    )
    told = counted([row[-1] for row in rows])
    return Table("Goals", text, ["goal", "wanted", "measured", ""], rows, told)


def _row(goal: str, wanted: str, found: str | None, *, met: bool) -> Row:
    if found is None:
        return [goal, wanted, "–", "not measured"]
    return [goal, wanted, found, "met" if met else "**missed**"]


def _at_least(goal: str, wanted: float, found: float | None, note: str = "") -> Row:
    if found is None:
        return _row(goal, f"≥ {wanted:g}x", None, met=False)
    missed = f" ({times(wanted / found)} short)" if found < wanted else ""
    return _row(goal, f"≥ {wanted:g}x", times(found) + missed + note, met=found >= wanted)


def _at_most(goal: str, wanted: float, found: float | None, unit: str) -> Row:
    limit = f"≤ {shown(wanted, 4)} {unit}"
    if found is None:
        return _row(goal, limit, None, met=False)
    over = f" ({times(found / wanted)} over)" if found > wanted else ""
    return _row(goal, limit, f"{shown(found)} {unit}{over}", met=found <= wanted)


def _latency(figures: Figures) -> list[Row]:
    """Of all calls, and as the paper has it: of the means of pipelines."""
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
            rows.append(_at_least(goal, wanted, *_mean_ratio(figures, who, metric)))
    return rows


def _mean_ratio(figures: Figures, who: str, metric: str) -> tuple[float | None, str]:
    """Theirs by ours over all workloads, and which of them are missing."""
    found = {
        name: ratio(*(figures.value("latency", name, each, metric) for each in (who, OURS)))
        for name in NAMES
    }
    missing = [name.upper() for name, value in found.items() if value is None]
    note = f", without {', '.join(missing)}" if missing else ""
    return geometric_mean(found.values()), note


def _cold(figures: Figures) -> list[Row]:
    rows = []
    for name in NAMES:
        cold = figures.value("latency", name, OURS, "cold_p99")
        hot = figures.value("latency", name, OURS, "hot_p99")
        rows.append(_at_most(f"{name.upper()}: cold p99 by hot p99", 3, ratio(cold, hot), "times"))
    return rows


def _memory(figures: Figures) -> list[Row]:
    theirs = [added(figures, "ac", who) for who in ("onnxruntime", "sklearn")]
    known = [each for each in theirs if each]
    found = ratio(min(known, default=None), added(figures, "ac", OURS))
    row = _at_least("AC: memory below one session or object each", 25, found)
    return [row, _parameters(figures)]


def _parameters(figures: Figures) -> Row:
    """SA's memory by what it has to hold: dictionaries once, weights, a little for a plan."""
    goal = f"SA: memory, by dictionaries once, own weights and {PLAN_KIB} KiB each"
    unique = figures.find("memory", "sa", OURS, "unique")
    found = added(figures, "sa", OURS)
    if unique is None or found is None:
        return _row(goal, "≤ 1 times", None, met=False)
    limit = (unique.value or 0.0) + (unique.x or 0.0) * PLAN_KIB / 1024
    over = f" ({times(found / limit)} over)" if found > limit else ""
    said = f"{shown(found)} MiB{over}"
    return _row(goal, f"≤ {shown(limit)} MiB", said, met=found <= limit)


def _loading(figures: Figures) -> Row:
    goal = "500 plans of SA and AC, loaded with warm code"
    every = [figures.find("load_time", name, OURS, "all") for name in ("sa", "ac")]
    known = [each for each in every if each is not None]
    if len(known) < len(every):
        return _row(goal, "≤ 1 s", None, met=False)
    took = sum(each.value or 0.0 for each in known)
    plans = sum(each.x or 0.0 for each in known)
    if plans != 500:
        goal += f", from {plans:g}"
    return _at_most(goal, 1, took / plans * 500, "s")


def _throughput(figures: Figures) -> list[Row]:
    rows = []
    for name, wanted in (("sa", 15.0), ("ac", 8.0)):
        theirs = [peak(figures, name, who) for who in ("onnxruntime", "sklearn")]
        best = max((each for each in theirs if each), default=None)
        found = ratio(peak(figures, name, OURS), best)
        rows.append(_at_least(f"{name.upper()}: rows a second on one core", wanted, found))
    return rows


def _load(figures: Figures) -> list[Row]:
    rows = []
    for name in ("sa", "ac"):
        goal = f"{name.upper()}: of the peak at twice the load"
        curve = dict(figures.points("heavy_load", name, OURS, "rows"))
        most = max(curve.values(), default=0.0)
        kept = curve[2.0] / most if 2.0 in curve and most else None
        said = None if kept is None else f"{100 * kept:.0f} %"
        rows.append(_row(goal, "≥ 95 %", said, met=kept is not None and kept >= 0.95))
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
        rows.append(_at_least(goal, wanted, _least(figures, who)))
    waits = figures.value("end_to_end", "lin", OURS, "p99", 16)
    rows.append(_at_most("p99 of 16 connections", 1, waits, "ms"))
    return rows


def _least(figures: Figures, who: str) -> float | None:
    """The worst ratio of ours to theirs over the numbers of connections."""
    found = []
    for x, theirs in figures.points("end_to_end", "lin", who, "rate"):
        found.append(ratio(figures.value("end_to_end", "lin", OURS, "rate", x), theirs))
    known = [each for each in found if each is not None]
    return min(known, default=None)
