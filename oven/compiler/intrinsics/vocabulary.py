"""The names emitted code may use, of all modules of this folder."""

from __future__ import annotations

from functools import cache

from oven.compiler.intrinsics import (
    blends,
    chunks,
    memory,
    narrow,
    numbers,
    slices,
    sums,
    tiles,
    trees,
    vectors,
)
from oven.compiler.lowering import Intrinsic


@cache
def vocabulary() -> dict[str, Intrinsic | int]:
    """The names emitted code may use."""
    made: dict[str, Intrinsic | int] = {}
    for module in (numbers, memory, vectors, trees, slices, tiles, sums, chunks, blends, narrow):
        made |= module.intrinsics()
    return made
