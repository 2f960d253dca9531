"""`pretzel dashboard`: a board for Grafana and alert rules for Prometheus, as files."""

from __future__ import annotations

import argparse
from pathlib import Path

from runtime.cli.errors import Exit
from runtime.cli.output import CommandOutput

DESCRIPTION = """\
Writes pretzel.json, a board to be imported into Grafana, and pretzel-alerts.yml, rules for the
`rule_files` of Prometheus, over the metrics that servers have at /metrics."""
EXAMPLES = """\
  pretzel dashboard --into monitoring
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--into", metavar="DIR", type=Path, default=Path(), help="where they are written (here)"
    )


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Write the files."""
    from runtime.http.watch.dashboard import alert_rules, dashboard

    folder: Path = options.into
    folder.mkdir(parents=True, exist_ok=True)
    files = {"pretzel.json": dashboard() + "\n", "pretzel-alerts.yml": alert_rules()}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    written = [str(folder / name) for name in files]
    out.result({"files": written}, "wrote " + " and ".join(written))
    return Exit.OK
