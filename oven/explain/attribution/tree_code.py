"""Exact attribution of trees in native code: by covers, or against rows of a background.

Both go over the steps of a tree (see tree_tables.py) for one row after the other. By covers, all
points of the integral are computed at once, four in a register. Against a background, the steps
below an edge that neither row takes are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache as once

import numpy as np

from oven.compiler import cache, machine
from oven.compiler.words import *
from oven.explain.attribution.tree_tables import LANES, Numbers, PathTables, Places, TreePaths


def attribute_by_covers(tables: int, io: int, n: int, scratch: int) -> int:
    """Add up contributions by covers, all points of the integral at once."""
    levels, numbers, leaves = ldc_int64(tables, 0), ldc_int64(tables, 1), ldc_int64(tables, 2)
    span, targets, trees = ldc_int64(tables, 3), ldc_int64(tables, 4), ldc_int64(tables, 5)
    most, slots, width = ldc_int64(tables, 6), ldc_int64(io, 1), ldc_int64(io, 3)
    known, weight = scratch, scratch + 8 * levels
    below = weight + levels * most
    st_int64(known, 0, 1)
    for tree in range(trees):
        first, last = ldc_int64(tables, 7 + 4 * tree), ldc_int64(tables, 8 + 4 * tree)
        wide = 32 * ldc_int64(tables, 9 + 4 * tree)
        target = ldc_int64(tables, 10 + 4 * tree)
        for at in range(0, wide, 32):
            quad_store(weight + at, 0, quad_all(1.0))
        for row in range(n):
            values = ldc_int64(io, 0) + row * slots
            for output in range(span):
                sums = ldc_int64(io, 2) + row * width + 32 * (target + output)
                for step in range(first, last, 48):
                    depth, what = int64(ldc_int32(step, 0)), int64(ldc_int32(step, 1))
                    table = numbers + 8 * int64(ldc_int32(step, 2))
                    was = ld_int64(known, int64(ldc_int32(step, 3)))
                    down, mine = weight + depth * wide, below + depth * wide
                    into = sums + 32 * targets * int64(ldc_int32(step, 6))
                    if what == 2:
                        case = table + 2 * (was + ld_int64(known, depth)) * wide + wide
                        total = quad(into, 0)
                        for at in range(0, wide, 32):
                            here = quad(mine + at, 0)
                            total = quad_add_product(total, here, quad(case + at, 0))
                            above = mine - wide + at
                            quad_store(above, 0, quad_add(here, quad(above, 0)))
                        quad_store(into, 0, total)
                        continue
                    value = ldc_float64(values, int64(ldc_int32(step, 4)))
                    passed = int64(value <= ldc_float64(step, 4))
                    now = was & (passed ^ int64(ldc_int32(step, 5)))
                    case = table + 2 * (was + now) * wide
                    if what == 0:
                        st_int64(known, depth, now)
                        for at in range(0, wide, 32):
                            here = quad_product(quad(down - wide + at, 0), quad(case + at, 0))
                            quad_store(down + at, 0, here)
                            quad_store(mine + at, 0, quad_all(0.0))
                        continue
                    leaf = ldc_float64(leaves, int64(ldc_int32(step, 7)) * span + output)
                    total = quad(into, 0)
                    for at in range(0, wide, 32):
                        here = quad_product(quad(down - wide + at, 0), quad(case + at, 0))
                        here = quad_product(here, quad_all(leaf))
                        total = quad_add_product(total, here, quad(case + wide + at, 0))
                        above = mine - wide + at
                        quad_store(above, 0, quad_add(here, quad(above, 0)))
                    quad_store(into, 0, total)
    return 0


def pass_up(mine: int, into: int, span: int, taken: int) -> None:
    """Add what a step has gathered to the step above, and to its column if one row is `taken`."""
    for k in range(span):
        gained, lost = ld_float64(mine, 2 * k), ld_float64(mine, 2 * k + 1)
        if taken == 1:
            st_float64(into, k, ld_float64(into, k) + gained)
        if taken == 2:
            st_float64(into, k, ld_float64(into, k) - lost)
        above = mine - 16 * span
        st_float64(above, 2 * k, ld_float64(above, 2 * k) + gained)
        st_float64(above, 2 * k + 1, ld_float64(above, 2 * k + 1) + lost)


def attribute_to_background(tables: int, io: int, n: int, scratch: int) -> int:
    """Add up contributions against each row of a background."""
    levels, shares, leaves = ldc_int64(tables, 0), ldc_int64(tables, 1), ldc_int64(tables, 2)
    span, targets, trees = ldc_int64(tables, 3), ldc_int64(tables, 4), ldc_int64(tables, 5)
    most, slots, width = ldc_int64(tables, 6), ldc_int64(io, 1), ldc_int64(io, 3)
    others, state, alone = ldc_int64(io, 5), scratch, scratch + 8 * levels
    against, gains = alone + 8 * levels, alone + 16 * levels
    st_int64(state, 0, 3)
    st_int64(alone, 0, 0)
    st_int64(against, 0, 0)
    for tree in range(trees):
        first, last = ldc_int64(tables, 7 + 4 * tree), ldc_int64(tables, 8 + 4 * tree)
        target = ldc_int64(tables, 10 + 4 * tree)
        for row in range(n):
            values = ldc_int64(io, 0) + row * slots
            sums = ldc_int64(io, 2) + row * width + 8 * target
            for other in range(others):
                against_values = ldc_int64(io, 4) + other * slots
                step = first
                while step < last:
                    depth, what = int64(ldc_int32(step, 0)), int64(ldc_int32(step, 1))
                    was = ld_int64(state, int64(ldc_int32(step, 3)))
                    mine = gains + 16 * span * depth
                    into = sums + 8 * targets * int64(ldc_int32(step, 6))
                    now = 0
                    if what == 2:
                        now = ld_int64(state, depth)
                    else:
                        slot, limit = int64(ldc_int32(step, 4)), ldc_float64(step, 4)
                        right = int64(ldc_int32(step, 5))
                        own = int64(ldc_float64(values, slot) <= limit) ^ right
                        theirs = int64(ldc_float64(against_values, slot) <= limit) ^ right
                        now = was & (own + 2 * theirs)
                        if now == 0:
                            step += 48 * (ldc_int64(step, 5) + 1)
                            continue
                        st_int64(state, depth, now)
                        new_own = int64(now == 1) & int64(was == 3)
                        new_theirs = int64(now == 2) & int64(was == 3)
                        st_int64(alone, depth, ld_int64(alone, depth - 1) + new_own)
                        st_int64(against, depth, ld_int64(against, depth - 1) + new_theirs)
                        if what == 0:
                            for k in range(2 * span):
                                st_float64(mine, k, 0.0)
                            step += 48
                            continue
                        at = ld_int64(alone, depth) * most + ld_int64(against, depth)
                        values_of = int64(ldc_int32(step, 7)) * span
                        for k in range(span):
                            leaf = ldc_float64(leaves, values_of + k)
                            st_float64(mine, 2 * k, leaf * ldc_float64(shares, 2 * at))
                            st_float64(mine, 2 * k + 1, leaf * ldc_float64(shares, 2 * at + 1))
                    pass_up(mine, into, span, int64(was == 3) * now)
                    step += 48
    return 0


@once
def _native(function: Callable[..., int]) -> Callable[..., int]:
    return machine.STAGE(cache.function_address(function))


def by_covers(paths: TreePaths, columns: int, values: Numbers) -> Numbers:
    """Contributions by row, raw column and output; see TreePaths.values."""
    outputs = len(paths.op.base)
    sums = np.zeros((len(values), columns, outputs, LANES))
    given = (values.ctypes.data, 8 * values.shape[1], sums.ctypes.data, sums[:1].nbytes)
    io = np.array(given, np.int64)
    for tables in paths.tables():
        quads = tables.quads
        scratch = np.empty(tables.levels * (1 + 2 * LANES * quads))
        program = _program(paths, tables, tables.numbers, outputs, 8 * LANES * quads)
        _native(attribute_by_covers)(
            program.ctypes.data, io.ctypes.data, len(values), scratch.ctypes.data
        )
    shares: Numbers = np.add.reduce(sums, axis=3) / (paths.op.divisor or 1)
    return shares


def to_background(paths: TreePaths, columns: int, values: Numbers, others: Numbers) -> Numbers:
    """Contributions of each raw column for each row against the mean of other rows."""
    outputs, span = len(paths.op.base), paths.op.value.shape[1]
    sums = np.zeros((len(values), columns, outputs))
    pointers = (values.ctypes.data, 8 * values.shape[1], sums.ctypes.data, sums[:1].nbytes)
    io = np.array([*pointers, others.ctypes.data, len(others)], np.int64)
    for tables in paths.tables():
        most = int(paths.distinct.max(initial=0)) + 1
        shares = _shares(most)
        scratch = np.empty(tables.levels * (3 + 2 * span))
        program = _program(paths, tables, shares, outputs, most)
        _native(attribute_to_background)(
            program.ctypes.data, io.ctypes.data, len(values), scratch.ctypes.data
        )
    return sums / len(others) / (paths.op.divisor or 1)


def _program(
    paths: TreePaths, tables: PathTables, numbers: Numbers, outputs: int, most: int
) -> Places:
    """The table that native code reads; it is made once for `numbers`."""
    key = id(numbers), most
    known = tables.programs.get(key)
    if known is None:
        leaves = paths.leaves
        head = [tables.levels, numbers.ctypes.data, leaves.ctypes.data, leaves.shape[1], outputs]
        head += [len(tables.trees), most]
        known = np.concatenate([np.array(head, np.int64), tables.trees.reshape(-1)])
        tables.programs[key] = known
    return known


@once
def _shares(most: int) -> Numbers:
    """For each number of columns that only the row, and only the other, takes along a path: the
    weight of the leaf for each of the first, and for each of the second.
    """
    made = np.zeros((most, most, 2))
    for own in range(most):
        for theirs in range(most - own):
            ways = math.factorial(own + theirs)
            if own:
                made[own, theirs, 0] = math.factorial(own - 1) * math.factorial(theirs) / ways
            if theirs:
                made[own, theirs, 1] = math.factorial(own) * math.factorial(theirs - 1) / ways
    return made
