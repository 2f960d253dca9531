"""`pretzel predict`: answer the rows of a file, which may be larger than memory."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.cli import common
from runtime.cli.errors import ArgumentError, BadTable, Exit
from runtime.cli.output import Output
from runtime.cli.progress import Progress

if TYPE_CHECKING:
    from flour.core.errors import InputError
    from oven import Plan
    from runtime import Runtime
    from runtime.cli.blocks import Block, Options

DESCRIPTION = """\
Answer every row of a CSV, JSON lines or Parquet file. Rows go through in chunks: neither file is
ever in memory as a whole. Cells are read as the types that the model's inputs have; a mistake is
told with its file, line and column. The answers appear under their name when all are there."""
EXAMPLES = """\
  pretzel predict models/fraud rows.csv --output answers.csv --keep id
  pretzel predict models/fraud rows.parquet --output answers.parquet
  cat rows.jsonl | pretzel predict models/fraud - --format jsonl --outputs label
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common.model(parser)
    parser.add_argument("rows", metavar="ROWS", help="a file of rows; - for standard input")
    parser.add_argument("--output", metavar="FILE", default="-", help="by default standard output")
    common.rows(parser)
    parser.add_argument(
        "--output-format",
        choices=("csv", "tsv", "jsonl", "parquet"),
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
        "--chunk", type=common.positive, default=10_000, help="rows at a time (10000)"
    )
    parser.add_argument("--executors", type=common.positive, help="threads (one for each core)")


def run(options: argparse.Namespace, out: Output) -> int:
    """Answer the rows."""
    from runtime import Runtime
    from runtime.cli import reading, writing
    from runtime.cli.blocks import Options
    from runtime.cli.models import open_model

    how = Options(
        reading.format_of(options.rows, options.format),
        options.chunk,
        options.header,
        options.separator,
        tuple(options.keep),
    )
    form = _output_format(options, how)
    opened = open_model(options.model, trust_pickle=options.trust_pickle)
    total = Path(options.rows).stat().st_size if Path(options.rows).is_file() else 0
    hidden = out.as_json or options.output == "-"
    rows = 0
    with Runtime(executors=options.executors) as runtime:
        runtime.register("model", opened.plan)
        with (
            writing.opened(options.output, form) as writer,
            Progress(opened.model.name, total, hidden=hidden) as progress,
        ):
            for block, columns in _answers(runtime, opened.plan, options, how):
                rows += block.count
                writer.write(columns)
                progress.at(block.done, f"{rows:,} rows")
    if options.output != "-":
        out.result({"rows": rows, "file": options.output}, f"{rows:,} rows in {options.output}")
    return Exit.OK


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


def _answers(
    runtime: Runtime, plan: Plan, options: argparse.Namespace, how: Options
) -> Iterator[tuple[Block, dict[str, Any]]]:
    """Each block of rows, with its answers as columns."""
    from flour.core.errors import InputError
    from runtime.cli import reading

    waiting: deque[Block] = deque()

    def data() -> Iterator[Any]:
        for block in reading.blocks(options.rows, plan.inputs, how):
            waiting.append(block)
            yield block.data

    wanted = options.outputs.split(",") if options.outputs else None
    try:
        for answers in runtime.predict_batch("model", data(), outputs=wanted):
            block = waiting.popleft()
            yield block, {**block.kept, **_columns(answers)}
    except BadTable:  # it has its line already
        raise
    except InputError as problem:
        raise _with_line(problem, plan, waiting) from None


def _with_line(problem: InputError, plan: Plan, waiting: Sequence[Block]) -> InputError:
    """The error with its line in the file, found among the blocks under way."""
    from flour.core.errors import InputError

    for block in waiting:
        try:
            plan.run(block.data)
        except InputError as again:
            return block.located(again)
    # What the runtime refuses, and not the plan, it refuses when it is handed over.
    return waiting[-1].located(problem) if waiting else problem


def _columns(answers: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Answers as columns; those of a record by its name and theirs."""
    columns: dict[str, Any] = {}
    for name, value in answers.items():
        if isinstance(value, dict):
            columns |= _columns(value, f"{before}{name}.")
        else:
            columns[before + name] = value.toarray() if hasattr(value, "toarray") else value
    return columns
