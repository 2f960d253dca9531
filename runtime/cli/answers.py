"""The answers for a block of rows of a file, with the rows that are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from flour.core.errors import FlourError, InputError
from flour.data.arrow_reader import Arrow, library
from oven import Plan
from oven.plans.arrow import answers_batch
from runtime.bulk import refused as rows
from runtime.bulk.files import NO_TYPES, is_stream, parts_of
from runtime.bulk.plans import no_rows, select
from runtime.cli.blocks import Block, ReadOptions
from runtime.cli.errors import BadTable
from runtime.cli.output import concealed
from runtime.cli.writing import Columns

_NOTE = b"pretzel"


class Prediction(NamedTuple):
    """A prediction of files, as its command asked for it."""

    plan: Plan
    rows: str
    how: ReadOptions
    outputs: tuple[str, ...]
    output: str
    form: str
    on_error: str | None = None

    @property
    def policy(self) -> str | None:
        """The output for rows that are refused."""
        return self.on_error if self.on_error in {None, rows.NULL} else rows.SKIP

    @property
    def by_batches(self) -> bool:
        """True if answers are Arrow's batches, which a journal can keep."""
        return self.how.is_arrow or self.form in {"parquet", "arrow"}

    @property
    def is_resumable(self) -> bool:
        """True if another run can go on where this one was."""
        return self.by_batches and not is_stream(self.rows)

    @property
    def journal(self) -> dict[str, Any]:
        """Facts that make two tasks the same."""
        from runtime.cli.program import release

        if not self.is_resumable:
            return {"process": os.getpid()}
        files = []
        for part in parts_of(self.rows):
            about = part.path.stat()
            # Another file may have its size and time, but was not written at the same time.
            files.append([*stamp(part.path), about.st_ino, about.st_ctime_ns])
        return {
            "plan": self.plan.digest,
            "release": release(),
            "rows": [self.rows, files],
            "how": repr(replace(self.how, tolerant=False)),
            "answers": [self.form, *self.outputs],
        }

    def fits(self, batch: Arrow) -> bool:
        """Return whether a batch of an earlier run is what this task would answer."""
        about = noted(batch)
        return not about["refused"] or about["policy"] == self.policy


def stamp(path: Path) -> tuple[str, int, int]:
    """Facts about a file that change when it is written."""
    about = path.stat()
    return str(path), about.st_size, about.st_mtime_ns


@dataclass(slots=True)
class Answered:
    """The answers for a block as the writer takes them."""

    columns: Any
    count: int
    """The rows of the block, those that are refused included."""
    done: int
    refused: list[tuple[str, int, FlourError]]
    """The file, the line and the error of each row that is refused."""

    def told(self) -> list[dict[str, Any]]:
        """The text about refused rows: it has no values if some columns are private."""
        return [_told(*each) for each in self.refused]


_FIELDS = ("file", "row", "reason", "where", "found", "hint")


def _told(file: str, line: int, problem: FlourError) -> dict[str, Any]:
    concealed(problem)
    parts = file, line, problem.what, problem.where, problem.found, problem.hint
    return dict(zip(_FIELDS, parts, strict=True))


def record(told: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows that are refused as columns of the file that tells them."""
    return {name: [each[name] for each in told] for name in _FIELDS}


def with_note(batch: Arrow, about: Mapping[str, Any]) -> Arrow:
    """A batch of answers for the journal: the rows that it stands for, and those refused."""
    return batch.replace_schema_metadata({_NOTE: json.dumps(about)})


def noted(batch: Arrow) -> dict[str, Any]:
    """The journal's metadata of a batch."""
    about: dict[str, Any] = json.loads((batch.schema.metadata or {})[_NOTE])
    return about


def answered(task: Prediction, block: Block) -> Answered:
    """The answers for a block; the first row that is refused is an error if there is no policy."""
    read = block.count - len(block.refused)

    def run(start: int, end: int) -> Any:
        if task.how.is_arrow:
            made = task.plan.run_arrow(block.data.slice(start, end - start))
            return select(made, task.plan, task.outputs)
        data = _part(block.data, start, end) if end > start else no_rows(task.plan.inputs)
        made = task.plan.run(task.plan.reader.nulls.of_file(data))
        return {name: made[name] for name in task.outputs}

    wrong, join = dict(block.refused), rows.joined_batches if task.how.is_arrow else rows.joined
    try:
        made = run(0, read)
    except BadTable:  # it has its line already
        raise
    except rows.ROW_ERRORS as problem:
        if task.policy is None or rows.has_texts_for_numbers(task.plan, block.data):
            raise _with_hint(block.located(problem)) from None
        parts, refused = rows.separated(run, read)
        made = join(parts)
        wrong |= {block.place(at): block.located(each, at) for at, each in refused.items()}
    told = [(block.file, int(block.lines[row]), wrong[row]) for row in sorted(wrong)]
    columns = _columns(task, block, made, wrong)
    return Answered(columns, block.count, block.done, told)


def _with_hint(problem: FlourError) -> FlourError:
    problem.hint = problem.hint or "--on-error skip answers the other rows"
    return problem


def _part(data: Columns, start: int, end: int) -> Any:
    if isinstance(data, dict):
        return {name: _part(values, start, end) for name, values in data.items()}
    return data[start:end]


def _columns(task: Prediction, block: Block, made: Columns, wrong: Mapping[int, Any]) -> Any:
    """The kept columns and the answers, with null or without the rows that are refused."""
    kept = block.kept
    if task.by_batches and isinstance(made, dict):
        made = answers_batch(made, task.plan.outputs)
    if wrong and task.policy == rows.NULL:
        made = rows.with_nulls(made, block.count, wrong)
    elif wrong:
        good = rows.others(block.count, wrong)
        kept = {name: _taken(values, good) for name, values in kept.items()}
    return _batch(block, kept, made) if task.by_batches else {**kept, **dict(_flat(made))}


def _taken(values: Columns, places: Sequence[int]) -> Any:
    return values.take(places) if hasattr(values, "take") else [values[at] for at in places]


def _batch(block: Block, kept: Mapping[str, Any], made: Arrow) -> Any:
    """The answers and the kept columns as one record batch."""
    pa = library()
    try:
        arrays = {name: pa.array(each, block.kinds.get(name)) for name, each in kept.items()}
    except pa.ArrowException as problem:
        said = str(problem)[:120]
        problem = InputError("a column to keep has no one type", found=said, hint=NO_TYPES)
        raise block.located(problem) from None
    columns = {**arrays, **dict(zip(made.schema.names, made.columns, strict=True))}
    return pa.record_batch(list(columns.values()), names=list(columns))


def _flat(answers: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Answers as columns; those of a record by its name and theirs."""
    for name, value in answers.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value.toarray() if hasattr(value, "toarray") else value
