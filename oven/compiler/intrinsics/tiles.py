"""What emitted code says about trees whose nodes compare numbers, not ranks: see
flour.ops.trees.tiles.

A tile is 64 rows turned on their side: for each column 64 numbers in a row, so that one node tests
all of them with a few vector registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from oven.compiler import machine
from oven.compiler.intrinsics.base import Values, on_words
from oven.compiler.intrinsics.slices import (
    _BIT,
    _DOUBLE,
    _FLOATS,
    _INT,
    _WORD,
    FEW_ROWS,
    ROWS,
    _all,
    _chunk,
    _declared,
    _joined,
    _load,
    _loop,
    _pointer,
    _same,
    _spread,
    _store,
    for_so_many,
)
from oven.compiler.lowering import Intrinsic

#: So many rows of so many columns are turned at once.
_SIDE = 8
#: How many numbers of four bytes are ranked in one register.
_WIDE = 16
#: How a tile's numbers are held, for each kind of input, and whether they are narrowed before.
_TILES = (
    ("float64", "float32", False),
    ("float32", "float32", False),
    ("float64", "float64", False),
    ("float32", "float64", False),
    ("float64", "float64", True),
)
_BYTES = {"float32": 4, "float64": 8}


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every word by name."""
    turned: dict[str, Intrinsic | int] = {
        f"turn64_{given}_{held}{'_narrowed' * narrow}": on_words(
            7, _turning(given, held, narrow=narrow)
        )
        for given, held, narrow in _TILES
    }
    compared: dict[str, Intrinsic | int] = {
        f"above64_{held}{suffix}": on_words(8, _comparing(held, as_bytes=bool(suffix)))
        for held in _BYTES
        for suffix in ("", "_bytes")
    }
    compared["test_bytes"] = test_bytes()
    return turned | compared | {"rank64_float32": on_words(7, _rank), "seen64": on_words(3, _seen)}


def test_bytes() -> int:
    """The bytes of a node's answers: a bit for each row, or a byte if a register holds all rows."""
    return 8 if machine.has("avx512bw") else machine.vector_bytes()


def _turning(given: str, held: str, *, narrow: bool) -> Callable[[IRBuilder, Values], None]:
    """Turn columns of 64 rows on their side, eight columns at a time.

    Arguments: the address of the first row, the bytes from row to row, how many rows there are
    (behind them the last is read again, or nothing), the width of a row; the first column of each
    eight, and how many eights; where they go. Columns behind a row's end are zero.
    """

    def write(builder: IRBuilder, args: Values) -> None:
        base, stride, there, width, groups, count, out = args
        last = builder.sub(there, _WORD(1))
        # Nobody looks at more.
        octets = builder.udiv(builder.add(there, _WORD(_SIDE - 1)), _WORD(_SIDE))

        def rows(octet: Value, _: Values) -> Values:
            first = builder.mul(octet, _WORD(_SIDE))
            numbers = [builder.add(first, _WORD(row)) for row in range(_SIDE)]
            known = [
                builder.select(builder.icmp_signed("<", number, last), number, last)
                for number in numbers
            ]
            places = [builder.add(base, builder.mul(number, stride)) for number in known]
            into = builder.add(out, builder.mul(first, _WORD(_BYTES[held])))

            def columns(group: Value, _: Values) -> Values:
                start = _load(builder, groups, group, _WORD)
                read = [_row(builder, place, start, width, given) for place in places]
                read = [_as(builder, each, held, narrow=narrow) for each in read]
                for column, turned in enumerate(_turned(builder, read)):
                    number = builder.add(builder.mul(group, _WORD(_SIDE)), _WORD(column))
                    far = builder.mul(number, _WORD(ROWS * _BYTES[held]))
                    where = _pointer(builder, builder.add(into, far), turned.type)
                    builder.store(turned, where, align=_BYTES[held])
                return ()

            _loop(builder, count, (), columns)
            return ()

        _loop(builder, octets, (), rows)

    return write


