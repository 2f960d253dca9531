"""`pretzel bench`: the project's benchmarks, which a checkout has and the wheel does not."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec

from runtime.cli.errors import Exit, NotInstalled
from runtime.cli.output import CommandOutput

DESCRIPTION = """\
Run the project's benchmarks (`python -m bench`) and write their report. They are part of a checkout
and not of the installed package."""
EXAMPLES = """\
  pretzel bench quick
  pretzel bench -- --help
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="ARGUMENT",
        default=["quick"],
        help="arguments for bench (quick)",
    )


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Hand over to the benchmarks, in a process of their own."""
    if find_spec("bench") is None or find_spec("bench.__main__") is None:
        raise NotInstalled(
            "the benchmarks are not installed",
            found="no package 'bench', which the wheel leaves out",
            hint="run this from a checkout of the project, whose scripts/setup installs everything",
        )
    command = [sys.executable, "-m", "bench", *options.arguments]
    done = subprocess.run(command, check=False)  # noqa: S603 (our own module)
    if done.returncode:
        out.note(f"the benchmarks ended with code {done.returncode}")
        return Exit.REFUSED
    return Exit.OK
