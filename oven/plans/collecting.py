"""The process of `oven.plans.ahead`: it collects the code that plans need, for a pack.

It aims the compiler at the processor, loads every plan and opens what their users open. Code is
collected and not run, so it can be for any processor.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from flour.core.types import Vector
from oven.compiler import cache, levels, machine, packs, shared_rows
from oven.plans.ahead import FAILED
from oven.plans.plan import Plan, bakers
from oven.plans.saved import load


def _main(name: str, into: str, users: str, *paths: str) -> None:
    level = levels.named(name)
    assert level is not None, name
    machine.aim(level.cpu, level.listed, level.triple)
    collected = cache.collect(lambda: _open(paths, users.split(",") if users else ()))
    try:
        packs.write(Path(into), name, cache.compilers(), collected)
    except OSError as problem:
        sys.stdout.buffer.write(FAILED + str(problem.errno or errno.EIO).encode() + b"\n")


def _open(paths: Sequence[str], users: Sequence[str]) -> None:
    """Let all code be compiled that these plans need, and those who declared that they use them."""
    for name in shared_rows.FUNCTIONS:
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
