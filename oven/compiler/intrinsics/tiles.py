"""Words of emitted code for trees whose nodes compare numbers, not ranks: see
flour.ops.trees.tiles.

A tile is 64 rows turned on their side: for each column 64 numbers in a row, so that one node tests
all of them with a few vector registers.
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir
from llvmlite.ir import Value

from oven.compiler import machine
from oven.compiler.intrinsics.base import Values
from oven.compiler.intrinsics.builder import (
    FEW_ROWS,
    FLOATS,
    ROWS,
    Builder,
    on_words,
    same,
    size_of,
)
from oven.compiler.intrinsics.slices import spread
from oven.compiler.kinds import BYTE, INT, WORD
from oven.compiler.lowering import Intrinsic

#: So many rows of so many columns are turned at once.
_SIDE = 8
#: How many numbers of four bytes are ranked in one register.
_WIDE = 16
#: How a tile's numbers are held, for each kind of input, and whether they are narrowed before.
_TILES = (
    *(("float64", "float32", False), ("float32", "float32", False), ("float64", "float64", False)),
    *(("float32", "float64", False), ("float64", "float64", True)),
)


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every word by name."""
    made: dict[str, Intrinsic | int] = {"test_bytes": test_bytes()}
    for given, held, narrow in _TILES:
        turn = partial(_turn, given=FLOATS[given], held=FLOATS[held], narrow=narrow)
        made[f"turn64_{given}_{held}{'_narrowed' * narrow}"] = on_words(7, turn)
    for held, kind in FLOATS.items():
        for suffix, size in (("", 8), ("_bytes", test_bytes())):
            made[f"above64_{held}{suffix}"] = on_words(8, partial(_compare, held=kind, each=size))
    return made | {"rank64_float32": on_words(7, _rank), "seen64": on_words(3, _seen)}


def test_bytes() -> int:
    """The bytes of a node's answers: a bit for each row, or a byte if a register holds all rows."""
    return 8 if machine.has("avx512bw") else machine.vector_bytes()


def _turn(b: Builder, args: Values, *, given: ir.Type, held: ir.Type, narrow: bool) -> None:
    """Turn columns of 64 rows on their side, eight columns at a time.

    Arguments: the address of the first row, the bytes from row to row, how many rows there are
    (behind them the last is read again, or nothing), the width of a row; the first column of each
    eight, and how many eights; where they go. Columns behind a row's end are zero.
    """
    base, stride, there, width, groups, count, out = args
    last, size = b.sub(there, 1), size_of(held)
    # Nobody looks at more.
    octets = b.udiv(b.add(there, _SIDE - 1), _SIDE)

    def rows(octet: Value, _: Values) -> Values:
        first = b.mul(octet, _SIDE)
        numbers = [b.add(first, row) for row in range(_SIDE)]
        known = [b.select(b.icmp_signed("<", each, last), each, last) for each in numbers]
        places = [b.far(base, number, stride) for number in known]
        into = b.far(out, first, size)

        def columns(group: Value, _: Values) -> Values:
            start = b.item(groups, group, WORD)
            read = [_row(b, place, start, width, given) for place in places]
            read = [_as(b, each, held, narrow=narrow) for each in read]
            for column, turned in enumerate(_turned(b, read)):
                number = b.add(b.mul(group, _SIDE), column)
                b.write(turned, b.far(into, number, ROWS * size), size)
            return ()

        b.loop(count, (), columns)
        return ()

    b.loop(octets, (), rows)


def _row(b: Builder, place: Value, start: Value, width: Value, given: ir.Type) -> Value:
    """Eight columns of a row, as far as it has them."""
    inside = b.first(b.sub(width, start), _SIDE)
    return b.read_some(b.far(place, start, size_of(given)), inside, ir.VectorType(given, _SIDE))


def _as(b: Builder, value: Value, held: ir.Type, *, narrow: bool) -> Value:
    """The numbers as a tile holds them."""
    kind, small = (ir.VectorType(each, _SIDE) for each in (held, FLOATS["float32"]))
    if value.type != small and (narrow or kind == small):
        value = b.fptrunc(value, small)
    return value if value.type == kind else b.fpext(value, kind)


def _turned(b: Builder, rows: Values) -> Values:
    """Eight vectors of eight, columns for rows: blocks of four, two and one change places."""
    made, places = list(rows), ir.VectorType(INT, _SIDE)
    for far in (4, 2, 1):
        here = [lane if not lane & far else _SIDE + lane - far for lane in range(_SIDE)]
        there = [lane + far if not lane & far else _SIDE + lane for lane in range(_SIDE)]
        orders = ir.Constant(places, here), ir.Constant(places, there)
        for k in range(_SIDE):
            if not k & far:
                low, high = made[k], made[k + far]
                made[k], made[k + far] = (b.shuffle_vector(low, high, each) for each in orders)
    return made


