"""What emitted code says about trees without masks of rows: leaves are chosen from below.

From the deepest node to the root, each node chooses for every row between the leaves that the row
would reach from its two children. That is one comparison of ranks and one blend of two vectors of
leaf numbers for as many rows as a register has bytes, whatever the processor: no bit masks, which
only AVX-512 has registers for. Where a tree has more than 256 leaves, the two bytes of a number are
chosen one by one: see flour.ops.trees.pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir
from llvmlite.ir import IRBuilder

from oven.compiler import machine
from oven.compiler.intrinsics.base import Values, on_words
from oven.compiler.intrinsics.slices import (
    _BIT,
    _BYTE,
    _SHORT,
    _WORD,
    FEW_ROWS,
    ROWS,
    _all,
    _field,
    _load,
    _loop,
    _pointer,
    _same,
    for_so_many,
)
from oven.compiler.intrinsics.tiles import test_bytes
from oven.compiler.lowering import Intrinsic

#: The fields of a node, of sixteen bits: the slot, the rank (and behind it the rank as compared
#: without mask registers), and where its children's leaf numbers are, in units of eight bytes.
_SLOT, _RANK, _LEFT, _RIGHT = range(4)
#: The leaf numbers chosen at inner nodes stand behind a vector for each number of a leaf.
LEAVES = 256
#: What rows fail is known as bits, or as oven.compiler.intrinsics.tiles has tested it.
_KNOWN, _TESTED = "known_", "tested_"
#: So many nodes are chosen from in one turn of the loop.
_TURN = 2


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every word by name."""
    return {
        **{
            f"split64_{tests}uint8": on_words(8, _choosing(tests, pairs=False))
            for tests in ("", _KNOWN, _TESTED)
        },
        **{
            f"split64_{tests}pairs": on_words(8, _choosing(tests, pairs=True))
            for tests in ("", _KNOWN)
        },
        "leaves64": on_words(2, _constants),
    }


def masks() -> bool:
    """Whether comparisons of vectors of bytes end in mask registers here."""
    return machine.has("avx512bw")


def _constants(builder: IRBuilder, args: Values) -> None:
    """The vectors of the leaf numbers: where they go, and how many."""
    out, count = args

    def step(k: Any, _: Values) -> Values:
        number = _all(builder, builder.trunc(k, _BYTE))
        where = builder.add(out, builder.mul(k, _WORD(ROWS)))
        builder.store(number, _pointer(builder, where, number.type), align=1)
        return ()

    _loop(builder, count, (), step)


def _choosing(tests: str, *, pairs: bool) -> Callable[[Any, Sequence[Any]], None]:
    """The leaves of some trees that each row reaches.

    Arguments: the trees' inner nodes, parents before children, and their number; the ranks of the
    rows (or, where those are known, the bits of the rows that fail each node); the vectors of leaf
    numbers, and room behind them; where the leaves go; for each tree, where the leaf numbers of its
    root are among those vectors, in units of eight bytes; the number of trees and of rows.

    In pairs, each tree has two roots, for the lower and the higher byte, and a node whose failing
    rows are known says where they are in its slot.
    """
    chunk_of = partial(_chunk_of, tests=tests, pairs=pairs)

    def write(builder: IRBuilder, args: Values) -> None:
        rows = args[-1]
        if masks():
            chunk_of(builder, args, _WORD(0), ROWS)
            return
        lanes = machine.vector_bytes()
        width = 2 * lanes

        def some(size: int) -> None:
            if size < width:
                chunk_of(builder, args, _WORD(0), size)
                return
            count = builder.udiv(builder.add(rows, _WORD(width - 1)), _WORD(width))

            def chunk(c: Any, _: Values) -> Values:
                chunk_of(builder, args, builder.mul(c, _WORD(width)), width)
                return ()

            _loop(builder, count, (), chunk)

        few = {FEW_ROWS} if tests == _TESTED else set[int]()
        for_so_many(builder, rows, sorted({*few, lanes, width}), some)

    return write


