"""The last gate before a model is served: it answers, and as it should.

A row is made up from the types of the inputs. Where rows with their answers stand beside the model
(`verify.jsonl`, one JSON object for each: {"input": row, "outputs": {name: answer}}), it must give
these answers: labels exactly, numbers as closely as their width allows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from flour.core.errors import FlourError, InputError
from flour.core.types import Category, Pairs, Record, Scalar, Text, Tokens, Type, Vector
from flour.data.batch import BatchReader
from oven import Plan
from runtime.errors import Unfaithful
from runtime.repository.errors import BadConfig
from runtime.verify import OutputMismatch, compare, tolerance_of

MAX_ROWS = 10_000
MAX_BYTES = 64 << 20


def _value(kind: Type) -> Any:
    match kind:
        case Vector(width, dtype):
            return np.zeros((1, width), np.object_ if dtype == "string" else dtype)
        case Record(fields):
            return {name: _value(sub) for name, sub in fields}
        case Text():
            return [""]
        case Tokens() | Pairs():
            return [[]]
        case Scalar(dtype) | Category(dtype):
            return [""] if dtype == "string" else np.zeros(1, dtype)


def check(plan: Plan, rows: bytes | None, where: str) -> int:
    """Raise unless the plan runs and gives the expected answers; returns how many were compared."""
    block = {name: _value(kind) for name, kind in plan.inputs.items()}
    data = next(iter(block.values())) if len(block) == 1 else block
    with suppress(InputError):  # the plan may accept certain values only
        plan.run(data)
    return 0 if rows is None else compared(plan, read_rows(rows, where), where)


def read_rows(raw: bytes, where: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Each row with its answers."""
    for number, line in enumerate(raw.splitlines(), 1):
        if not line.strip():
            continue
        if number > MAX_ROWS:
            raise BadConfig(
                "there are too many sample rows", where=where, found=f"over {MAX_ROWS:,}"
            )
        try:
            entry = json.loads(line)
            row, answers = entry["input"], entry["outputs"]
            assert isinstance(answers, dict)
        except (ValueError, LookupError, TypeError, AssertionError, RecursionError):
            raise BadConfig(
                'a line is {"input": row, "outputs": {name: answer}}',
                where=f"{where}:{number}",
                found=line[:60].decode("utf-8", "backslashreplace"),
            ) from None
        yield row, answers


def compared(plan: Plan, rows: Iterable[tuple[Any, Mapping[str, Any]]], where: str) -> int:
    """Raise Unfaithful unless every row gets its expected answers; returns how many there were."""
    count = 0
    for number, (row, answers) in enumerate(rows, 1):
        outputs = plan.run(BatchReader(plan.inputs).read(row).block)
        for name, wanted in answers.items():
            if name not in outputs:
                outputs_found = ", ".join(outputs)
                raise BadConfig(
                    f"the model has no output {name!r}", where=where, found=outputs_found
                )
            bad = _differs(plan, name, outputs[name], wanted)
            if bad is not None:
                raise Unfaithful(
                    "the model's answers differ from those in the file of samples beside it",
                    where=f"{where}, row {number}",
                    found=f"{bad.output}: {_short(outputs[name][0])}, wanted {_short(wanted)}",
                )
            count += 1
    return count


def _differs(plan: Plan, name: str, got: object, wanted: object) -> OutputMismatch | None:
    if isinstance(got, Mapping):
        raise FlourError(f"output {name!r} has named columns, which cannot be compared")
    got = np.asarray(got.toarray() if hasattr(got, "toarray") else got)
    tolerance = tolerance_of(got, plan)
    if got.dtype.kind == "f":  # JSON has null for NaN
        wanted = np.array(wanted, np.float64)
    return compare(name, got, np.asarray(wanted)[None], tolerance)


def _short(value: object) -> str:
    return str(value).replace("\n", " ")[:60]
