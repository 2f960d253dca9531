"""What a plan from a file may ask of the machine that loads it.

A program written here is as large as its author wants. One from a file is held to these limits, so
that a few bytes that describe something huge cannot make a server run out of memory: far
above what fitted pipelines need, far below what hurts.
"""

from __future__ import annotations

from collections.abc import Iterable

from flour.core.types import Vector
from oven.codegen.ports import Port
from oven.codegen.stages import Stage, Value, row_bytes
from oven.errors import DamagedPlan

MAX_NODES = 1 << 16
"""Of both programs together; a bagging of a hundred pipelines has some thousand."""

MAX_ROW_BYTES = 1 << 27
"""Of one value in one row, where it is dense: 16 million float64."""

MAX_SCRATCH_BYTES = 1 << 30
"""Of the memory in which a thread computes one row (or block) of a stage."""


def check_limits(stages: Iterable[Stage]) -> None:
    """Raise DamagedPlan if running these stages would take absurd amounts of memory."""
    for stage in stages:
        for value in (*stage.inputs, *stage.outputs):
            if isinstance(value.type, Vector) and row_bytes(value.type) > MAX_ROW_BYTES:
                _check_sparse(value, stage, f"{value.type}: {row_bytes(value.type):,} bytes a row")
        scratch = sum(slot.scratch or 0 for slot in stage.slots)
        if scratch > MAX_SCRATCH_BYTES:
            found = f"{scratch:,} bytes of scratch, at most {MAX_SCRATCH_BYTES:,} are allowed"
            raise DamagedPlan("a stage needs too much memory", where=stage.title, found=found)


def _check_sparse(value: Value, stage: Stage, size: str) -> None:
    """Raise DamagedPlan unless the stage has this wide vector without its zeros."""
    assert isinstance(value.type, Vector)
    stored = value.type.sparse and not stage.source and not isinstance(value, Port)
    if not stage.stores(value) and not (stored and stage.nodes[-1].op.takes_sparse):
        found = f"{size}, at most {MAX_ROW_BYTES:,} are allowed"
        raise DamagedPlan("a vector is too wide", where=stage.title, found=found)
