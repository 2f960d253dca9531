"""The plan that a caller of an integration means, and its answers in forms that several need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import oven
from flour.core.types import Category, Record, Scalar, Text, Tokens, Type, Vector
from flour.data.arrow_reader import Arrow, ArrowReader
from flour.data.coerce import missing_column
from flour.language.flow import Flow
from flour.language.graph_file import is_graph_file
from objectstore.system import at_fork
from oven import HasPlan, Plan
from oven.plans.arrow import answers_batch
from runtime.bulk.refused import SKIP, answered, others
from runtime.errors import BadCall, BadRegistration
from runtime.service.batches import answers
from runtime.service.call import named_outputs
from runtime.service.graphs import is_graph
from scheduler import cores

Source = Plan | Flow | HasPlan | str | Path
"""A plan, a compiled model, a program, a graph of plans, or a plan's or a graph's file."""


def open_plan(source: Source) -> Plan:
    """The plan that is meant, with its native code."""
    if isinstance(source, Plan):
        return source.wait()
    if type(source).__name__ == "GraphPlan":
        from runtime.bulk.graphs import answers_blocks  # it brings a runtime along

        return answers_blocks(source)
    if is_graph(source) or (isinstance(source, str | Path) and is_graph_file(source)):
        from runtime.bulk.graphs import graph_plan  # as above

        graph: Any = Path(source) if isinstance(source, str) else source
        return graph_plan(graph)
    if isinstance(source, Flow):
        return oven.bake(source).wait()
    if isinstance(source, str | Path):
        return oven.load(source).wait()
    if isinstance(source, HasPlan):
        return open_plan(source.plan)
    raise BadRegistration(
        "this is no plan",
        found=type(source).__name__,
        hint="pass a model of pretzel.compile, a plan, a program, or the path of a saved model",
    )


Outputs = str | Iterable[str] | None
"""The name of one output, some names, or None for all."""


def chosen(plan: Plan, outputs: Outputs) -> tuple[str, ...]:
    """The outputs that a caller wants, checked."""
    every = tuple(plan.outputs)
    return named_outputs(outputs, every, "the program") or every


def check_kept(kept: Sequence[str], outputs: Sequence[str]) -> None:
    """Refuse columns to keep beside outputs that have their names."""
    if both := [each for each in outputs if each in kept]:
        raise BadCall(
            "a column to keep has the name of an output",
            found=f"{both[0]!r} among the columns {', '.join(kept)}",
            hint="keep other columns, or name the outputs that are wanted",
        )


def kept_and_needed(
    plan: Plan, outputs: Sequence[str], names: list[str], keep: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """The columns to keep, by default all, and which are needed for these and the plan."""
    kept = list(names if keep is None else keep)
    check_kept(kept, outputs)
    read = {*ArrowReader(plan.inputs).check(names, keep or ()), *kept}
    for each in kept:
        if each not in names:
            raise missing_column(each, names, "keep")
    return kept, [each for each in names if each in read]


@cache
def _pool() -> ThreadPoolExecutor:
    """The threads of calls that come from several threads of a library at once."""
    return ThreadPoolExecutor(cores(), "pretzel-bulk")


at_fork(after_in_child=_pool.cache_clear)


def in_common(work: Any, items: Iterable[Any]) -> Iterator[Any]:
    """Work in parallel as `in_parallel` does, by threads that all such calls share."""
    return answers(lambda item: _pool().submit(work, item), items, cores() + 1)


def in_parallel(work: Any, items: Iterable[Any], threads: int | None = None) -> Iterator[Any]:
    """Yield results of `work` in the items' order, with a few of them on their way.

    The threads are not the scheduler's executors: what takes its turn here is not native code alone
    but also the conversion from and to Arrow.
    """
    count = threads or cores()
    with ThreadPoolExecutor(count, "pretzel-bulk") as pool:
        yield from answers(lambda item: pool.submit(work, item), items, count + 1)


def predict_arrow(
    plan: Plan,
    batch: Arrow,
    outputs: tuple[str, ...],
    on_error: str | None = None,
    start: int = 0,
    within: str = "",
) -> tuple[Arrow, list[int] | None]:
    """The wanted outputs for a batch, which may have other columns, too; see `answered`.

    Where some rows have no answer, it also tells which have one.
    """
    read = ArrowReader(plan.inputs).columns(batch.schema.names)
    made, refused = answered(plan, batch.select(read), on_error, start, within)
    good = others(len(batch), refused) if refused and on_error == SKIP else None
    return select(made, plan, outputs), good


def select(answers: Arrow, plan: Plan, outputs: tuple[str, ...]) -> Arrow:
    """The answers for some outputs, in this order; those of a record have several columns."""
    if outputs == tuple(plan.outputs):
        return answers
    names = answers.schema.names
    return answers.select([n for out in outputs for n in names if n.split(".")[0] == out])


def columns_of(plan: Plan) -> list[str]:
    """The names of the columns that a plan reads; a vector's have none."""
    (label, kind), *more = plan.inputs.items()
    if isinstance(kind, Vector) and not more:
        if kind.width == 1:
            return [label]
        raise BadCall(
            "this plan reads numbers side by side, whose columns have no names",
            found=str(kind),
            hint="name the columns, in the order of the training data",
        )
    return [name for name, _ in typed_columns(plan)]


