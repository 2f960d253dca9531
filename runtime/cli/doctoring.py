"""`pretzel doctor`: the state of an installation, and what would make it faster."""

from __future__ import annotations

import argparse
import platform
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

from objectstore import system
from objectstore.atomic import unwritable
from oven.explain.installation import compiled, installation
from runtime.cli.errors import Exit
from runtime.cli.output import CommandOutput, table
from scheduler import cores

DESCRIPTION = """\
Examine this installation: interpreter, compiler, processor, machine code, libraries, limits.
`note` marks what works and could be better, `bad` what does not work. The exit code is 1 if
anything is bad. Nothing is changed, except that code which is compiled for the check is cached."""
EXAMPLES = """\
  pretzel doctor
  pretzel doctor --port 8080
  pretzel doctor --json
"""


State = Literal["good", "note", "bad"]


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    state: State
    found: str
    advice: str = ""


Check = Callable[[argparse.Namespace], Iterator[Finding]]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--port", type=int, default=8000, help="the port to serve on (8000)")


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Make all checks."""
    findings = [finding for check in CHECKS for finding in _checked(check, options)]
    rows = [(each.state, each.check, each.found) for each in findings]
    advice = [f"  {each.check}: {each.advice}" for each in findings if each.advice]
    text = table(("state", "check", "found"), rows)
    out.result(
        [each._asdict() for each in findings],
        "\n".join([text, *(advice and ["", "advice:", *advice])]),
    )
    return Exit.REFUSED if any(each.state == "bad" for each in findings) else Exit.OK


def _checked(check: Check, options: argparse.Namespace) -> Iterator[Finding]:
    """The findings of a check; one that fails is a finding itself."""
    try:
        yield from check(options)
    except Exception as problem:  # noqa: BLE001 (a broken installation fails anywhere)
        name = check.__name__.strip("_").replace("_", " ")
        yield Finding(name, "bad", f"{type(problem).__name__}: {problem}".replace("\n", " "))


def _python(_: argparse.Namespace) -> Iterator[Finding]:
    name = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("Python", "good", f"{name}, {platform.system()} {platform.machine()}")
    if installation().entries:
        yield Finding("entries", "good", "machine code reads this interpreter's objects")
    else:
        free = "it has no GIL" if "t" in getattr(sys, "abiflags", "") else "its objects differ"
        yield Finding(
            *("entries", "note", f"not for this interpreter: {free}"),
            "use CPython with a GIL: calls of single rows are several times faster there",
        )


def _processor(_: argparse.Namespace) -> Iterator[Finding]:
    usable, share = cores(), _cpu_share()
    found = f"{installation().processor or platform.machine()}, {usable} cores"
    if share is None or share >= usable:
        yield Finding("processor", "good", found)
    else:
        yield Finding(
            *("processor", "note", f"{found}, of which this container may use {share:g}"),
            f"give the container whole cores, or start at most {max(int(share), 1)} executors",
        )


def _cpu_share() -> float | None:
    """The cores that the control group allows; None if there is no limit."""
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return int(quota) / int(period)
    return None


def _compiler(_: argparse.Namespace) -> Iterator[Finding]:
    import flour
    import oven

    name = installation().compiler
    if not name:
        yield Finding(
            *("compiler", "note", "none: models without code in a pack are interpreted"),
            "interpreting is 10 to 100 times slower: pip install llvmlite",
        )
        return
    before, began = compiled(), time.perf_counter()
    plan = oven.bake(flour.vector("x", 3).add([1.0, 2.0, 3.0]).sum())
    (answer,) = plan.wait().run([[1.0, 1.0, 1.0]]).values()
    way = "compiled" if compiled() > before else "loaded"
    took = f"a plan {way} in {(time.perf_counter() - began) * 1e3:.0f} ms"
    if float(answer[0]) == 9.0:
        yield Finding("compiler", "good", f"{name}, {took}")
    else:
        yield Finding("compiler", "bad", f"{name}, a plan answers wrongly: {answer}")


def _machine_code(_: argparse.Namespace) -> Iterator[Finding]:
    here = installation()
    name = here.processor or "this processor"
    if here.functions:
        yield Finding("packs", "good", f"{here.functions} functions for {name}")
    else:
        yield Finding(
            *("packs", "note", f"no machine code is at hand for {name}: first calls wait for it"),
            "install a wheel with packs, or compile ahead: pretzel warm MODELS --into CODE",
        )
    for each in here.warnings:
        yield Finding("packs", "note", each)


def _cache(_: argparse.Namespace) -> Iterator[Finding]:
    here = installation().cache
    with suppress(OSError):
        here.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if here.doubt:
        found = f"{here.folder} is not used: {here.doubt}"
        yield Finding("code cache", "note", found, "each process compiles what it lacks")
    elif why := unwritable(here.folder):
        found = f"{here.folder} cannot be written: {why}; processes compile what it lacks"
        yield Finding(
            *("code cache", "note", found),
            "set PRETZEL_CACHE to a folder that this user may write to, or compile ahead",
        )
    else:
        found = f"{here.folder}: {here.functions} functions, {here.size / 1e6:.1f} MB"
        yield Finding("code cache", "good", found)


#: A requirement of the distribution: a name, its bounds, and the extra that has it.
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[.*?\])?\s*([^;]*)(?:;.*extra == ['\"]([\w-]+)['\"])?")
_BOUND = re.compile(r"(>=|<)([\w.]+)")
#: Extras that a newcomer may miss.
_GAINS = {"serve": "`pretzel serve`", "sklearn": "`--verify` of scikit-learn's models"}
#: Extras of people who work on the project.
_OURS = {"test", "check", "dev", "docs"}
#: Libraries whose absence costs speed or a choice only; another check tells.
_REPLACEABLE = {"numba", "llvmlite"}


def _libraries(_: argparse.Namespace) -> Iterator[Finding]:
    there, absent = set[str](), dict[str, set[str]]()
    for name, bounds, extra in _requirements():
        try:
            has = version(name)
        except PackageNotFoundError:
            absent.setdefault(extra, set()).add(name)
            continue
        there.add(f"{name} {has}")
        if not _fits(has, bounds):
            state: State = "note" if extra else "bad"
            found = f"{name} {has} is not of a tested version"
            yield Finding("libraries", state, found, f"pip install '{name}{bounds}'")
    yield Finding("libraries", "good", ", ".join(sorted(there)) or "none")
    for extra, names in absent.items():
        found = f"{', '.join(sorted(names))}: not installed"
        if extra in _GAINS:
            advice = f"for {_GAINS[extra]}: pip install 'pretzel-runtime[{extra}]'"
            yield Finding("libraries", "note", found, advice)
        elif not extra and not names <= _REPLACEABLE:
            yield Finding("libraries", "bad", found, "reinstall pretzel-runtime")


def _requirements() -> Iterator[tuple[str, str, str]]:
    """Name, bounds and extra of each requirement of the distribution, without those of tests."""
    with suppress(PackageNotFoundError):  # a checkout that is not installed
        for text in requires("pretzel-runtime") or []:
            match = _REQUIREMENT.match(text)
            if match and match[3] not in _OURS and "python_version" not in text:
                yield match[1], match[2].strip(), match[3] or ""


def _fits(has: str, bounds: str) -> bool:
    """True if a version is within bounds such as `>=1.5,<2`."""
    for relation, limit in _BOUND.findall(bounds):
        order = (_numbers(has) > _numbers(limit)) - (_numbers(has) < _numbers(limit))
        if order < 0 if relation == ">=" else order >= 0:
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])


#: Each connection takes a file, and a server has others.
_FILES = 1024


def _limits(_: argparse.Namespace) -> Iterator[Finding]:
    if limits := system.open_files():
        most, possible = limits
        few = 0 <= most < _FILES
        advice = f"each connection takes one: ulimit -n {possible}" if few else ""
        yield Finding("open files", "note" if few else "good", f"{most:,} at most", advice)
    for found in re.findall(r"MemAvailable:\s+(\d+)", system.told("meminfo")):
        free = int(found) << 10
        yield Finding("memory", "good", f"{free / (1 << 30):.1f} GiB available")
    with tempfile.TemporaryFile() as file:
        file.write(b"x")
    yield Finding("temporary files", "good", tempfile.gettempdir())


def _port(options: argparse.Namespace) -> Iterator[Finding]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", options.port))
        except (OSError, OverflowError) as problem:
            why = getattr(problem, "strerror", None) or str(problem)
            yield Finding("port", "bad", f"{options.port}: {why}", "serve on another one: --port")
        else:
            yield Finding("port", "good", f"{options.port} is free")


CHECKS: tuple[Check, ...] = (
    *(_python, _processor, _compiler, _machine_code, _cache, _libraries, _limits, _port),
)
