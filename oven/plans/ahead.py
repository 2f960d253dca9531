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
from functools import partial
from importlib import import_module
from pathlib import Path

from flour.core.code_users import code_users
from flour.core.errors import ParameterError
from flour.core.types import Vector
from oven.compiler import cache, levels, machine, packs, shared_rows
from oven.plans.plan import Plan, bakers
from oven.plans.saved import load

#: Before the number of an error of the system, among the lines of the other process.
_FAILED = b"\0"


def level_names(asked: Iterable[str], where: str) -> list[str]:
    """The levels of these names; `host` is that of this machine."""
    machine.check()
    known = {level.name: level.name for level in levels.LEVELS}
    if here := levels.best(machine.triple(), machine.features()):
        known["host"] = here.name
    found = dict[str, None]()
    for name in asked:
        if name not in known:
            hint = ", ".join(["host", *(level.name for level in levels.LEVELS)])
            what = "there is no such level of processors"
            raise ParameterError(what, where=where, found=name, hint=hint)
        found[known[name]] = None
    return list(found)


def write_pack(
    plans: Sequence[Path], level: str, into: Path, told: Callable[[int], object] = int
) -> packs.Pack:
    """Write a pack with all code that these plans need; `told` how many of them are done."""
    users = ",".join(f"{user.__module__}:{user.__name__}" for user in code_users)
    command = [sys.executable, "-m", "oven.plans.ahead", level, str(into), users, *map(str, plans)]
    with tempfile.TemporaryDirectory() as empty:
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PRETZEL_CACHE": empty, "PYTHONPATH": path}
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
        # Drop-ins for estimators have plans of single outputs.
        names = list(plan.outputs) if len(plan.outputs) > 1 else []
        bake = partial(bakers[-1], exact=plan.exact, background=False)
        alone = [bake(plan.flow[name]) for name in names]
        plans = [each for one in (plan, *alone) for each in _widths(one)]
        for user in users:
            module, _, name = user.partition(":")
            getattr(import_module(module), name)(plans)
        sys.stdout.write(f"{path}\n")  # the process that started this one counts
        sys.stdout.flush()


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
        yield plan.variants.baked(kinds | narrow)


if __name__ == "__main__":
    _main(*sys.argv[1:])
