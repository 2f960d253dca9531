"""The plan that a caller of an integration means, and its answers in forms that several need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import oven
from flour.core.errors import nearest
from flour.data.arrow_reader import Arrow
from flour.language.flow import Flow
from oven import Plan
from runtime.errors import BadCall, BadRegistration
from runtime.service.batches import answers
from scheduler import cores

Source = Plan | Flow | str | Path
"""A plan, a program, or the path of a plan's file."""


def open_plan(source: Source) -> Plan:
    """The plan that is meant, with its native code."""
    if isinstance(source, Plan):
        return source.wait()
    if isinstance(source, Flow):
        return oven.bake(source).wait()
    if isinstance(source, str | Path):
        return oven.load(source).wait()
    raise BadRegistration(
        "this is no plan",
        found=type(source).__name__,
        hint="pass a plan, a program, or the path of a plan's file",
    )


def chosen(plan: Plan, outputs: Iterable[str] | None) -> tuple[str, ...]:
    """The outputs that a caller wants, checked; all where None."""
    names = tuple(plan.outputs) if outputs is None else tuple(outputs)
    for name in names:
        if name not in plan.outputs:
            raise BadCall(
                f"the program has no output {name!r}",
                found=", ".join(plan.outputs),
                hint=nearest(name, list(plan.outputs)),
            )
    return names


def columns_read(plan: Plan, names: list[str]) -> list[str]:
    """Which of these columns the plan reads."""
    from flour.data.arrow_reader import ArrowReader

    return ArrowReader(plan.inputs).columns(names)


def in_parallel(work: Any, items: Iterable[Any], threads: int | None = None) -> Iterator[Any]:
    """What `work` makes of each item, in their order, with a few of them on their way.

    The threads are not the scheduler's executors: what takes its turn here is not native code alone
    but also the conversion from and to Arrow.
    """
    count = threads or cores()
    with ThreadPoolExecutor(count, "pretzel-bulk") as pool:
        yield from answers(lambda item: pool.submit(work, item), items, count + 1)


def predict_arrow(plan: Plan, batch: Arrow, outputs: tuple[str, ...]) -> Arrow:
    """The wanted outputs for a batch, which may have other columns, too."""
    made = plan.run_arrow(batch.select(columns_read(plan, batch.schema.names)))
    return select(made, plan, outputs)


def select(answers: Arrow, plan: Plan, outputs: tuple[str, ...]) -> Arrow:
    """The answers for some outputs, in this order; those of a record have several columns."""
    if outputs == tuple(plan.outputs):
        return answers
    names = answers.schema.names
    return answers.select([n for out in outputs for n in names if n.split(".")[0] == out])
