"""Rows that a plan refuses: where they are in the caller's data, and the answers for the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from flour.core.errors import FlourError, FunctionFailed, InputError, OpaqueFailed
from flour.core.types import Scalar
from flour.data.arrow_reader import Arrow, library
from oven import Plan
from runtime.errors import BadCall

T = TypeVar("T")
Answers = Any
E = TypeVar("E", bound=FlourError)

#: Errors that one row of a block may be to blame for.
ROW_ERRORS = (InputError, FunctionFailed, OpaqueFailed)
NULL, SKIP = "null", "skip"
#: Where operators and readers say that a row is: `$.age[3]`, `$[3].age`, `row 3, column 0 of ...`.
PLACE = re.compile(r"^(?:row (?=\d)|\$(?:\.(?P<column>[^\[\]]+))?\[)(?P<row>\d+)(?:\]\.?|, )?")


def moved(problem: E, rows: int, within: str = "") -> E:
    """The error about a part of some rows that begins after `rows` of them."""
    if match := PLACE.match(problem.where or ""):
        before, after = (
            (problem.where or "")[: match.start("row")],
            match.string[match.end("row") :],
        )
        problem.where = f"{before}{int(match['row']) + rows}{after}"
    if within:
        problem.where = f"{within}, {problem.where}" if problem.where else within
    return problem


def check_policy(plan: Plan, on_error: str | None, known: Collection[str] = (NULL, SKIP)) -> None:
    """Refuse a policy for bad rows that there is not, or that the plan cannot have."""
    if on_error is not None and on_error not in known:
        raise BadCall(
            "this is no policy for rows that are refused",
            where="on_error",
            found=repr(on_error)[:80],
            hint=f"None, which raises the error, or {' or '.join(map(repr, known))}",
        )
    if on_error is not None and plan.mixes_rows:
        raise BadCall(
            "rows of this model depend on each other, so none can be left out",
            where="on_error",
            found=repr(on_error)[:80],
        )


def separated(
    run: Callable[[int, int], T], rows: int, errors: tuple[type[Exception], ...] = ROW_ERRORS
) -> tuple[list[T], dict[int, Any]]:
    """Results of `run` for ranges of rows, and the rows that it refuses, with its errors.

    It halves what is refused. An error that no rows at all have, too, is not one of a row's.
    """
    parts, refused, waiting = [run(0, 0)], {}, [(0, rows)] if rows else []
    while waiting:
        start, end = waiting.pop()
        try:
            parts.append(run(start, end))
        except errors as problem:
            if end - start == 1:
                refused[start] = problem
                continue
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
    return parts, refused


def others(rows: int, refused: Collection[int]) -> list[int]:
    """The rows that are not refused."""
    return [row for row in range(rows) if row not in refused]


def joined(parts: Sequence[Any]) -> Any:
    """The answers of `Plan.run` for parts of some rows as those for all of them."""
    if isinstance(parts[0], Mapping):
        return {name: joined([part[name] for part in parts]) for name in parts[0]}
    if isinstance(parts[0], list):
        return [row for part in parts for row in part]
    dense = [part.toarray() if hasattr(part, "toarray") else part for part in parts]
    return np.concatenate(dense)


def joined_batches(parts: Sequence[Arrow]) -> Arrow:
    """Batches of Arrow with the answers that there are, and the refused rows."""
    some = [part for part in parts if part.num_rows] or parts[:1]
    tables = [library().Table.from_batches([part]) for part in some]
    whole = library().concat_tables(tables, promote_options="permissive").combine_chunks()
    return (whole.to_batches() or some)[0]


def with_nulls(answers: Answers, rows: int, refused: Collection[int]) -> Any:
    """The answers for the other rows, and null for those that are refused."""
    good = others(rows, refused)
    if isinstance(answers, Mapping):
        return {name: with_nulls(value, rows, refused) for name, value in answers.items()}
    if hasattr(answers, "num_columns"):
        places, missing = np.zeros(rows, np.int64), np.ones(rows, bool)
        places[good], missing[good] = np.arange(len(good)), False
        return answers.take(library().array(places, mask=missing))
    made = np.full((rows, *np.shape(answers)[1:2]), None, object)
    for row, value in zip(good, answers, strict=True):
        made[row] = value
    return made


def answered(
    plan: Plan, batch: Arrow, on_error: str | None, start: int = 0, within: str = ""
) -> tuple[Arrow, dict[int, Any]]:
    """The answers for a batch of what the plan reads, and the rows that are refused.

    Rows of errors are counted from `start`, and `within` says in what.
    """

    def run(begin: int, end: int) -> Arrow:
        try:
            return plan.run_arrow(batch.slice(begin, end - begin))
        except InputError as problem:
            raise moved(problem, start + begin, within) from None

    try:
        return run(0, len(batch)), {}
    except ROW_ERRORS:
        if on_error is None or has_texts_for_numbers(plan, batch):
            raise
    parts, refused = separated(run, len(batch))
    made = joined_batches(parts)
    return with_nulls(made, len(batch), refused) if on_error == NULL else made, refused


def has_texts_for_numbers(plan: Plan, data: object) -> bool:
    """True if a column of strings stands where numbers are expected: every row is wrong."""
    schema = getattr(data, "schema", None)
    if schema is not None:
        texts = {field.name for field in schema if "string" in str(field.type)}
    else:
        columns = data.items() if isinstance(data, Mapping) else ()
        texts = {name for name, of in columns if all(isinstance(value, str) for value in of)}
    fields = [each for kind in plan.inputs.values() for each in getattr(kind, "fields", ())]
    return any(
        name in texts and isinstance(kind, Scalar) and kind.dtype != "string"
        for name, kind in fields
    )