def one_column(plan: Plan) -> str:
    """The name of the only column that a plan reads."""
    names = columns_of(plan)
    if len(names) != 1:
        raise BadCall(
            f"this plan reads {len(names)} columns, and is given one",
            found=", ".join(names)[:200],
            hint="ask the frame: frame.pretzel.predict(plan)",
        )
    return names[0]


def empty_answers(plan: Plan, outputs: tuple[str, ...]) -> Arrow:
    """The answers for no rows, which have the types of all answers."""
    return select(answers_batch(plan.run(no_rows(plan.inputs)), plan.outputs), plan, outputs)


def no_rows(inputs: Mapping[str, Type]) -> Any:
    """The data of no rows."""
    columns = {name: _no_values(kind) for name, kind in inputs.items()}
    only = next(iter(inputs.values())) if len(inputs) == 1 else None
    return next(iter(columns.values())) if isinstance(only, Record) else columns


def _no_values(kind: Type) -> Any:
    match kind:
        case Record(fields):
            return {name: _no_values(sub) for name, sub in fields}
        case Vector(width, dtype):
            return np.empty((0, width), object if dtype == "string" else dtype)
        case Scalar(dtype) | Category(dtype):
            return np.empty(0, object if dtype == "string" else dtype)
    return []


def flat_columns(answers: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """One column for each value; vectors have `probabilities_0` and so on, as in CSV files."""
    for name, value in answers.items():
        if isinstance(value, Mapping):
            yield from flat_columns(value, f"{before}{name}.")
        elif getattr(value, "ndim", 1) == 2:
            table = value.toarray() if hasattr(value, "toarray") else value
            yield from ((f"{before}{name}_{at}", table[:, at]) for at in range(table.shape[1]))
        else:
            yield before + name, value


def typed_columns(plan: Plan) -> list[tuple[str, str]]:
    """The columns that a plan reads, with their dtypes; a vector's are called c0, c1, ...

    Columns of lists have the dtype of their items with `LIST` behind it.
    """
    made: list[tuple[str, str]] = []
    for name, kind in plan.inputs.items():
        if isinstance(kind, Record):
            read = [each for each in kind.fields if each[0] not in kind.unread]
            made += [(field, _dtype(field, sub)) for field, sub in read]
        elif isinstance(kind, Vector) and len(plan.inputs) == 1:
            made += [(f"c{place}", kind.dtype) for place in range(kind.width)]
        else:
            made.append((name, _dtype(name, kind)))
    return made


def _dtype(name: str, kind: Type) -> str:
    match kind:
        case Scalar(dtype) | Category(dtype):
            return dtype
        case Text():
            return "string"
        case Vector(dtype=dtype):
            return dtype + LIST
        case Tokens():
            return "string" + LIST
    raise BadRegistration(
        f"column {name!r} is neither one value a row nor a list",
        found=str(kind),
        hint="pass Arrow data to run_arrow, which takes maps and structs",
    )


LIST = "[]"