def _row(builder: IRBuilder, place: Value, start: Value, width: Value, given: str) -> Value:
    """Eight columns of a row, as far as it has them."""
    kind = ir.VectorType(_FLOATS[given], _SIDE)
    flags = ir.VectorType(_BIT, _SIDE)
    lanes = ir.Constant(ir.VectorType(_WORD, _SIDE), list(range(_SIDE)))
    inside = builder.icmp_signed("<", lanes, _all(builder, builder.sub(width, start), _SIDE))
    far = builder.mul(start, _WORD(_BYTES[given]))
    where = _pointer(builder, builder.add(place, far), kind)
    name = f"llvm.masked.load.v{_SIDE}f{8 * _BYTES[given]}.p0"
    function = _declared(builder, name, [ir.PointerType(), _INT, flags, kind], kind)
    zero = ir.Constant(kind, [0.0] * _SIDE)
    return builder.call(function, [where, _INT(_BYTES[given]), inside, zero])


def _as(builder: IRBuilder, value: Value, held: str, *, narrow: bool) -> Value:
    """The same numbers as a tile holds them."""
    kind, small = (ir.VectorType(_FLOATS[each], _SIDE) for each in (held, "float32"))
    if value.type != small and (narrow or kind == small):
        value = builder.fptrunc(value, small)
    return value if value.type == kind else builder.fpext(value, kind)


def _turned(builder: IRBuilder, rows: Values) -> Values:
    """Eight vectors of eight, columns for rows: blocks of four, two and one change places."""
    made = list(rows)
    for far in (4, 2, 1):
        here = [lane if not lane & far else _SIDE + lane - far for lane in range(_SIDE)]
        there = [lane + far if not lane & far else _SIDE + lane for lane in range(_SIDE)]
        for k in range(_SIDE):
            if not k & far:
                low, high = made[k], made[k + far]
                made[k], made[k + far] = (
                    builder.shuffle_vector(low, high, _order(order)) for order in (here, there)
                )
    return made


def _order(order: Sequence[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_INT, len(order)), list(order))


