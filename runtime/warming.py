"""Compile ahead of time what plans need, for several processors: packs of machine code.

Each processor gets a process of its own, which aims the compiler at it, loads every plan, and opens
what a runtime opens for them. Code is collected and not run, so it can be for any processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import oven
from flour.core.types import Vector
from oven.compiler import cache, levels, machine, packs
from oven.entry.array_call import open_array_call


class Warmed(NamedTuple):
    """A pack that was written."""

    level: str
    path: Path
    functions: int
    size: int


def warm(plans: Sequence[Path], names: Sequence[str], into: Path) -> list[Warmed]:
    """Write a pack for each level, with all code that the plans need."""
    return [_warm(plans, name, into) for name in names]


def _warm(plans: Sequence[Path], name: str, into: Path) -> Warmed:
    path = into / f"{name}.pack"
    with tempfile.TemporaryDirectory() as empty:
        subprocess.run(  # noqa: S603 (this program, with paths of ours)
            [sys.executable, "-m", "runtime.warming", name, str(path), *map(str, plans)],
            check=True,
            env={**_environment(), "PRETZEL_CACHE": empty},
        )
    level = levels.named(name)
    assert level is not None
    pack = packs.read(path, name, cache.compilers())
    return Warmed(name, path, len(pack), path.stat().st_size)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}


def _main(name: str, path: str, *plans: str) -> None:
    level = levels.named(name)
    assert level is not None, name
    machine.aim(level.cpu, level.listed, level.triple)
    collected = cache.collect(lambda: _open(plans))
    packs.write(Path(path), name, cache.compilers(), collected)


def _open(plans: Sequence[str]) -> None:
    """Let all code be compiled that these plans need, and a runtime that serves them."""
    from runtime.service.runtime import Runtime

    with Runtime(executors=1) as runtime:
        for number, path in enumerate(plans):
            plan = oven.load(path, background=False)
            for made in (plan, *_of_one_output(plan)):
                for each in (made, *_of_other_widths(made)):
                    open_array_call(each.entry(), list, tuple(each.outputs))
                runtime.register(f"plan{number}", made)


def _of_one_output(plan: oven.Plan) -> Iterator[oven.Plan]:
    """The plans of single outputs, which drop-ins for estimators have."""
    names = list(plan.outputs)
    for name in names if len(names) > 1 else ():
        yield oven.bake(plan.flow[name], exact=plan.exact, background=False)


def _of_other_widths(plan: oven.Plan) -> Iterator[oven.Plan]:
    """The plans that answer for float32 where this one was made for float64."""
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
