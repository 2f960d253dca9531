"""`pretzel feedback`: labels that came late, and how good the answers were."""

from __future__ import annotations

import argparse
from pathlib import Path

from runtime.cli.errors import Exit, NotFound
from runtime.cli.output import CommandOutput

DESCRIPTION = """\
Note labels of answers, and estimate how good all answers were, by version or segment: accuracy,
AUC, losses or errors, with intervals of 95 %.

DIR is a folder of runtime.feedback; it may be in use."""
EXAMPLES = """\
  pretzel feedback answers/fraud-feedback --labels labels.csv
  pretzel feedback answers/fraud-feedback --segment country --segment "age // 10"
  pretzel feedback answers/fraud-feedback --table training.parquet
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the folder of chosen rows")
    labels = "a file of labels to note first, CSV or Parquet: columns id and label"
    parser.add_argument("--labels", metavar="FILE", help=labels)
    segment = "a column, or a bucket of one; may be repeated (@version)"
    parser.add_argument("--segment", metavar="COLUMN", action="append", help=segment)
    table = "write the labelled rows to this file of Parquet, with their weights"
    parser.add_argument("--table", metavar="FILE", help=table)


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Note the labels, and show estimates."""
    from runtime.feedback import FeedbackFolder
    from runtime.watch.arrow_sink import arrow

    if not Path(options.folder).is_dir():
        raise NotFound("there is no such folder", where=options.folder)
    if not any(Path(options.folder).glob("answers-*.parquet")):
        hint = "a folder of [feedback]; a server writes chosen rows each minute"
        raise NotFound("no rows were chosen into this folder yet", where=options.folder, hint=hint)
    folder = FeedbackFolder(options.folder)
    if options.labels:
        out.note(f"noted {folder.labels(options.labels)} labels")
    if options.table:
        arrow().parquet.write_table(folder.table(), options.table)
        out.note(f"wrote {options.table}")
    report = folder.report(options.segment or ("@version",))
    out.result(report.to_dict(), str(report))
    return Exit.OK
