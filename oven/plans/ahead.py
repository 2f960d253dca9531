"""Compile ahead of time what plans need, for one level of processors: a pack of machine code.

Another process does it, which aims the compiler at the processor, loads every plan and opens what
their users open. Code is collected and not run, so it can be for any processor.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

from flour.core.errors import ParameterError
from flour.core.types import Vector
from oven.compiler import cache, levels, machine, packs, shared_rows
from oven.plans.plan import Plan, bakers, code_users
from oven.plans.saved import load

#: Before the number of an error of the system, among the lines of the other process.
_FAILED = b"\0"


def level_names(asked: Iterable[str], where: str) -> list[str]:
    """The levels of these names; `host` is that of this machine."""
    machine.check()
    return list(dict.fromkeys(_level_name(name, where) for name in asked))


def _level_name(name: str, where: str) -> str:
    host = name == "host"
    level = levels.best(machine.triple(), machine.features()) if host else levels.named(name)
    if level is None:
        known = ", ".join(each.name for each in levels.LEVELS)
        raise ParameterError(
            "there is no such level of processors", where=where, found=name, hint=f"host, {known}"
        )
    return level.name


def write_pack(
    plans: Sequence[Path], level: str, into: Path, told: Callable[[int], object] = int
) -> packs.Pack:
    """Write a pack with all code that these plans need; `told` how many of them are done."""
    users = ",".join(f"{user.__module__}:{user.__name__}" for user in code_users)
    command = [sys.executable, "-m", "oven.plans.ahead", level, str(into), users, *map(str, plans)]
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "PRETZEL_CACHE": empty, "PYTHONPATH": _path()}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:  # noqa: S603 (this program, with paths of ours)
            assert process.stdout is not None, "it is a pipe"
            for done, line in enumerate(process.stdout, 1):
                if line.startswith(_FAILED):
                    number = int(line[len(_FAILED) :])
                    raise OSError(number, os.strerror(number), str(into))
                told(done)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
    return packs.read(into, level, cache.compilers())


def _path() -> str:
    return os.pathsep.join(part for part in sys.path if part)


# --- in the other process ------------------------------------------------------------------------


def _main(name: str, into: str, users: str, *paths: str) -> None:
    level = levels.named(name)
    assert level is not None, name
    machine.aim(level.cpu, level.listed, level.triple)
    collected = cache.collect(lambda: _open(paths, users.split(",") if users else ()))
    try:
        packs.write(Path(into), name, cache.compilers(), collected)
    except OSError as problem:
        sys.stdout.buffer.write(_FAILED + str(problem.errno or errno.EIO).encode() + b"\n")


def _open(paths: Sequence[str], users: Sequence[str]) -> None:
    """Let all code be compiled that these plans need, and those who declared that they use them."""
    for name in shared_rows.SOURCES:
        shared_rows.address(name)
    for path in paths:
        plan = load(path, background=False)
        plans = [each for one in (plan, *_of_one_output(plan)) for each in _widths(one)]
        for user in users:
            module, _, name = user.partition(":")
            getattr(import_module(module), name)(plans)
        sys.stdout.write(f"{path}\n")  # the process that started this one counts
        sys.stdout.flush()


def _of_one_output(plan: Plan) -> Iterator[Plan]:
    """The plans of single outputs, which drop-ins for estimators have."""
    names = list(plan.outputs)
    for name in names if len(names) > 1 else ():
        yield bakers[-1](plan.flow[name], exact=plan.exact, background=False)


def _widths(plan: Plan) -> Iterator[Plan]:
    """The plan, and the one that answers for float32 where it was made for float64."""
    yield plan
    kinds = plan.inputs
    narrow = {
        name: Vector(kind.width, "float32")
        for name, kind in kinds.items()
        if isinstance(kind, Vector) and kind.dtype == "float64" and not kind.sparse
    }
    if narrow:
        yield plan.variant(kinds | narrow)


if __name__ == "__main__":
    _main(*sys.argv[1:])
