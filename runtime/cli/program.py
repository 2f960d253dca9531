"""One run of `pretzel`: arguments, the command, and exit codes for its errors."""

from __future__ import annotations

import argparse
import errno
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple, NoReturn, Protocol

from objectstore import Explained
from runtime.cli.errors import ArgumentError, CommandError, Exit, NotFound, NotInstalled
from runtime.cli.output import CommandOutput, concealed, concealing


class Command(NamedTuple):
    """A command, and its module."""

    name: str
    module: str
    summary: str


#: In the order in which a new user needs them.
COMMANDS = (
    Command("import", "importing", "turn a trained model into a plan, and verify it"),
    Command("train", "training", "train candidates side by side, and serve the best"),
    Command("ls", "listing", "what a folder of models has"),
    Command("inspect", "inspecting", "what a model takes, answers and holds"),
    Command("explain", "explaining", "a model at any step on its way to machine code"),
    Command("verify", "verifying", "hold a model against rows, or against its original"),
    Command("export", "exporting", "a model as C, a shared library or a WebAssembly module"),
    Command("serve", "serving", "serve a folder of models over HTTP"),
    Command("predict", "predicting", "answer the rows of a file"),
    Command("stream", "streaming", "answer messages of Redis, Kafka or files as they arrive"),
    Command("warm", "warming", "compile ahead of time what a folder of models needs"),
    Command("bench", "benching", "run the project's benchmarks"),
    Command("store", "storing", "look after a store of parameters: report, gc, fsck"),
    Command("cluster", "cluster", "serve a folder of models from several machines, on Ray"),
    Command("parity", "parity", "whether lost answers can be reconstructed, and a model for it"),
    Command("why", "answering", "where a kept answer comes from, and compute it again"),
    Command("feedback", "feedback", "labels of answers, and how good the answers were"),
    Command("dashboard", "dashboards", "a board for Grafana and alert rules for Prometheus"),
    Command("doctor", "doctoring", "examine this installation, and how to make it faster"),
    Command("completion", "completing", "completion for bash, zsh or fish"),
)

#: The extra that installs a library.
EXTRAS = {
    **dict.fromkeys(("sklearn", "joblib", "scipy"), "sklearn"),
    **dict.fromkeys(("onnx", "onnxruntime", "skl2onnx"), "onnx"),
    **dict.fromkeys(("httptools", "uvloop", "msgspec"), "serve"),
    "pyarrow": "arrow",
    "ray": "cluster",
    **dict.fromkeys(("hiredis", "confluent_kafka"), "streams"),
}

EPILOG = """\
examples:
  pretzel import model.joblib --trust-pickle --verify rows.csv --into models
  pretzel import booster.ubj --into models --name fraud
  pretzel serve models
  pretzel predict models/fraud rows.csv --output answers.csv

`pretzel COMMAND --help` has more of them. Exit codes: 0 well; 1 refused, for a reason that is
told; 2 wrong arguments; 3 answers differ from the original's; 4 a library is not installed;
5 a file cannot be read or written; 130 interrupted.
"""


