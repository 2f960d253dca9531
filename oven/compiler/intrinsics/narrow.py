"""Ranks and sums of trees on processors without AVX-512: registers of 16 or 32 bytes, slow gathers.

What AVX-512 does by permutes and gathers is done here by comparing with all pivots, and by scalar
loads of eight rows side by side. Only as many rows are looked at as there are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llvmlite import ir
from llvmlite.ir import Value

from oven.compiler import machine
from oven.compiler.intrinsics.base import Values
from oven.compiler.intrinsics.builder import (
    FEW_ROWS,
    FLOATS,
    ROWS,
    WHOLE,
    Builder,
    on_words,
    same,
    size_of,
)
from oven.compiler.intrinsics.slices import spread
from oven.compiler.intrinsics.tiles import without
from oven.compiler.kinds import INT, SHORT, WORD
from oven.compiler.lowering import Intrinsic

#: From values to their ranks.
_Ranked = Callable[[Values], Values]
#: Rows whose values are compared with the pivots at once, and those that are searched on at once.
_PIVOTED, _SEARCHED = 16, 8
#: The number of pivots in front of a column's thresholds.
_PIVOTS, _LEVELS = 15, 4
#: Thresholds of four bytes stand in parts of 31 and one that nothing exceeds.
_PART_BYTES = 128
#: Few rows are compared with all thresholds of eight bytes if these are fewer than this power of 2.
_FEW_POWER = 5


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every word by name; none where AVX-512 does it otherwise."""
    if machine.has("avx512bw"):
        return {}
    made: dict[str, Intrinsic | int] = {}
    for index, kind in WHOLE.items():
        for value, held in FLOATS.items():
            made[f"add64_{index}_{value}"] = on_words(5, partial(_add, index=kind, value=held))
            made[f"fold64_{index}_{value}"] = on_words(6, partial(_fold, index=kind, value=held))
    return made | {"rank64": on_words(6, _rank), "rank64_float32": on_words(7, _rank_small)}


def _rank(b: Builder, args: Values) -> None:
    """The number of thresholds each value exceeds: as rank64 of oven.compiler.intrinsics.slices.

    The pivots leave less than a sixteenth of the thresholds, which are halved until at most fifteen
    are left. Those stand side by side, and each value is compared with all of them.
    """
    values, thresholds, power, out, times, rows = args
    lanes = _Lanes(b, "float64")
    rest = b.sub(power, _LEVELS)
    far = b.icmp_signed(">", rest, WORD(_LEVELS))
    near = b.select(far, WORD(_LEVELS), rest)
    halvings = b.sub(rest, near)
    beside = b.sub(b.shl(WORD(1), near), 1)
    beside = b.udiv(b.add(beside, lanes.count - 1), lanes.count)
    pivots = b.sub(thresholds, 8 * (_PIVOTS + 1))

    def searched(known: Values) -> Values:
        found = []
        far = lanes.all(rest)
        counts = lanes.exceeded(known, pivots, WORD(_PIVOTS), WORD(8))
        for value, count in zip(known, counts, strict=True):
            place = lanes.halved(value, b.shl(count, far), thresholds, rest, halvings)
            found.append(b.add(place, lanes.beside(value, place, thresholds, beside)))
        return found

    def read(first: Value) -> Values:
        return lanes.read(b.add(values, b.shl(first, 3)))

    few = b.icmp_signed("<=", power, WORD(_FEW_POWER))
    counted = partial(lanes.all_exceeded, limits=thresholds)
    _write_ranks(b, read, (few, counted, searched), (out, times, rows))


