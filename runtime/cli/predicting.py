"""`pretzel predict`: answer the rows of files, which may be larger than memory."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.cli import common
from runtime.cli.errors import ArgumentError, Exit
from runtime.cli.output import CommandOutput, Rate, TaskProgress

if TYPE_CHECKING:
    from runtime.bulk.journal import Journal
    from runtime.cli.answers import Prediction
    from runtime.cli.blocks import ReadOptions
    from runtime.cli.writing import Write

NULL, SKIP = "null", "skip"

DESCRIPTION = """\
Answer every row of CSV, JSON lines, Parquet or Arrow files, in their order. Rows go through in
chunks, on all cores: neither rows nor answers are ever in memory as a whole, and of Parquet and
Arrow files only the columns that the model reads are read. ROWS may also be a folder, whose files
follow each other by name, or a pattern. The answers appear under their name when all are there. If
the process is killed or fails before, the same command goes on where it was, where rows or answers
are Parquet or Arrow. CSV and JSON lines may be compressed, by names such as rows.csv.gz and
rows.jsonl.zst; what comes from standard input is not."""
EXAMPLES = """\
  pretzel predict models/fraud rows.csv --output answers.csv --keep id
  pretzel predict models/fraud rows.parquet --output answers.parquet
  pretzel predict models/fraud orders/ --format parquet --output answers.parquet
  pretzel predict models/fraud rows.parquet --where "age > 30 and city in ['Oslo']" --keep id
  pretzel predict models/fraud rows.csv.gz --output answers.csv.gz --on-error refused.jsonl
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
        "--on-error",
        metavar="null|skip|FILE",
        help="answer null for rows that are refused, leave them out, or leave them out and write "
        "their numbers and the reasons into a FILE of JSON lines or CSV; by default the first one "
        "ends the command",
    )
    parser.add_argument(
        "--chunk", type=common.positive, help=f"rows at a time ({_TEXT_ROWS}; Arrow: {_ARROW_ROWS})"
    )
    parser.add_argument("--executors", type=common.positive, help="threads (one for each core)")


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Answer the rows."""
    from runtime.bulk.plans import chosen
    from runtime.bulk.refused import check_policy
    from runtime.cli import reading
    from runtime.cli.answers import Prediction
    from runtime.cli.blocks import ARROW, ReadOptions
    from runtime.cli.models import open_asked

    _check_output(options.output)
    _check_refused(options)
    form = reading.format_of(options.rows, options.format)
    rows = options.chunk or (_ARROW_ROWS if form in ARROW else _TEXT_ROWS)
    keep = tuple(options.keep)
    if options.where and form not in ARROW:
        raise ArgumentError("--where is for Parquet and Arrow files", found=form)
    how = ReadOptions(form, rows, options.header, options.separator, keep, options.where)
    answers = _output_format(options, how)
    how = replace(how, tolerant=bool(options.on_error), typed=answers not in {"csv", "tsv"})
    opened = open_asked(options)
    named = None if options.outputs is None else options.outputs.split(",")
    outputs = chosen(opened.plan, named and [each for each in named if each])
    _check_names(options, outputs)
    check_policy(opened.plan, NULL if options.on_error else None)
    task = Prediction(
        *(opened.plan.wait(), options.rows, how, outputs, options.output, answers),
        options.on_error or None,
    )
    hidden = out.as_json or options.output == "-"
    with TaskProgress(opened.model.name, reading.size(task.rows), hidden=hidden) as progress:
        count, refused = _run(task, options.executors, progress)
    _tell(task, out, count, refused)
    return Exit.OK


def _tell(task: Prediction, out: CommandOutput, count: int, refused: int) -> None:
    """The last line: how many rows there were, and how many of them were refused."""
    written = count - refused if task.policy == SKIP else count
    text = f"{written:,} rows in {task.output}"
    about: dict[str, Any] = {"rows": written, "file": task.output}
    if task.on_error:
        where = {NULL: "answered null", SKIP: "left out"}
        told = where.get(task.on_error, f"left out and told in {task.on_error}")
        about["refused"] = refused
        text += f"; {refused:,} of {count:,} rows were refused and {told}"
    if task.output != "-":
        out.result(about, text)
    elif task.on_error:
        out.note(text.partition("; ")[2])


def _check_output(output: str, option: str = "--output") -> None:
    """Refuse a place where no file can be written, before anything is answered."""
    path = Path(output).absolute()
    if output != "-" and (not path.parent.is_dir() or (path.exists() and not path.is_file())):
        raise ArgumentError(
            f"{'the answers' if option == '--output' else 'rows that are refused'} are written"
            " into a file",
            where=f"{option} {output}",
            found="a folder or device of this name"
            if path.exists()
            else f"no folder {path.parent.name!r}",
            hint="without --output they go to standard output"
            if option == "--output"
            else "null and skip need no file",
        )


def _check_refused(options: argparse.Namespace) -> None:
    """Refuse a file for refused rows that cannot be one."""
    from runtime.bulk.files import reads
    from runtime.cli import reading

    if options.on_error in {None, "", NULL, SKIP}:
        return
    _check_output(options.on_error, "--on-error")
    path = Path(options.on_error)
    same = options.output != "-" and path.resolve() == Path(options.output).resolve()
    if same or (options.rows != "-" and reads(options.rows, path)):
        raise ArgumentError(
            f"the rows that are refused would be written into the {'answers' if same else 'rows'}",
            where=f"--on-error {options.on_error}",
            hint="choose another name; null and skip need no file",
        )
    if reading.by_ending(path) not in {"csv", "tsv", "jsonl"}:
        raise ArgumentError(
            "rows that are refused are written as JSON lines or CSV",
            where=f"--on-error {options.on_error}",
            hint="null, skip, or a FILE.jsonl or FILE.csv",
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


def _output_format(options: argparse.Namespace, how: ReadOptions) -> str:
    from runtime.cli import reading

    if options.output_format:
        form = reading.format_of(options.output, str(options.output_format))
    elif options.output == "-":
        form = "csv" if how.form == "parquet" else how.form
    else:
        form = reading.format_of(options.output, None)
    if form == "parquet" and options.output == "-":
        raise ArgumentError(
            "Parquet cannot be written to standard output", hint="--output answers.parquet"
        )
    return form


def _run(task: Prediction, threads: int | None, progress: TaskProgress) -> tuple[int, int]:
    """Write every answer; returns how many rows there are, and how many were refused."""
    from runtime.bulk.files import parts_of
    from runtime.bulk.plans import in_parallel
    from runtime.cli import reading, writing
    from runtime.cli.answers import Answered, answered, noted, record, stamp, with_note

    rate, refused = Rate(), 0
    files = [part.path for part in parts_of(task.rows)] if task.is_resumable else []
    before = [stamp(path) for path in files]
    with ExitStack() as stack:
        journal = stack.enter_context(_journal(task)) if task.output != "-" else None
        kept = journal if task.is_resumable else None
        write = stack.enter_context(writing.opened(task.output, task.form))
        aside = stack.enter_context(_aside(task))
        for columns in journal.batches(task.fits) if journal else ():
            about = noted(columns)
            rate.before += about["rows"]
            refused += len(about["refused"])
            write(columns.replace_schema_metadata(None))
            aside(record(about["refused"]))
        rate.rows = rate.before
        blocks = reading.blocks(task.rows, task.plan.inputs, task.how, rate.before, plain=False)
        count = 1 if task.plan.mixes_rows else threads
        block: Answered
        for block in in_parallel(partial(answered, task), blocks, count):
            wrong = block.told()
            if kept:
                about = {"rows": block.count, "refused": wrong, "policy": task.policy}
                kept.append(with_note(block.columns, about))
            write(block.columns)
            aside(record(wrong))
            refused += len(wrong)
            rate.rows += block.count
            progress.at(block.done, rate.note(progress.share(block.done)))
        _check_unchanged(before, [stamp(path) for path in files])
    return rate.rows, refused


def _check_unchanged(before: Sequence[tuple[Any, ...]], after: Sequence[tuple[Any, ...]]) -> None:
    """Refuse answers of which some may be for what was in a file before, and some for what is."""
    from runtime.errors import UnreadableFile

    for one, other in zip(before, after, strict=True):
        if one != other:
            raise UnreadableFile(
                "this file was changed while its rows were answered",
                where=one[0],
                hint="run the command again, once nobody writes the file",
            )


def _aside(task: Prediction) -> AbstractContextManager[Write]:
    """The function that writes refused rows."""
    from runtime.cli import reading, writing

    if task.on_error in {None, NULL, SKIP}:
        return nullcontext(lambda _: None)
    return writing.opened(task.on_error, reading.format_of(task.on_error, None))


def _journal(task: Prediction) -> Journal:
    """The journal of answers; an empty one keeps other processes from the output."""
    from runtime.bulk.journal import Journal

    path = Path(task.output)
    journal = Journal(path.with_name(f".{path.name}.journal"), task.journal)
    for part in path.parent.glob(f".{escape(path.name)}.*.part"):
        part.unlink()  # that of a process that was killed: the journal is ours
    return journal
