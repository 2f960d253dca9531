"""Words of emitted code for trees scored 64 rows at a time: see flour.ops.trees.slices.

A set of rows is the bits of one number, so a test of all of them is one comparison of a vector of
ranks, and following it to the children is two operations on whole numbers. Written as the
compiler's intermediate language: vectors of 64 have no counterpart in Python's text.
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir
from llvmlite.ir import Value

from oven.compiler import machine
from oven.compiler.intrinsics import builder
from oven.compiler.intrinsics.base import Values
from oven.compiler.intrinsics.builder import FEW_ROWS, FLOATS, ROWS, WHOLE, Builder, on_words, same
from oven.compiler.kinds import BIT, BYTE, FLOAT64, INT, INT64, NOTHING, SHORT, UINT32, UINT64, WORD
from oven.compiler.lowering import Intrinsic

_RANKS = ir.VectorType(BYTE, ROWS)
#: Ranks of one byte are below this; 255 is NaN's.
_MOST_RANKS = 254
#: The four fields of a node.
_SLOT, _RANK, _ROWS, _PASSED = range(4)
#: How many numbers a gather takes.
_GATHERED = 8
#: Sixteen thresholds can be read from so many in front of their power of two on; some lie behind.
_LAST = 14
_EIGHT, _PLACES = ir.VectorType(FLOATS["float64"], _GATHERED), ir.VectorType(WORD, _GATHERED)


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every word by name."""
    made: dict[str, Intrinsic | int] = {
        "rank64": on_words(6, _rank),
        "fails64": on_words(4, _fail),
        "member64": builder.typed((INT64, UINT64), UINT64, _member64),
        "bytes64": builder.typed((UINT64, INT64), NOTHING, _bytes64),
        "rank_alone": builder.typed((FLOAT64, INT64, INT64), INT64, _rank_alone),
    }
    for index, kind in WHOLE.items():
        name = "masks" if index == "uint8" else index
        made[f"split64_{name}"] = on_words(5, partial(_split, index=kind, tested=False))
        made[f"split64_known_{name}"] = on_words(5, partial(_split, index=kind, tested=True))
        for value, held in FLOATS.items():
            made[f"add64_{index}_{value}"] = on_words(5, partial(_add, index=kind, value=held))
            made[f"fold64_{index}_{value}"] = on_words(6, partial(_fold, index=kind, value=held))
    for whole in (UINT32, UINT64):
        kinds = (INT64, INT64, INT64, whole)
        made[f"leaf{whole.bits}"] = builder.typed(kinds, INT64, partial(_leaf, width=whole.bits))
    # Numbers, not functions: what depends on them is left out before it costs anything.
    known = {"permutes128": "avx512vbmi", "bit_masks": "avx512bw"}
    numbers = {name: int(machine.has(feature)) for name, feature in known.items()}
    return made | numbers | {"wide_registers": int(machine.vector_bytes() >= ROWS // 2)}


def _fail(b: Builder, args: Values) -> None:
    """For each of the nodes, which rows fail its test, at the node's place.

    Arguments: the nodes and their number, the ranks of the rows, where the answers go. A node has
    sixteen bits for the slot it looks at, for its rank, and for its place.
    """
    nodes, count, ranks, fails = args

    def step(k: Value, _: Values) -> Values:
        place = b.zext(b.field(nodes, k, _ROWS), WORD)
        b.put(fails, place, b.bitcast(_failed(b, ranks, nodes, k), WORD))
        return ()

    b.loop(count, (), step)


def _split(b: Builder, args: Values, *, index: ir.IntType, tested: bool) -> None:
    """Send rows down one tree, and write which leaf each of them reaches.

    Arguments: the tree's inner nodes, in the order of their depth, and their number; the ranks of
    the rows (or, where those are known, which rows fail each node); room for the rows at each node;
    where the numbers of the leaves go. The k-th node leaves its rows at 2k + 1 and 2k + 2. A node
    has sixteen bits for the slot it looks at, for its rank, for where its rows are, and for how
    many leaves are on its left, which those that fail leave behind.
    """
    nodes, count, given, masks, out = args
    b.put(masks, WORD(0), WORD(-1))

    def step(k: Value, before: Values) -> Values:
        place = b.field(nodes, k, _ROWS)
        here = b.item(masks, b.zext(place, WORD), WORD, constant=False)
        here = b.bitcast(here, ir.VectorType(BIT, ROWS))
        if tested:
            failed = b.bitcast(b.item(given, k, WORD, constant=False), here.type)
        else:
            failed = _failed(b, given, nodes, k)
        right = b.and_(here, failed)
        left = b.xor(here, right)
        place = b.shl(k, 1)
        b.put(masks, b.add(place, 1), b.bitcast(left, WORD))
        b.put(masks, b.add(place, 2), b.bitcast(right, WORD))
        passed = b.field(nodes, k, _PASSED, index)
        return (b.select(right, b.add(before[0], b.all(passed)), before[0]),)

    (number,) = b.loop(count, (same(ir.VectorType(index, ROWS), 0),), step)
    b.write(number, out)


def _failed(b: Builder, ranks: Value, nodes: Value, k: Value) -> Value:
    """The rows whose rank is above the node's."""
    slot = b.zext(b.field(nodes, k, _SLOT), WORD)
    here = b.read(b.far(ranks, slot, ROWS), _RANKS)
    if machine.has("avx512bw"):
        limit = b.field(nodes, k, _RANK, BYTE)
        return b.icmp_unsigned(">", here, b.all(limit))
    limit = b.field(b.add(nodes, 1), k, _RANK, BYTE)
    return b.icmp_signed("<=", b.all(limit), here)


def _rank(b: Builder, args: Values) -> None:
    """The number of thresholds each of 64 values exceeds, in ranks of one byte.

    Arguments: the values; the thresholds, ascending, padded to one fewer than a power of two with
    what nothing exceeds; which power (at least four); where the ranks go, and how many times.

    In front of the thresholds stand sixteen pivots: every power's sixteenth of them, which two
    registers hold. Eight searches side by side, none with a branch. The n-th ranks count the
    thresholds behind the first 254 n, up to 254. NaN has rank 255, and beside each 64 ranks stand
    the same with 0 for NaN.
    """
    *given, rows = args
    b.for_so_many(rows, (FEW_ROWS, ROWS), lambda lanes: _rank_rows(b, given, lanes))


def _rank_rows(b: Builder, args: Values, lanes: int) -> None:
    """The ranks of the first `lanes` rows."""
    values, thresholds, power, out, times = args
    known = [b.chunk(values, chunk, _EIGHT) for chunk in range(lanes // _GATHERED)]
    pivots = [b.chunk(b.sub(thresholds, 128), k, _EIGHT) for k in (0, 1)]
    rest = b.sub(power, 4)
    far = b.all(rest, _GATHERED)
    start = [b.shl(b.exceeded(pivots, value, _PLACES), far) for value in known]

    def step(k: Value, before: Values) -> Values:
        half = b.shl(WORD(1), b.sub(b.sub(rest, 1), k))
        far, last = b.all(half, _GATHERED), b.sub(half, 1)
        base = b.add(thresholds, b.shl(last, 3))
        found = []
        for value, place in zip(known, before, strict=True):
            above = b.fcmp_unordered(">", value, b.gather(base, place, FLOATS["float64"]))
            found.append(b.select(above, b.add(place, far), place))
        return found

    found = b.without_nan(known, b.loop(rest, start, step))
    spread(b, b.joined(found), out, times)


def spread(b: Builder, found: Value, out: Value, times: Value) -> None:
    """Ranks of two bytes (the last is NaN's) as so many of one."""
    kind = ir.VectorType(BYTE, found.type.count)

    def step(k: Value, _: Values) -> Values:
        base = b.all(b.trunc(b.mul(k, _MOST_RANKS), SHORT), kind.count)
        above = b.icmp_unsigned(">", found, base)
        over = b.select(above, b.sub(found, base), same(found.type, 0))
        least = b.icmp_unsigned("<", over, same(found.type, _MOST_RANKS))
        missing = b.icmp_unsigned("==", found, same(found.type, 0xFFFF))
        ranks = b.trunc(b.select(least, over, same(found.type, _MOST_RANKS)), kind)
        where = b.far(out, k, 2 * ROWS)
        for nan in (255, 0):
            b.write(_signed(b, b.select(missing, same(kind, nan), ranks)), where)
            where = b.add(where, ROWS)
        return ()

    b.loop(times, (), step)


def _signed(b: Builder, ranks: Value) -> Value:
    """Ranks as comparisons with a sign order them, where no others are of one instruction."""
    return ranks if machine.has("avx512bw") else b.xor(ranks, 128)


def _add(b: Builder, args: Values, *, index: ir.IntType, value: ir.Type) -> None:
    """Add the value of its leaf to each row's sum.

    Arguments: the numbers of the leaves, where the value of the first leaf is, how many values
    there are from leaf to leaf, the sums.
    """
    leaves, values, stride, sums, _ = args
    size = builder.size_of(value)
    count = _GATHERED * 8 // size
    far = b.all(b.trunc(stride, INT), count)
    for chunk in range(ROWS // count):
        number = b.chunk(leaves, chunk, ir.VectorType(index, count))
        place = b.mul(b.zext(number, ir.VectorType(INT, count)), far)
        held, where = b.gather(values, place, value), b.add(sums, chunk * 64)
        b.write(b.fadd(b.read(where, held.type, size), held), where, size)


def _fold(b: Builder, args: Values, *, index: ir.IntType, value: ir.Type) -> None:
    """Add the values of their leaves in some trees to each row's sum, tree after tree.

    Arguments: the numbers of the leaves, 64 for each tree, and the number of trees; where each
    tree's leaves start among the values; the values, the sums, the number of rows.
    """
    leaves, trees, starts, values, sums, rows = args
    size = builder.size_of(value)
    count = _GATHERED * 8 // size
    numbers, narrow = ir.VectorType(value, count), ir.VectorType(index, count)

    def half(c: Value, _: Values) -> Values:
        first = b.mul(c, ROWS // 2)
        mine = b.far(sums, first, size)
        base = b.far(leaves, first, index.width // 8)

        def tree(t: Value, before: Values) -> Values:
            here = b.far(base, t, ROWS * index.width // 8)
            where, after = b.far(values, b.item(starts, t, WORD), size), []
            for k, total in enumerate(before):
                place = b.zext(b.chunk(here, k, narrow), ir.VectorType(INT, count))
                after.append(b.fadd(total, b.gather(where, place, value)))
            return after

        start = [b.chunk(mine, k, numbers) for k in range(ROWS // 2 // count)]
        for k, total in enumerate(b.loop(trees, start, tree)):
            b.write(total, b.add(mine, k * 64), size)
        return ()

    b.loop(b.udiv(b.add(rows, ROWS // 2 - 1), ROWS // 2), (), half)


def _member64(b: Builder, args: Values) -> Value:
    """A mask of the 64 codes (bytes below 64, at an address) that are among the members."""
    codes, members = args
    found, flags = b.read(codes, _RANKS), ir.VectorType(BIT, ROWS)
    if machine.has("avx512bitalg"):
        wide = b.bitcast(b.all(members, ROWS // 8), _RANKS)
        made = b.intrinsic("llvm.x86.avx512.vpshufbitqmb.512", [wide, found], flags)
        return b.bitcast(made, WORD)
    # What stands behind the rows that there are may be any number.
    found = b.and_(found, 63)
    if machine.has("ssse3"):
        return _member_of_bytes(b, members, found)
    places = b.zext(found, ir.VectorType(WORD, ROWS))
    return b.bitcast(b.trunc(b.lshr(b.all(members), places), flags), WORD)


def _member_of_bytes(b: Builder, members: Value, codes: Value) -> Value:
    """As _member64, by two look-ups: the byte that a code's bit is in, and the bit in its byte."""
    count = 32 if machine.has("avx2") else 16
    kind, word = ir.VectorType(BYTE, count), ir.VectorType(WORD, count // 8)
    name = f"llvm.x86.{'avx2.pshuf.b' if count == 32 else 'ssse3.pshuf.b.128'}"
    table = b.bitcast(b.all(members, word.count), kind)
    bits = ir.Constant(kind, [1 << k % 8 for k in range(count)])
    made = WORD(0)
    for first in range(0, ROWS, count):
        code = b.picked(codes, builder.in_order(count, first))
        byte = b.intrinsic(name, [table, b.lshr(code, 3)], kind)
        bit = b.intrinsic(name, [bits, b.and_(code, 7)], kind)
        found = b.icmp_unsigned("!=", b.and_(byte, bit), same(kind, 0))
        some = b.zext(b.bitcast(found, ir.IntType(count)), WORD)
        made = b.or_(made, b.shl(some, first))
    return made


def _bytes64(b: Builder, args: Values) -> None:
    """A byte for each of 64 rows, at an address: 1 for those that are among the bits."""
    bits = b.bitcast(args[0], ir.VectorType(BIT, ROWS))
    b.write(_signed(b, b.zext(bits, _RANKS)), args[1])


# --- one row -------------------------------------------------------------------------------------


def _rank_alone(b: Builder, args: Values) -> Value:
    """The number of thresholds, as in rank64, one value exceeds; any number for NaN.

    It is compared with all pivots, then with all thresholds up to the next pivot: no branch to
    predict, and nothing that waits for more than one comparison.
    """
    value, thresholds, power = args

    def exceeded(address: Value) -> Value:
        limits = b.chunk(address, 0, ir.VectorType(FLOATS["float64"], 16))
        bits = b.bitcast(b.fcmp_ordered(">", many, limits), SHORT)
        return b.zext(b.ctpop(b.zext(bits, INT)), WORD)

    def step(k: Value, before: Values) -> Values:
        return (b.add(before[0], exceeded(b.add(second, b.shl(k, 7)))),)

    many, rest = b.all(value, 16), b.sub(power, 4)
    place = b.shl(exceeded(b.sub(thresholds, 128)), rest)
    # All in front of the last pivot are exceeded, so some of them may be compared once more.
    last = b.sub(b.shl(WORD(1), power), _LAST)
    place = b.select(b.icmp_signed("<", place, last), place, last)
    start = b.add(thresholds, b.shl(place, 3))
    second = b.add(start, 128)
    more = b.lshr(b.sub(b.shl(WORD(1), rest), 1), 4)
    return b.loop(more, (b.add(place, exceeded(start)),), step)[0]


def _leaf(b: Builder, args: Values, *, width: int) -> Value:
    """The leaf at which one row leaves a tree of so many nodes.

    Arguments: the slots of the nodes, and behind them their ranks; for each node the leaves that
    are possible if it fails; the ranks of the row; which nodes fail besides.
    """
    nodes, masks, ranks, more = args
    whole, given = ir.IntType(width), ir.VectorType(BYTE, width)
    known, limits = (b.chunk(nodes, k, given) for k in (0, 1))
    if machine.has("avx512vbmi"):  # never called elsewhere: see permutes128
        order = ir.Constant(ir.VectorType(INT, ROWS), [k % width for k in range(ROWS)])
        wide = b.picked(known, order)
        low, high = (b.chunk(ranks, k, _RANKS) for k in (0, 1))
        found = b.intrinsic("llvm.x86.avx512.vpermi2var.qi.512", [low, wide, high], _RANKS)
        known = b.picked(found, builder.in_order(width))
    failed = b.or_(b.bitcast(b.icmp_unsigned(">", known, limits), whole), more)
    flags = b.bitcast(failed, ir.VectorType(BIT, width))
    count = 512 // width
    possible = ir.VectorType(whole, count)
    left = every = same(possible, -1)
    for k in range(width // count):
        mine = b.picked(flags, builder.in_order(count, k * count))
        left = b.and_(left, b.select(mine, b.chunk(masks, k, possible), every))
    found = b.intrinsic(f"llvm.vector.reduce.and.v{count}i{width}", [left], whole)
    leaf = b.cttz(found, BIT(1))
    return b.zext(leaf, WORD) if width < 64 else leaf
