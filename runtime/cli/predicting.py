"""`pretzel predict`: answer the rows of files, which may be larger than memory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime.cli import common
from runtime.cli.errors import ArgumentError, Exit
from runtime.cli.output import Output
from runtime.cli.progress import Progress, Rate

if TYPE_CHECKING:
    from oven import Plan
    from runtime.bulk.journal import Journal
    from runtime.cli.blocks import Block, Options

DESCRIPTION = """\
Answer every row of CSV, JSON lines, Parquet or Arrow files, in their order. Rows go through in
chunks, on all cores: neither rows nor answers are ever in memory as a whole, and of Parquet and
Arrow files only the columns that the model reads are read. ROWS may also be a folder, whose files
follow each other by name, or a pattern. The answers appear under their name when all are there. If
the process is killed before, the same command goes on where it was, where rows or answers are
Parquet or Arrow."""
EXAMPLES = """\
  pretzel predict models/fraud rows.csv --output answers.csv --keep id
  pretzel predict models/fraud rows.parquet --output answers.parquet
  pretzel predict models/fraud orders/ --format parquet --output answers.parquet
  pretzel predict models/fraud rows.parquet --where "age > 30 and city in ['Oslo']" --keep id
  cat rows.jsonl | pretzel predict models/fraud - --format jsonl --outputs label
  produce | pretzel predict models/fraud - --format arrow | consume
"""
#: Rows of a chunk: of text, and of Arrow's batches.
_TEXT_ROWS, _ARROW_ROWS = 10_000, 1 << 14


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common.model(parser)
    parser.add_argument(
        "rows", metavar="ROWS", help="a file, folder or pattern; - for standard input"
    )
    parser.add_argument("--output", metavar="FILE", default="-", help="by default standard output")
    common.rows(parser)
    parser.add_argument(
        "--output-format",
        choices=("csv", "tsv", "jsonl", "parquet", "arrow"),
        help="of the answers; by default that of the file's ending, or of the rows",
    )
    parser.add_argument("--outputs", metavar="A,B", help="only these outputs of the model")
    parser.add_argument(
        "--keep",
        metavar="COLUMN",
        action="append",
        default=[],
        help="copy this column to the answers",
    )
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        help="only these rows of Parquet and Arrow files, as in: age > 30 and city == 'Oslo'",
    )
    parser.add_argument(
        "--chunk", type=common.positive, help=f"rows at a time ({_TEXT_ROWS}; Arrow: {_ARROW_ROWS})"
    )
    parser.add_argument("--executors", type=common.positive, help="threads (one for each core)")


class Task(NamedTuple):
    """What is to be done."""

    plan: Plan
    rows: str
    how: Options
    outputs: tuple[str, ...]
    output: str
    form: str

    @property
    def by_batches(self) -> bool:
        """Whether answers are Arrow's batches, which a journal can keep."""
        return self.how.is_arrow or self.form in {"parquet", "arrow"}

    @property
    def is_resumable(self) -> bool:
        """Whether another run can go on where this one was."""
        from runtime.bulk.files import is_stream

        return self.by_batches and not is_stream(self.rows)

    @property
    def journal(self) -> dict[str, Any]:
        """What makes two tasks the same."""
        from runtime.bulk.files import parts_of

        if not self.is_resumable:
            return {"process": os.getpid()}
        stats = [part.path.stat() for part in parts_of(self.rows)]
        return {
            "plan": self.plan.digest,
            "rows": [self.rows, [(each.st_size, each.st_mtime_ns) for each in stats]],
            "how": repr(self.how),
            "answers": [self.form, *self.outputs],
        }


def run(options: argparse.Namespace, out: Output) -> int:
    """Answer the rows."""
    from runtime.bulk.plans import chosen
    from runtime.cli import reading
    from runtime.cli.blocks import ARROW, Options
    from runtime.cli.models import open_model

    _check_output(options.output)
    form = reading.format_of(options.rows, options.format)
    rows = options.chunk or (_ARROW_ROWS if form in ARROW else _TEXT_ROWS)
    keep = tuple(options.keep)
    if options.where and form not in ARROW:
        raise ArgumentError("--where is for Parquet and Arrow files", found=form)
    how = Options(form, rows, options.header, options.separator, keep, options.where)
    answers = _output_format(options, how)
    opened = open_model(options.model, trust_pickle=options.trust_pickle)
    outputs = chosen(opened.plan, options.outputs.split(",") if options.outputs else None)
    _check_names(options, outputs)
    task = Task(opened.plan.wait(), options.rows, how, outputs, options.output, answers)
    hidden = out.as_json or options.output == "-"
    with Progress(opened.model.name, reading.size(task.rows), hidden=hidden) as progress:
        count = _run(task, options.executors, progress)
    if options.output != "-":
        out.result({"rows": count, "file": options.output}, f"{count:,} rows in {options.output}")
    return Exit.OK


