"""Times each stage of a plan: the stages run one by one on the same rows.

`measure` runs each several times for its time; `staged` runs them once for their answers, and
returns when each ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from csv import writer
from dataclasses import dataclass
from io import StringIO
from time import perf_counter
from typing import Any

import numpy as np

from flour.core.reference import public
from flour.core.source import Source
from flour.core.sparse import Sparse
from flour.core.types import (
    FLOATS,
    Category,
    Pairs,
    Record,
    Scalar,
    Text,
    Tokens,
    Type,
    Vector,
    Whole,
)
from flour.data.coerce import WHOLE_DTYPES, coerce
from flour.ops.csv import ParseCsv
from oven.codegen.stages import Stage, Value
from oven.plans.plan import Plan
from oven.plans.values import by_definition, interpret, native_column, output_value
from oven.run.native_run import NativeRun, RowsRefused

SAMPLE_ROWS = 256
REPEATS = 7
_WORDS = ["red", "green", "blue", "a few words", "ein paar W\u00f6rter", ""]


@dataclass(frozen=True)
class StageTime:
    """One stage's share of a run."""

    stage: Stage
    seconds: float
    #: Read and written: columns and parameters.
    bytes: int


@dataclass(frozen=True)
class Timed:
    """A run, stage by stage, and as a whole."""

    rows: int
    #: "given", or "random" for rows made here.
    source: str
    stages: tuple[StageTime, ...]
    whole: float


def measure(plan: Plan, data: object = None) -> Timed:
    """Run the plan on these rows, or on random ones; the best time of several for each stage."""
    plan.wait()
    if data is None:
        found = {}
        for item in plan.flow.nodes():
            if isinstance(item.op, ParseCsv) and isinstance(item.inputs[0].op, Source):
                kinds: Any = zip(item.op.labels, item.op.kinds, strict=True)
                fields = list(sample(dict(kinds), SAMPLE_ROWS).values())
                lines = StringIO()
                out = writer(lines, delimiter=item.op.separator, lineterminator="\0")
                out.writerows(zip(*fields, strict=True))
                found[item.inputs[0].op.label] = np.array(lines.getvalue().split("\0")[:-1], object)
        columns, rows = {**sample(plan.inputs, SAMPLE_ROWS), **found}, SAMPLE_ROWS
    else:
        columns, rows = coerce(plan.inputs, data)
    values: dict[Value, Any] = {}
    times = tuple(_stage_time(stage, values, columns, rows) for stage in plan.program.stages)
    whole = _best(lambda: plan.run_columns(columns, rows))[0]
    return Timed(rows, "random" if data is None else "given", times, whole)


@dataclass(frozen=True)
class StageSpan:
    """Start and end of one stage, by `time.perf_counter`."""

    stage: Stage
    began: float
    ended: float


def staged(plan: Plan, data: object) -> tuple[dict[str, Any], int, tuple[StageSpan, ...]]:
    """The answers of `plan.run` computed stage by stage, the number of rows, and each stage's span.

    It takes longer than `run`, as all values pass through memory. Rows that native code refuses are
    answered by the reference interpreter, and only the stages up to the refusal have spans.
    """
    plan = (plan.variants.of(data) or plan).wait()
    columns, rows = coerce(plan.inputs, data)
    values: dict[Value, Any] = {}
    spans: list[StageSpan] = []
    outputs = plan.program.optimised.outputs
    stages = plan.program.stages
    runs = [NativeRun.of([each], each.outputs) if each.source else None for each in stages]
    try:
        for stage, run in zip(stages, runs, strict=True):
            began = perf_counter()
            if run is None:
                values |= interpret(stage.nodes[0], values, columns)
            else:
                given = {value: native_column(value, values, columns) for value in run.inputs}
                values |= run.run(given, rows)
            spans.append(StageSpan(stage, began, perf_counter()))
        outputs_by_name = {
            name: output_value(item, values, columns) for name, item in outputs.items()
        }
    except RowsRefused:
        outputs_by_name = by_definition(plan.program.optimised, columns)
    answers = {name: public(value, outputs[name].type) for name, value in outputs_by_name.items()}
    return answers, rows, tuple(spans)


def _stage_time(
    stage: Stage, values: dict[Value, Any], columns: Mapping[str, Any], rows: int
) -> StageTime:
    """Run one stage, whose inputs are in `values`; its outputs are added to them."""
    if stage.source:
        run = NativeRun.of([stage], stage.outputs)
        arguments = {value: native_column(value, values, columns) for value in stage.inputs}
        seconds, results = _best(lambda: run.run(arguments, rows))
        read = [*arguments.values(), *results.values()]
    else:
        seconds, results = _best(lambda: interpret(stage.nodes[0], values, columns))
        read = [values[value] for value in stage.inputs if value in values] + [*results.values()]
    values |= results
    parameters = {item.digest: item.nbytes for item in stage.parameters()}
    arrays = [part for one in read for part in _arrays(one)]
    size = sum(int(getattr(part, "nbytes", 0)) for part in arrays)
    return StageTime(stage, seconds, size + sum(parameters.values()))


def _arrays(column: object) -> tuple[object, ...]:
    """The arrays of a column."""
    if isinstance(column, Sparse):
        return column.data, column.indices, column.indptr
    return (column,)


def _best(call: Callable[[], Any]) -> tuple[float, Any]:
    best = np.inf
    for _ in range(REPEATS):
        start, result = perf_counter(), call()
        best = min(best, perf_counter() - start)
    return float(best), result


# --- rows to run on -----------------------------------------------------------------------------


def sample(inputs: Mapping[str, Type], rows: int) -> dict[str, Any]:
    """Random columns of these types, the same ones every time."""
    rng = np.random.default_rng(0)
    return {name: _random(rng, kind, rows) for name, kind in inputs.items()}


def _random(rng: np.random.Generator, kind: Type, rows: int) -> Any:  # noqa: PLR0911 (one for each kind)
    match kind:
        case Record(fields):
            return {name: _random(rng, sub, rows) for name, sub in fields}
        case Vector(width, dtype, sparse):
            numbers = _values(rng, (rows, width), dtype)
            if not sparse:
                return numbers
            return Sparse.of(np.where(rng.random((rows, width)) < 0.1, numbers, 0))
        case Scalar(dtype) | Category(dtype):
            return _values(rng, (rows,), dtype)
        case Text():
            return _values(rng, (rows,), "string")
        case Whole():
            return [np.zeros((), WHOLE_DTYPES.get(kind.kind, "float32"))]
        case Tokens():
            return [str(words).split() for words in _values(rng, (rows,), "string")]
        case Pairs():
            names = [str(words).split() for words in _values(rng, (rows,), "string")]
            return [[(name, float(index)) for index, name in enumerate(row)] for row in names]


def _values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    if dtype == "string":
        return rng.choice(np.array(_WORDS, object), shape)
    if dtype in FLOATS:
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, 2 if dtype == "bool" else 10, shape).astype(dtype)