def _rank_small(b: Builder, args: Values) -> None:
    """The ranks of numbers of four bytes: as rank64_float32 of oven.compiler.intrinsics.tiles.

    Each value is compared with the first threshold of each part, and with all of its part; with all
    thresholds where there are few of them.
    """
    values, zero, thresholds, parts, out, times, rows = args
    lanes = _Lanes(b, "float32")
    near = b.all(b.item(zero, WORD(0), lanes.kind.element), lanes.count)
    others = b.sub(parts, 1)
    second = b.add(thresholds, _PART_BYTES)

    def searched(known: Values) -> Values:
        found = []
        counts = lanes.exceeded(known, second, others, WORD(_PART_BYTES))
        for value, part in zip(known, counts, strict=True):
            place = b.shl(part, 5)
            more = lanes.beside(value, place, thresholds, WORD(_PART_BYTES // 4 // lanes.count))
            found.append(b.add(b.sub(place, part), more))
        return found

    def read(first: Value) -> Values:
        return [without(b, v, near) for v in lanes.read(b.add(values, b.shl(first, 2)))]

    few = b.icmp_signed("==", parts, WORD(1))
    counted = partial(lanes.all_exceeded, limits=thresholds)
    _write_ranks(b, read, (few, counted, searched), (out, times, rows))


def _write_ranks(
    b: Builder, read: _Ranked, ways: tuple[Value, _Ranked, _Ranked], where: Values
) -> None:
    """Write the ranks of the rows, which are read and ranked sixteen at a time.

    If a column has few thresholds, sixteen rows are ranked in the first way, else in the second.
    """
    out, times, rows = where
    few, counted, searched = ways
    memory = b.ptrtoint(b.room(ir.VectorType(SHORT, ROWS)), WORD)

    def sixteen(first: Value, ranked: _Ranked) -> Value:
        known = read(first)
        narrow = ir.VectorType(SHORT, known[0].type.count)
        return b.joined(b.without_nan(known, [b.trunc(each, narrow) for each in ranked(known)]))

    def group(g: Value, _: Values) -> Values:
        first = b.mul(g, _PIVOTED)
        b.write(sixteen(first, searched), b.add(memory, b.shl(first, 1)), 2)
        return ()

    def spread_first(lanes: int) -> None:
        spread(b, b.chunk(memory, 0, ir.VectorType(SHORT, lanes)), out, times)

    is_short = b.icmp_signed("<=", rows, WORD(FEW_ROWS))
    with b.if_else(b.and_(few, is_short)) as (one, more):
        with one:
            spread(b, sixteen(WORD(0), counted), out, times)
        with more:
            b.loop(b.udiv(b.add(rows, _PIVOTED - 1), _PIVOTED), (), group)
            b.for_so_many(rows, (FEW_ROWS, ROWS), spread_first)


class _Lanes:
    """Writes searches for values, a register of them at a time, among ascending thresholds."""

    def __init__(self, builder: Builder, value: str) -> None:
        self.builder = builder
        self.size = size_of(FLOATS[value])
        self.count = machine.vector_bytes() // self.size
        self.kind = ir.VectorType(FLOATS[value], self.count)
        self.whole = ir.VectorType(ir.IntType(8 * self.size), self.count)

    def all(self, number: Value) -> Value:
        """A whole number in every lane."""
        kind = self.whole.element
        whole = number if number.type == kind else self.builder.trunc(number, kind)
        return self.builder.all(whole, self.count)

    def read(self, address: Value) -> Values:
        """Sixteen values."""
        return [self.builder.chunk(address, k, self.kind) for k in range(_PIVOTED // self.count)]

    def counted(self, count: Value, value: Value, limit: Value) -> Value:
        """One more where the value exceeds the limit, or is NaN."""
        above = self.builder.fcmp_unordered(">", value, limit)
        return self.builder.sub(count, self.builder.sext(above, self.whole))

    def exceeded(self, known: Values, limits: Value, count: Value, far: Value) -> Values:
        """The number of limits, at this distance from each other, that each value exceeds."""
        b = self.builder

        def step(k: Value, before: Values) -> Values:
            where = b.far(limits, k, far)
            limit = b.all(b.item(where, WORD(0), self.kind.element), self.count)
            return [self.counted(c, v, limit) for c, v in zip(before, known, strict=True)]

        return b.loop(count, [same(self.whole, 0)] * len(known), step)

    def all_exceeded(self, known: Values, limits: Value) -> Values:
        """The number of limits in front of the first infinite one that each value exceeds."""
        b, limit = self.builder, [WORD(0)]

        def look(phis: Values) -> Value:
            limit[0] = b.item(limits, phis[0], self.kind.element)
            return b.fcmp_ordered("<", limit[0], same(limit[0].type, float("inf")))

        def step(phis: Values) -> Values:
            every = b.all(limit[0], self.count)
            counts = [self.counted(*each, every) for each in zip(phis[1:], known, strict=True)]
            return [b.add(phis[0], 1), *counts]

        start = [WORD(0), *(same(self.whole, 0) for _ in known)]
        return b.while_(start, look, step)[1:]

    def halved(
        self, value: Value, place: Value, thresholds: Value, rest: Value, times: Value
    ) -> Value:
        """The first threshold of the half in which each value belongs, again and again."""
        b = self.builder

        def step(k: Value, before: Values) -> Values:
            (place,) = before
            half = b.shl(WORD(1), b.sub(b.sub(rest, 1), k))
            last = b.mul(b.sub(half, 1), self.size)
            base, limit = b.add(thresholds, last), ir.Constant(self.kind, ir.Undefined)
            for lane in range(self.count):
                one = b.item(base, b.extract_element(place, INT(lane)), self.kind.element)
                limit = b.insert_element(limit, one, INT(lane))
            above = b.sext(b.fcmp_unordered(">", value, limit), self.whole)
            return (b.add(place, b.and_(above, self.all(half))),)

        return b.loop(times, (place,), step)[0]

    def beside(self, value: Value, place: Value, thresholds: Value, registers: Value) -> Value:
        """The number of thresholds that each value exceeds, in these registers from a place on."""
        b, lanes = self.builder, range(self.count)
        numbers = [b.extract_element(value, INT(lane)) for lane in lanes]
        numbers = [b.all(number, self.count) for number in numbers]
        places = [b.extract_element(place, INT(lane)) for lane in lanes]
        if self.size < 8:
            places = [b.zext(at, WORD) for at in places]
        starts = [b.far(thresholds, at, self.size) for at in places]

        def step(k: Value, before: Values) -> Values:
            far, after = b.mul(k, self.size * self.count), []
            for count, number, start in zip(before, numbers, starts, strict=True):
                limits = b.read(b.add(start, far), self.kind, self.size)
                after.append(self.counted(count, number, limits))
            return after

        return self.summed(b.loop(registers, [same(self.whole, 0)] * self.count, step))

    def summed(self, counts: Values) -> Value:
        """The sum of the elements of each of so many vectors as a vector has elements."""
        many, half = list(counts), 1
        while len(many) > 1:
            pairs = zip(many[::2], many[1::2], strict=True)
            many = [self._halves(low, high, half) for low, high in pairs]
            half *= 2
        return many[0]

    def _halves(self, low: Value, high: Value, half: int) -> Value:
        """Neighbouring sums of two vectors, added, by turns from either."""
        b, sides = self.builder, []
        for odd in (0, half):
            lanes = range(self.count)
            order = [(lane & ~half) + odd + (self.count if lane & half else 0) for lane in lanes]
            index = ir.Constant(ir.VectorType(INT, self.count), order)
            sides.append(b.shuffle_vector(low, high, index))
        return b.add(*sides)


def _add(b: Builder, args: Values, *, index: ir.Type, value: ir.Type) -> None:
    """The value of its leaf to each row's sum: as add64 of oven.compiler.intrinsics.slices."""
    leaves, values, stride, sums, rows = args

    def group(g: Value, _: Values) -> Values:
        first = b.mul(g, _SEARCHED)
        for k in range(_SEARCHED):
            row = b.add(first, k)
            leaf = b.zext(b.item(leaves, row, index, constant=False), WORD)
            held = b.item(values, b.mul(leaf, stride), value)
            b.put(sums, row, b.fadd(b.item(sums, row, value, constant=False), held))
        return ()

    b.loop(b.udiv(b.add(rows, _SEARCHED - 1), _SEARCHED), (), group)


def _fold(b: Builder, args: Values, *, index: ir.Type, value: ir.Type) -> None:
    """The values of their leaves in some trees: as fold64 of oven.compiler.intrinsics.slices."""
    leaves, trees, starts, values, sums, rows = args

    def group(g: Value, _: Values) -> Values:
        first = b.mul(g, _SEARCHED)

        def tree(t: Value, before: Values) -> Values:
            here = b.add(b.mul(t, ROWS), first)
            where, after = b.far(values, b.item(starts, t, WORD), size_of(value)), []
            for k, total in enumerate(before):
                leaf = b.zext(b.item(leaves, b.add(here, k), index, constant=False), WORD)
                after.append(b.fadd(total, b.item(where, leaf, value)))
            return after

        places = [b.add(first, k) for k in range(_SEARCHED)]
        start = [b.item(sums, row, value, constant=False) for row in places]
        for row, total in zip(places, b.loop(trees, start, tree), strict=True):
            b.put(sums, row, total)
        return ()

    b.loop(b.udiv(b.add(rows, _SEARCHED - 1), _SEARCHED), (), group)
