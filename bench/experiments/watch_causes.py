"""Of `python -m bench watch`: changes of context, and faults traced to the column they are in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.goal import Goal
from bench.workload import Spec
from bench.workloads import ac, tab

FAULTS = ("shift", "scale", "constant", "missing", "units")
_ROWS, _WORLDS = 500, 60
_MORE, _WINDOW = 20_000, 2_000

Array = Any
Columns = dict[str, Any]


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    same, changed = alarms(changed=False), alarms(changed=True)
    yield Goal("another context alone: % of plain tests that alarm", same[0], 95)
    yield Goal("another context alone: % of tests given it that alarm", same[1], 10, at_most=True)
    yield Goal("rows changed given their context: % of tests that alarm", changed[1], 90)
    for name, (plan, reference, window) in (("tab", table_model()), ("ac", numeric_model())):
        right, tried = traced(plan, reference, window)
        goal = f"{name}: % of {tried} faults of one column traced to it"
        yield Goal(goal, 100 * right / tried, 90)


def alarms(*, changed: bool, worlds: int = _WORLDS) -> tuple[float, float]:
    """The percentage of windows where the plain test alarms, and the one given the context."""
    from runtime.watch import context_test, two_sample_test

    plain = given = 0
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        old, rows = _world(rng, 0.0, 1.0, 0.0)
        new, others = _world(rng, 1.0, 0.6, 0.5 * changed)
        plain += two_sample_test(rows, others, seed=seed).p_value <= 0.05
        given += context_test(rows, old, others, new, seed=seed).p_value <= 0.05
    return 100 * plain / worlds, 100 * given / worlds


def _world(
    rng: np.random.Generator, middle: float, spread: float, change: float
) -> tuple[Array, Array]:
    """A context and rows that go with it; `change` is that of the first column by itself."""
    context = rng.normal(middle, spread, _ROWS)
    means = [np.sin(1.5 * context) + 0.8 * context + change, context**2 / 2, -context]
    return context, np.column_stack(means) + rng.normal(0, 0.5, (_ROWS, 3))


def table_model() -> tuple[Any, Columns, Columns]:
    """A pipeline of tab, rows of the reference and of a window without faults."""
    import flour
    import oven

    made = tab.make(Spec("tab", 1, 0.1))
    model = next(iter(made.pipelines))
    drawn = [tab.table(seed, count) for seed, count in ((1, _MORE), (2, _WINDOW))]
    reference, window = (
        {name: each.column(name, 0, len(each.rows)) for name in each.columns} for each in drawn
    )
    sample = made.inputs.frame(0, 1000)
    return oven.bake(flour.from_sklearn(model, sample=sample)).wait(), reference, window


def numeric_model() -> tuple[Any, Columns, Columns]:
    """A pipeline of ac, with the like."""
    import flour
    import oven

    made = ac.make(Spec("ac", 1, 0.1))
    model = next(iter(made.pipelines))
    drawn = [ac.numbers(seed, count, ac.WIDTH) for seed, count in ((1, _MORE), (2, _WINDOW))]
    reference, window = (
        dict(zip(map(str, range(ac.WIDTH)), each.T, strict=True)) for each in drawn
    )
    return oven.bake(flour.from_sklearn(model)).wait(), reference, window


def traced(plan: Any, reference: Columns, window: Columns) -> tuple[int, int]:
    """How many faults, each kind in each column, have their column as top cause, and how many."""
    from runtime.watch import Reference, causes_of, drift

    sketches = Reference.of(reference).columns
    clean = {n: drift(n, each, *each.counted(window[n])) for n, each in sketches.items()}
    right = tried = 0
    for column, values in window.items():
        for kind in FAULTS:
            wrong = fault(kind, values, np.random.default_rng(tried))
            if wrong is None:
                continue
            sketch = sketches[column]
            drifts = [*{**clean, column: drift(column, sketch, *sketch.counted(wrong))}.values()]
            found = causes_of(drifts, plan, reference, {**window, column: wrong}, rows=500)
            right += found[0].column == column
            tried += 1
    return right, tried


def fault(kind: str, values: Array, rng: np.random.Generator) -> Array | None:
    """A column with a fault of this kind; None where words have none such."""
    if values.dtype == object:
        if kind in ("shift", "scale"):
            return None
        wrong = {"constant": values[0], "missing": "", "units": "?"}[kind]
        chosen = np.ones(len(values), bool) if kind == "constant" else rng.random(len(values)) < 0.5
        return np.where(chosen, wrong, values).astype(object)
    chosen = rng.random(len(values)) < 0.5
    return {
        "shift": values + np.nanstd(values),
        "scale": values * 1.6,
        "constant": np.full(len(values), np.nanmedian(values)),
        "missing": np.where(chosen, np.nan, values),
        "units": np.where(chosen, values * 2.54, values),
    }[kind]