def _chunk_of(
    builder: IRBuilder, args: Values, first: Any, lanes: int, *, tests: str, pairs: bool
) -> None:
    """The leaves of so many rows from the first on."""
    nodes, count, given, work, out, roots, trees, _ = args
    kind = ir.VectorType(_BYTE, lanes)
    work = builder.add(work, first)
    out = builder.add(out, builder.shl(first, _WORD(1)) if pairs else first)
    chosen = builder.add(work, _WORD(ROWS * LEAVES))
    last = builder.sub(count, _WORD(1))

    def step(index: Any, _: Values) -> Values:
        k = builder.sub(last, index)
        left, right = (_leaves(builder, nodes, k, side, work, kind) for side in (_LEFT, _RIGHT))
        if tests:
            at = builder.zext(_field(builder, nodes, k, _SLOT), _WORD) if pairs else k
            each = test_bytes() if tests == _TESTED else 8
            where = builder.add(given, builder.mul(at, _WORD(each)))
            made = builder.select(_known(builder, where, first, lanes, each), right, left)
        else:
            made = _compared(builder, nodes, k, builder.add(given, first), left, right)
        where = builder.add(chosen, builder.mul(k, _WORD(ROWS)))
        builder.store(made, _pointer(builder, where, kind), align=1)
        return ()

    def root(number: ir.Value) -> ir.Value:
        place = builder.shl(_load(builder, roots, number, _WORD), _WORD(3))
        return builder.load(_pointer(builder, builder.add(work, place), kind), typ=kind, align=1)

    def tree(t: Any, _: Values) -> Values:
        if pairs:
            both = builder.shl(t, _WORD(1))
            wide = ir.VectorType(_SHORT, lanes)
            low, high = (
                builder.zext(root(each), wide) for each in (both, builder.add(both, _WORD(1)))
            )
            made, size = builder.or_(low, builder.shl(high, _same(wide, 8))), 2 * ROWS
        else:
            made, size = root(t), ROWS
        where = builder.add(out, builder.mul(t, _WORD(size)))
        builder.store(made, _pointer(builder, where, made.type), align=1)
        return ()

    rest = builder.and_(count, _WORD(_TURN - 1))

    def turn(index: Any, _: Values) -> Values:
        start = builder.add(rest, builder.mul(index, _WORD(_TURN)))
        for number in range(_TURN):
            step(builder.add(start, _WORD(number)), ())
        return ()

    _loop(builder, rest, (), step)
    _loop(builder, builder.udiv(count, _WORD(_TURN)), (), turn)
    _loop(builder, trees, (), tree)


def _leaves(builder: IRBuilder, nodes: Any, k: Any, side: int, work: Any, kind: Any) -> Any:
    """The leaf numbers of a child."""
    place = builder.shl(builder.zext(_field(builder, nodes, k, side), _WORD), _WORD(3))
    return builder.load(_pointer(builder, builder.add(work, place), kind), typ=kind, align=1)


def _known(builder: IRBuilder, where: Any, first: Any, lanes: int, each: int) -> Any:
    """The rows of a chunk that fail a node, from their bits, or bytes where there is room."""
    if lanes <= each:
        kind = ir.VectorType(_BYTE, lanes)
        found = builder.load(_pointer(builder, where, kind), typ=kind, align=1)
        return builder.icmp_signed("<", found, _same(kind, 0))
    at = builder.add(where, builder.lshr(first, _WORD(3)))
    bits = _load(builder, at, _WORD(0), ir.IntType(lanes), constant=False)
    return builder.bitcast(bits, ir.VectorType(_BIT, lanes))


def _compared(builder: IRBuilder, nodes: Any, k: Any, ranks: Any, left: Any, right: Any) -> Any:
    """The leaf numbers on the side that each row's rank sends it to."""
    kind = left.type
    slot = builder.zext(_field(builder, nodes, k, _SLOT), _WORD)
    where = builder.add(ranks, builder.mul(slot, _WORD(ROWS)))
    here = builder.load(_pointer(builder, where, kind), typ=kind, align=1)
    if masks():
        limit = _all(builder, _field(builder, nodes, k, _RANK, _BYTE), kind.count)
        return builder.select(builder.icmp_unsigned(">", here, limit), right, left)
    # The second byte of the rank is for ranks whose highest bit is flipped: a comparison with a
    # sign, whose second operand is in memory, is a single instruction.
    limit = _field(builder, builder.add(nodes, _WORD(1)), k, _RANK, _BYTE)
    passed = builder.icmp_signed(">", _all(builder, limit, kind.count), here)
    return builder.select(passed, left, right)
