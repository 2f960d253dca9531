"""`pretzel store`: maintain the parameters that processes of a machine share."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.cli.errors import Exit, NotFound
from runtime.cli.output import CommandOutput

if TYPE_CHECKING:
    from objectstore import FileStore

DESCRIPTION = """\
A store is a directory of parameters by content (`pretzel serve --store DIR`). `report` says who
holds what, and how much of it is shared; `gc` frees what no owner holds and no writer has just put;
`fsck` reads and verifies everything, and with --repair moves damaged files away."""
EXAMPLES = """\
  pretzel store report parameters
  pretzel store gc parameters
  pretzel store fsck parameters --repair
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("action", choices=("report", "gc", "fsck"), help="what to do")
    parser.add_argument("folder", metavar="DIR", help="the store's directory")
    parser.add_argument(
        "--repair", action="store_true", help="with fsck: move damaged files to the quarantine"
    )


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Execute the command."""
    from objectstore import FileStore

    if not (Path(options.folder) / "blobs").is_dir():
        raise NotFound(
            "this folder is not a store of parameters",
            where=options.folder,
            hint="a store has the folders blobs/ and owners/; pretzel serve --store makes one",
        )
    with FileStore(options.folder) as store:
        return {"report": _report, "gc": _gc, "fsck": _fsck}[options.action](store, options, out)


def _report(store: FileStore, _options: argparse.Namespace, out: CommandOutput) -> int:
    totals = store.report()
    out.result(asdict(totals), str(totals))
    return Exit.OK


def _gc(store: FileStore, _options: argparse.Namespace, out: CommandOutput) -> int:
    freed = store.gc()
    out.result({"freed_bytes": freed}, f"{freed:,} bytes freed")
    return Exit.OK


def _fsck(store: FileStore, options: argparse.Namespace, out: CommandOutput) -> int:
    result = store.fsck(repair=options.repair)
    out.result(asdict(result), str(result))
    return Exit.OK if result.clean else Exit.REFUSED