def _comparing(held: str, *, as_bytes: bool) -> Callable[[IRBuilder, Values], None]:
    """Which of 64 rows fail each node: those whose value is above the node's limit.

    Arguments: the tile; three whole numbers for each of its columns that is looked at (where it is
    in the tile, and where the nodes end that missing values fail and those they pass), the largest
    number that is missing like NaN, and how many columns; the limits of the nodes, where each
    node's answer goes, and where the answers are; the number of rows. Answers are bits; where they
    may be bytes, those of few rows are, as no mask registers hold them: see `test_bytes`.
    """
    size = test_bytes() if as_bytes else 8

    def write(builder: IRBuilder, args: Values) -> None:
        *given, rows = args
        sizes = (FEW_ROWS, ROWS // 2, ROWS)
        for_so_many(builder, rows, sizes, lambda lanes: _failing(builder, given, held, lanes, size))

    return write


def _failing(builder: IRBuilder, given: Values, held: str, lanes: int, each: int) -> None:
    """The same of so many rows; each node's answer has so many bytes."""
    size, kind = _BYTES[held], ir.VectorType(_FLOATS[held], lanes)
    tile, slots, zeros, count, limits, places, fails = given

    def column(u: Value, before: Values) -> Values:
        at = builder.mul(u, _WORD(3))
        where, *ends = (
            _load(builder, slots, builder.add(at, _WORD(part)), _WORD) for part in range(3)
        )
        seen = builder.load(_pointer(builder, builder.add(tile, where), kind), typ=kind, align=size)
        zero = _all(builder, _load(builder, zeros, u, _FLOATS[held]), lanes)
        seen = without(builder, seen, zero)
        (start,) = before
        for test, end in zip((builder.fcmp_unordered, builder.fcmp_ordered), ends, strict=True):

            def node(
                k: Value, _: Values, test: Callable[..., Value] = test, start: Value = start
            ) -> Values:
                number = builder.add(start, k)
                limit = _all(builder, _load(builder, limits, number, _FLOATS[held]), lanes)
                failed = test(">", seen, limit)
                place = builder.zext(_load(builder, places, number, _INT), _WORD)
                if lanes <= each:
                    made = builder.sext(failed, ir.VectorType(ir.IntType(8), lanes))
                    where = builder.add(fails, builder.mul(place, _WORD(each)))
                    builder.store(made, _pointer(builder, where, made.type), align=1)
                    return ()
                failed = builder.bitcast(failed, ir.IntType(lanes))
                failed = failed if lanes == ROWS else builder.zext(failed, _WORD)
                _store(builder, fails, builder.mul(place, _WORD(each // 8)), failed)
                return ()

            _loop(builder, builder.sub(end, start), (), node)
            start = end
        return (start,)

    _loop(builder, count, (_WORD(0),), column)


def without(builder: IRBuilder, seen: Value, zero: Value) -> Value:
    """NaN for what is as near to zero as that."""
    width, count = 32 if seen.type.element == _FLOATS["float32"] else 64, seen.type.count
    bits = ir.VectorType(ir.IntType(width), count)
    whole = builder.and_(builder.bitcast(seen, bits), _same(bits, (1 << (width - 1)) - 1))
    near = builder.fcmp_ordered("<=", builder.bitcast(whole, seen.type), zero)
    missing = ir.Constant(seen.type, [float("nan")] * count)
    return builder.select(near, missing, seen)


def _seen(builder: IRBuilder, args: Values) -> None:
    """64 numbers with NaN for those that are missing.

    Arguments: their address, that of the largest number that is missing, where they go.
    """
    given, zero, out = args
    kind = ir.VectorType(_DOUBLE, ROWS)
    seen = builder.load(_pointer(builder, given, kind), typ=kind, align=8)
    near = _all(builder, _load(builder, zero, _WORD(0), _DOUBLE))
    builder.store(without(builder, seen, near), _pointer(builder, out, kind), align=8)


def _rank(builder: IRBuilder, args: Values) -> None:
    """How many thresholds each of 64 values exceeds: as rank64, for numbers of four bytes.

    Arguments: the values, the address of the largest number that is missing; the thresholds, 31
    and one that nothing exceeds in two registers, and how many times that; where the ranks go, and
    how many times. A search in registers for each 31, and no load that waits for another.
    """
    *given, rows = args
    for_so_many(builder, rows, (FEW_ROWS, ROWS), lambda lanes: _rank_rows(builder, given, lanes))


def _rank_rows(builder: IRBuilder, args: Values, lanes: int) -> None:
    """The same of so many rows."""
    values, zero, thresholds, parts, out, times = args
    element = _FLOATS["float32"]
    kind, places = ir.VectorType(element, _WIDE), ir.VectorType(_INT, _WIDE)
    near = _all(builder, _load(builder, zero, _WORD(0), element), _WIDE)
    known = [
        without(builder, _chunk(builder, values, chunk, kind), near)
        for chunk in range(lanes // _WIDE)
    ]

    def step(k: Value, before: Values) -> Values:
        here = builder.add(thresholds, builder.shl(k, _WORD(7)))
        pivots = [_chunk(builder, here, half, kind) for half in (0, 1)]
        return [
            builder.add(place, _among(builder, pivots, value, places))
            for value, place in zip(known, before, strict=True)
        ]

    found = _loop(builder, parts, [_same(places, 0)] * len(known), step)
    found = [
        builder.select(builder.fcmp_unordered("uno", value, value), _same(places, 0xFFFF), place)
        for value, place in zip(known, found, strict=True)
    ]
    _spread(builder, _joined(builder, found), out, times)


def _among(builder: IRBuilder, pivots: Values, value: Value, places: ir.VectorType) -> Value:
    """How many of the 32 pivots (the last is none) each value exceeds."""
    place = _same(places, 0)
    for half in (16, 8, 4, 2, 1):
        limit = _chosen(builder, pivots, builder.add(place, _same(places, half - 1)))
        above = builder.fcmp_unordered(">", value, limit)
        place = builder.select(above, builder.add(place, _same(places, half)), place)
    return place


def _chosen(builder: IRBuilder, pivots: Values, place: Value) -> Value:
    """The pivots at these places."""
    kind = pivots[0].type
    if machine.has("avx512f"):
        name = "llvm.x86.avx512.vpermi2var.ps.512"
        function = _declared(builder, name, [kind, place.type, kind], kind)
        return builder.call(function, [pivots[0], place, pivots[1]])
    made = ir.Constant(kind, ir.Undefined)
    for lane in range(_WIDE):
        at = builder.extract_element(place, _INT(lane))
        low, high = (builder.extract_element(half, builder.and_(at, _INT(15))) for half in pivots)
        is_low = builder.icmp_signed("<", at, _INT(16))
        made = builder.insert_element(made, builder.select(is_low, low, high), _INT(lane))
    return made