def _check_output(output: str) -> None:
    """Refuse a place where no file can be written, before anything is answered."""
    path = Path(output).absolute()
    if output != "-" and (not path.parent.is_dir() or (path.exists() and not path.is_file())):
        raise ArgumentError(
            "the answers are written into a file",
            where=f"--output {output}",
            found="a folder or device of this name"
            if path.exists()
            else f"no folder {path.parent.name!r}",
            hint="without --output they go to standard output",
        )


def _check_names(options: argparse.Namespace, outputs: Sequence[str]) -> None:
    """Refuse an output that would replace what is read, and two columns of one name."""
    from runtime.bulk.files import reads
    from runtime.bulk.plans import check_kept

    if "-" not in {options.output, options.rows} and reads(options.rows, Path(options.output)):
        same = Path(options.output).resolve() == Path(options.rows).resolve()
        raise ArgumentError(
            f"the answers would {'replace' if same else 'be read as'} the rows",
            where=f"--output {options.output}",
            found=f"rows from {options.rows}",
            hint="choose another name" if same else "choose an output outside of this folder",
        )
    check_kept(options.keep, outputs)


def _output_format(options: argparse.Namespace, how: Options) -> str:
    from runtime.cli import reading

    if options.output_format:
        form = str(options.output_format)
    elif options.output == "-":
        form = "csv" if how.form == "parquet" else how.form
    else:
        form = reading.format_of(options.output, None)
    if form == "parquet" and options.output == "-":
        raise ArgumentError(
            "Parquet cannot be written to standard output", hint="--output answers.parquet"
        )
    return form


def _run(task: Task, threads: int | None, progress: Progress) -> int:
    """Write every answer; returns how many rows there are."""
    from runtime.bulk.plans import in_parallel
    from runtime.cli import reading, writing

    rate = Rate()
    with ExitStack() as stack:
        journal = stack.enter_context(_journal(task)) if task.output != "-" else None
        kept = journal if task.is_resumable else None
        writer = stack.enter_context(writing.opened(task.output, task.form))
        for columns in journal.batches() if journal else ():
            rate.before += len(columns)
            writer.write(columns)
        rate.rows = rate.before
        blocks = reading.blocks(task.rows, task.plan.inputs, task.how, rate.before, plain=False)
        answer = _answer_of(task)
        for block, columns in in_parallel(answer, blocks, 1 if task.plan.mixes_rows else threads):
            if kept:
                kept.append(columns)
            writer.write(columns)
            rate.rows += block.count
            progress.at(block.done, rate.note(progress.share(block.done)))
    return rate.rows


def _journal(task: Task) -> Journal:
    """What is kept of answers; without any, it keeps other processes from the output."""
    from runtime.bulk.journal import Journal

    path = Path(task.output)
    journal = Journal(path.with_name(f".{path.name}.journal"), task.journal)
    for part in path.parent.glob(f".{escape(path.name)}.*.part"):
        part.unlink()  # that of a process that was killed: the journal is ours
    return journal


def _answer_of(task: Task) -> Callable[[Block], tuple[Block, Any]]:
    """A function from a block of rows to its answers, as the writer takes them."""
    from flour.core.errors import InputError
    from runtime.cli.errors import BadTable

    columns = _columns if not task.by_batches else _batch

    def answer(block: Block) -> tuple[Block, Any]:
        try:
            return block, columns(task, block)
        except BadTable:  # it has its line already
            raise
        except InputError as problem:
            raise block.located(problem) from None

    return answer


def _batch(task: Task, block: Block) -> Any:
    """The answers and the kept columns as one record batch."""
    from flour.core.errors import InputError
    from flour.data.arrow_reader import library
    from oven.plans.arrow import answers_batch
    from runtime.bulk.files import NO_TYPES
    from runtime.bulk.plans import select

    if task.how.is_arrow:
        made = task.plan.run_arrow(block.data)
    else:
        made = answers_batch(_answered(task.plan, block), task.plan.outputs)
    made = select(made, task.plan, task.outputs)
    pa = library()
    try:
        kept = {name: pa.array(values) for name, values in block.kept.items()}
    except pa.ArrowException as problem:
        said = str(problem)[:120]
        raise InputError("a column to keep has no one type", found=said, hint=NO_TYPES) from None
    columns = {**kept, **dict(zip(made.schema.names, made.columns, strict=True))}
    return pa.record_batch(list(columns.values()), names=list(columns))


def _answered(plan: Plan, block: Block) -> dict[str, Any]:
    return plan.run(plan.reader.nulls.of_file(block.data))


def _columns(task: Task, block: Block) -> dict[str, Any]:
    answers = _answered(task.plan, block)
    return {**block.kept, **dict(_flat({name: answers[name] for name in task.outputs}))}


def _flat(answers: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """Answers as columns; those of a record by its name and theirs."""
    for name, value in answers.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value.toarray() if hasattr(value, "toarray") else value