class CommandModule(Protocol):
    """The interface of a command's module."""

    DESCRIPTION: str
    EXAMPLES: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, options: argparse.Namespace, out: CommandOutput) -> int:
        """Execute the command; returns the exit code."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Only bugs of ours raise."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        needed = {each for each in given if not each.startswith("-")}
        options = build(needed, verbose="--verbose" in given).parse_args(given)
    except SystemExit as end:  # argparse has printed the reason
        return int(end.code or 0)
    out = CommandOutput(as_json=bool(getattr(options, "json", False)))
    try:
        return guarded(options, out)
    except BrokenPipeError:
        return _reader_gone()


def guarded(options: argparse.Namespace, out: CommandOutput) -> int:
    """Run a command whose errors become exit codes."""
    concealing.set(None)
    try:
        return int(load(options.command).run(options, out))
    except KeyboardInterrupt:
        out.note("interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        raise
    except Explained as problem:
        concealed(problem)
        out.problem(problem)
        return code_of(problem)
    except ModuleNotFoundError as problem:
        out.problem(missing(problem))
        return Exit.NOT_INSTALLED
    except OSError as problem:
        out.problem(_of_system(problem, options))
        return Exit.FILES
    except Exception as problem:
        if not isinstance(found := concealed(problem), Explained):
            raise
        out.problem(found)
        return Exit.REFUSED


def code_of(problem: Explained) -> Exit:
    """The exit code for an error."""
    from runtime.errors import Unfaithful
    from runtime.repository.errors import NoFolder

    match problem:
        case Unfaithful():
            return Exit.UNFAITHFUL
        case ArgumentError():
            return Exit.USAGE
        case NotInstalled():
            return Exit.NOT_INSTALLED
        case NotFound() | NoFolder():
            return Exit.FILES
    return Exit.REFUSED


def missing(problem: ModuleNotFoundError) -> NotInstalled:
    """An error about a library that is not installed."""
    name = (problem.name or "").split(".")[0]
    extra = EXTRAS.get(name)
    return NotInstalled(
        f"this needs {name or 'a library'}, which is not installed",
        hint=f"pip install 'pretzel-runtime[{extra}]'" if extra else f"pip install {name}",
    )


def _of_system(problem: OSError, options: argparse.Namespace) -> CommandError:
    place, hint = problem.filename, None
    if problem.errno == errno.ENOSPC:  # libraries do not say where
        hint = "make room, and give the command again"
        place = place or getattr(options, "output", None) or getattr(options, "into", None)
    return CommandError(
        os.strerror(errno.ENOSPC) if hint else problem.strerror or str(problem) or repr(problem),
        where=os.fsdecode(place) if isinstance(place, str | bytes) else None,
        hint=hint,
    )


def _reader_gone() -> int:
    """The reader of our output has closed it: write nothing more, also at the interpreter's end."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, sys.stdout.fileno())
    os.close(quiet)
    return Exit.PIPE_CLOSED


# --- arguments -----------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """A parser that says how a value that begins with a minus is given."""

    def error(self, message: str) -> NoReturn:
        option = message.partition("argument ")[2].partition(":")[0].rpartition("/")[2]
        hint = f"; a value that begins with a minus follows an equals sign: {option}=-1"
        super().error(message + hint * message.endswith("expected one argument"))


def load(name: str) -> CommandModule:
    """The module of a command."""
    found = next(command for command in COMMANDS if command.name == name)
    module: CommandModule = import_module(f"runtime.cli.{found.module}")
    return module


def build(needed: set[str], *, verbose: bool = False) -> argparse.ArgumentParser:
    """The parser, with the arguments of the needed commands."""
    parser = _Parser(
        "pretzel",
        description="Serve trained pipelines as native code.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"pretzel {release()}{_surroundings() if verbose else ''}",
        help="show the version and exit; with --verbose, versions of what it stands on, too",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        if command.name not in needed:
            commands.add_parser(command.name, help=command.summary)
            continue
        module = load(command.name)
        inner = commands.add_parser(
            command.name,
            help=command.summary,
            description=module.DESCRIPTION,
            epilog="examples:\n" + module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.arguments(inner)
        _common(inner)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    inner = parser._subparsers  # noqa: SLF001 (there is no public way to ask)
    if inner is None:
        parser.add_argument("--json", action="store_true", help="results and errors as JSON")


def _surroundings() -> str:
    from oven.explain.installation import installation

    libraries = [f"Python {platform.python_version()}"]
    for name in ("numpy", "llvmlite", "numba"):
        with suppress(PackageNotFoundError):
            libraries.append(f"{name} {version(name)}")
    here = f"{platform.system()} {platform.machine()}, {installation().processor}"
    return f" ({', '.join(libraries)}; {here})"


def release() -> str:
    """The version of the distribution; "unknown" where it is not installed."""
    try:
        return version("pretzel-runtime")
    except PackageNotFoundError:
        return "unknown"