def _compare(b: Builder, args: Values, *, held: ir.Type, each: int) -> None:
    """A mask of the 64 rows that fail each node: their value is above the node's limit.

    Arguments: the tile; three whole numbers for each of its columns that is looked at (where it is
    in the tile, and where the nodes end that missing values fail and those they pass), the largest
    number that is missing like NaN, and how many columns; the limits of the nodes, where each
    node's answer goes, and where the answers are; the number of rows. Answers are bits; where they
    may be bytes (`each` says how many), those of few rows are, as no mask registers hold them.
    """
    *given, rows = args
    b.for_so_many(rows, (FEW_ROWS, ROWS // 2, ROWS), lambda n: _failing(b, given, held, n, each))


def _failing(b: Builder, given: Values, held: ir.Type, lanes: int, each: int) -> None:
    """The answers of nodes for the first `lanes` rows, in `each` bytes."""
    kind = ir.VectorType(held, lanes)
    tile, slots, zeros, count, limits, places, fails = given

    def column(u: Value, before: Values) -> Values:
        at, (start,) = b.mul(u, 3), before
        where, *ends = (b.item(slots, b.add(at, part), WORD) for part in range(3))
        seen = b.read(b.add(tile, where), kind, size_of(held))
        seen = without(b, seen, b.all(b.item(zeros, u, held), lanes))
        for test, end in zip((b.fcmp_unordered, b.fcmp_ordered), ends, strict=True):
            b.loop(b.sub(end, start), (), partial(node, seen, test, start))
            start = end
        return (start,)

    def node(seen: Value, test: partial[Value], start: Value, k: Value, _: Values) -> Values:
        number = b.add(start, k)
        failed = test(">", seen, b.all(b.item(limits, number, held), lanes))
        place = b.zext(b.item(places, number, INT), WORD)
        if lanes <= each:
            b.write(b.sext(failed, ir.VectorType(BYTE, lanes)), b.far(fails, place, each))
        else:
            failed = b.bitcast(failed, ir.IntType(lanes))
            failed = failed if lanes == ROWS else b.zext(failed, WORD)
            b.put(fails, b.mul(place, each // 8), failed)
        return ()

    b.loop(count, (WORD(0),), column)


def without(b: Builder, seen: Value, zero: Value) -> Value:
    """NaN for what is as near to zero as that."""
    width = 8 * size_of(seen.type.element)
    bits = ir.VectorType(ir.IntType(width), seen.type.count)
    whole = b.and_(b.bitcast(seen, bits), (1 << (width - 1)) - 1)
    near = b.fcmp_ordered("<=", b.bitcast(whole, seen.type), zero)
    return b.select(near, same(seen.type, float("nan")), seen)


def _seen(b: Builder, args: Values) -> None:
    """64 numbers with NaN for those that are missing.

    Arguments: their address, that of the largest number that is missing, where they go.
    """
    given, zero, out = args
    seen = b.read(given, ir.VectorType(FLOATS["float64"], ROWS), 8)
    b.write(without(b, seen, b.all(b.item(zero, WORD(0), FLOATS["float64"]))), out, 8)


def _rank(b: Builder, args: Values) -> None:
    """The number of thresholds each of 64 values exceeds: as rank64, for numbers of four bytes.

    Arguments: the values, the address of the largest number that is missing; the thresholds, 31
    and one that nothing exceeds in two registers, and how many times that; where the ranks go, and
    how many times. A search in registers for each 31, and no load that waits for another.
    """
    *given, rows = args
    b.for_so_many(rows, (FEW_ROWS, ROWS), lambda lanes: _rank_rows(b, given, lanes))


def _rank_rows(b: Builder, args: Values, lanes: int) -> None:
    """The ranks of the first `lanes` rows."""
    values, zero, thresholds, parts, out, times = args
    element = FLOATS["float32"]
    kind, places = ir.VectorType(element, _WIDE), ir.VectorType(INT, _WIDE)
    near = b.all(b.item(zero, WORD(0), element), _WIDE)
    known = [without(b, b.chunk(values, k, kind), near) for k in range(lanes // _WIDE)]

    def step(k: Value, before: Values) -> Values:
        here = b.add(thresholds, b.shl(k, 7))
        pivots = [b.chunk(here, half, kind) for half in (0, 1)]
        pairs = zip(known, before, strict=True)
        return [b.add(place, b.exceeded(pivots, value, places)) for value, place in pairs]

    found = b.loop(parts, [same(places, 0)] * len(known), step)
    spread(b, b.joined(b.without_nan(known, found)), out, times)
