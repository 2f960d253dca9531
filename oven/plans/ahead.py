"""Compile ahead of time what plans need, for one level of processors: a pack of machine code.

Another process does it: see oven.plans.collecting.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from flour.core.code_users import code_users
from flour.core.errors import ParameterError
from oven.compiler import cache, levels, machine, packs

#: Before the number of an error of the system, among the lines of the other process.
FAILED = b"\0"


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
    command = [
        sys.executable,
        "-m",
        "oven.plans.collecting",
        level,
        str(into),
        users,
        *map(str, plans),
    ]
    with tempfile.TemporaryDirectory() as empty:
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PRETZEL_CACHE": empty, "PYTHONPATH": path}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:  # noqa: S603 (this program, with paths of ours)
            assert process.stdout is not None, "it is a pipe"
            for done, line in enumerate(process.stdout, 1):
                if line.startswith(FAILED):
                    number = int(line[len(FAILED) :])
                    raise OSError(number, os.strerror(number), str(into))
                told(done)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
    return packs.read(into, level, cache.compilers())
