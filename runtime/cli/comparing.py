"""Hold a plan against its original, on the rows of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from flour.core.errors import FlourError, InputError
from oven import Plan
from runtime.cli import reading
from runtime.cli.blocks import Block, ReadOptions
from runtime.cli.errors import CommandError
from runtime.errors import Unfaithful
from runtime.verify import OutputMismatch, compare, tolerance_of, verify_forms

Answers = Callable[[Any], Mapping[str, Any]]
KEPT_ROWS = 100
"""Rows with the original's answers that stay beside a plan, to be checked wherever it is loaded."""


class FileComparison(NamedTuple):
    """The result of a comparison."""

    rows: int
    outputs: tuple[str, ...]
    kept: tuple[str, ...]
    """The first rows with the original's answers, as lines of JSON."""

    def rounded(self, decimals: int) -> FileComparison:
        """This comparison with rounded answers, for a plan that rounds."""
        lines = []
        for line in self.kept:
            told = json.loads(line)
            shown = {name: _rounded(value, decimals) for name, value in told["outputs"].items()}
            lines.append(json.dumps(told | {"outputs": shown}, ensure_ascii=False))
        return self._replace(kept=tuple(lines))


def compare_file(
    plan: Plan,
    answers: Answers,
    path: str,
    options: ReadOptions,
    tolerance: float | None,
    seen: Callable[[int], object] = lambda _: None,
) -> FileComparison:
    """Raise Unfaithful unless the plan answers every row of a file as the original does.

    Without a `tolerance`, it is that of each output's width.
    """
    rows, kept = 0, list[str]()
    outputs: tuple[str, ...] = ()
    for block in reading.blocks(path, plan.inputs, options):
        if not block.count:
            break
        block.data = plan.reader.nulls.of_file(block.data)
        try:
            made = (plan.variants.of(block.data) or plan).wait().run(block.data)
        except InputError as problem:
            raise block.located(problem) from None
        wanted = _of_original(answers, block)
        outputs = tuple(name for name in made if name in wanted)
        for name in outputs:
            near = tolerance_of(made[name], plan) if tolerance is None else tolerance
            bad = compare(name, made[name], _like(wanted[name], made[name]), near)
            if bad is not None:
                raise _unfaithful(block, bad, made[name], wanted[name])
        if not rows:
            verify_forms(plan, block.data, made, tolerance)
        room = KEPT_ROWS - len(kept)
        kept += _lines(block.data, {name: wanted[name] for name in outputs}, min(room, block.count))
        rows += block.count
        seen(block.done)
    if not rows or not outputs:
        raise Unfaithful(
            "no row was compared",
            where=path,
            found=f"{rows} rows; outputs that both have: {', '.join(outputs) or 'none'}",
            hint="give a file whose rows have the columns that the model was trained on",
        )
    return FileComparison(rows, outputs, tuple(kept))


def _of_original(answers: Answers, block: Block) -> Mapping[str, Any]:
    try:
        return answers(block.data)
    except FlourError:
        raise
    except Exception as problem:
        # An attribute that a model has not is missing for all rows.
        lacks = hasattr(getattr(problem, "obj", None), "get_params")
        lacks |= type(problem).__name__ == "NotFittedError"
        raise CommandError(
            "the original model answers no rows in this environment"
            if lacks
            else "the original model refuses these rows",
            where=f"{block.file}:{block.lines[0]} to {block.lines[-1]}",
            found=f"{type(problem).__name__}: {problem}".split("\n", 1)[0][:200],
            hint="verify it with the versions of its libraries that it was trained with"
            if lacks
            else "verify with rows that the original answers",
        ) from problem


def _like(theirs: Any, ours: Any) -> Any:
    """The original's answer in the shape of ours: some libraries return a column as a table."""
    table = theirs if hasattr(theirs, "toarray") else np.asarray(theirs)
    shape = getattr(ours, "shape", None)
    same = isinstance(table, np.ndarray) and shape and table.size == np.prod(shape)
    return table.reshape(shape) if same else table


def _unfaithful(block: Block, bad: OutputMismatch, ours: Any, theirs: Any) -> Unfaithful:
    first = bad.rows[0] if bad.rows else 0
    return Unfaithful(
        "the plan does not answer as the original does",
        where=f"{block.file}:{block.lines[first]}",
        found=f"{bad}; ours {_short(ours[first])}, the original's {_short(theirs[first])}",
        hint="report this bug of the import, and serve the original meanwhile",
    )


def _rounded(value: object, decimals: int) -> Any:
    """Numbers with so many decimals, also in lists; what is no float as it is."""
    if isinstance(value, list):
        return [_rounded(each, decimals) for each in value]
    return float(np.round(value, decimals)) if isinstance(value, float) else value


def _short(value: object) -> str:
    return str(value).replace("\n", " ")[:80]


def _lines(data: object, answers: Mapping[str, Any], count: int) -> Iterator[str]:
    """Rows with their answers as lines of `verify.jsonl`."""
    for index in range(count):
        row = _row(data, index)
        expected = {name: _row(values, index) for name, values in answers.items()}
        yield json.dumps({"input": row, "outputs": expected}, ensure_ascii=False)


def _row(data: Any, index: int) -> Any:
    if isinstance(data, Mapping):
        return {name: _row(column, index) for name, column in data.items()}
    value = data.toarray()[index] if hasattr(data, "toarray") else data[index]
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return plain.as_py() if hasattr(plain, "as_py") else plain
