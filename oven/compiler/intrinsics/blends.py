"""Words of emitted code for trees without masks of rows: leaves are chosen from below.

From the deepest node to the root, each node chooses for every row between the leaves that the row
would reach from its two children. That is one comparison of ranks and one blend of two vectors of
leaf numbers for as many rows as a register has bytes, whatever the processor: no bit masks, which
only AVX-512 has registers for. Where a tree has more than 256 leaves, the two bytes of a number are
chosen one by one: see flour.ops.trees.pairs.
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir
from llvmlite.ir import Value

from oven.compiler import machine
from oven.compiler.intrinsics.base import Values
from oven.compiler.intrinsics.builder import FEW_ROWS, ROWS, Builder, on_words, same
from oven.compiler.intrinsics.tiles import test_bytes
from oven.compiler.kinds import BIT, BYTE, SHORT, WORD
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
    made: dict[str, Intrinsic | int] = {"leaves64": on_words(2, _constants)}
    for tests in ("", _KNOWN, _TESTED):
        made[f"split64_{tests}uint8"] = on_words(8, partial(_choose, tests=tests, pairs=False))
    for tests in ("", _KNOWN):
        made[f"split64_{tests}pairs"] = on_words(8, partial(_choose, tests=tests, pairs=True))
    return made


def masks() -> bool:
    """True if comparisons of vectors of bytes end in mask registers here."""
    return machine.has("avx512bw")


def _constants(b: Builder, args: Values) -> None:
    """The vectors of the leaf numbers: where they go, and how many."""
    out, count = args

    def step(k: Value, _: Values) -> Values:
        b.write(b.all(b.trunc(k, BYTE)), b.far(out, k, ROWS))
        return ()

    b.loop(count, (), step)


def _choose(b: Builder, args: Values, *, tests: str, pairs: bool) -> None:
    """The leaves of some trees that each row reaches.

    Arguments: the trees' inner nodes, parents before children, and their number; the ranks of the
    rows (or, where those are known, the bits of the rows that fail each node); the vectors of leaf
    numbers, and room behind them; where the leaves go; for each tree, where the leaf numbers of its
    root are among those vectors, in units of eight bytes; the number of trees and of rows.

    In pairs, each tree has two roots, for the lower and the higher byte, and a node whose failing
    rows are known says where they are in its slot.
    """
    chunk_of = partial(_chunk_of, b, args, tests=tests, pairs=pairs)
    if masks():
        chunk_of(WORD(0), ROWS)
        return
    lanes = machine.vector_bytes()
    width = 2 * lanes

    def some(size: int) -> None:
        if size < width:
            chunk_of(WORD(0), size)
            return

        def chunk(c: Value, _: Values) -> Values:
            chunk_of(b.mul(c, width), width)
            return ()

        b.loop(b.udiv(b.add(args[-1], width - 1), width), (), chunk)

    few = {FEW_ROWS} if tests == _TESTED else set[int]()
    b.for_so_many(args[-1], sorted({*few, lanes, width}), some)


def _chunk_of(
    b: Builder, args: Values, first: Value, lanes: int, *, tests: str, pairs: bool
) -> None:
    """The leaves of so many rows from the first on."""
    nodes, count, given, work, out, roots, trees, _ = args
    kind = ir.VectorType(BYTE, lanes)
    work = b.add(work, first)
    out = b.add(out, b.shl(first, 1) if pairs else first)
    chosen = b.add(work, ROWS * LEAVES)
    last = b.sub(count, 1)

    def step(index: Value, _: Values) -> Values:
        k = b.sub(last, index)
        left, right = (_leaves(b, nodes, k, side, work, kind) for side in (_LEFT, _RIGHT))
        if tests:
            at = b.zext(b.field(nodes, k, _SLOT), WORD) if pairs else k
            each = test_bytes() if tests == _TESTED else 8
            where = b.far(given, at, each)
            made = b.select(_known(b, where, first, lanes, each), right, left)
        else:
            made = _compared(b, nodes, k, b.add(given, first), left, right)
        b.write(made, b.far(chosen, k, ROWS))
        return ()

    def root(number: Value) -> Value:
        return b.read(b.add(work, b.shl(b.item(roots, number, WORD), 3)), kind)

    def tree(t: Value, _: Values) -> Values:
        if pairs:
            both = b.shl(t, 1)
            wide = ir.VectorType(SHORT, lanes)
            low, high = (b.zext(root(each), wide) for each in (both, b.add(both, 1)))
            made, size = b.or_(low, b.shl(high, 8)), 2 * ROWS
        else:
            made, size = root(t), ROWS
        b.write(made, b.far(out, t, size))
        return ()

    rest = b.and_(count, _TURN - 1)

    def turn(index: Value, _: Values) -> Values:
        start = b.far(rest, index, _TURN)
        for number in range(_TURN):
            step(b.add(start, number), ())
        return ()

    b.loop(rest, (), step)
    b.loop(b.udiv(count, _TURN), (), turn)
    b.loop(trees, (), tree)


def _leaves(b: Builder, nodes: Value, k: Value, side: int, work: Value, kind: ir.Type) -> Value:
    """The leaf numbers of a child."""
    place = b.shl(b.zext(b.field(nodes, k, side), WORD), 3)
    return b.read(b.add(work, place), kind)


def _known(b: Builder, where: Value, first: Value, lanes: int, each: int) -> Value:
    """The rows of a chunk that fail a node, from their bits, or bytes where there is room."""
    if lanes <= each:
        kind = ir.VectorType(BYTE, lanes)
        return b.icmp_signed("<", b.read(where, kind), same(kind, 0))
    at = b.add(where, b.lshr(first, 3))
    bits = b.item(at, WORD(0), ir.IntType(lanes), constant=False)
    return b.bitcast(bits, ir.VectorType(BIT, lanes))


def _compared(b: Builder, nodes: Value, k: Value, ranks: Value, left: Value, right: Value) -> Value:
    """The leaf numbers on the side that each row's rank sends it to."""
    kind = left.type
    here = b.read(b.far(ranks, b.zext(b.field(nodes, k, _SLOT), WORD), ROWS), kind)
    if masks():
        limit = b.all(b.field(nodes, k, _RANK, BYTE), kind.count)
        return b.select(b.icmp_unsigned(">", here, limit), right, left)
    # The second byte of the rank is for ranks whose highest bit is flipped: a comparison with a
    # sign, whose second operand is in memory, is a single instruction.
    limit = b.field(b.add(nodes, 1), k, _RANK, BYTE)
    passed = b.icmp_signed(">", b.all(limit, kind.count), here)
    return b.select(passed, left, right)
