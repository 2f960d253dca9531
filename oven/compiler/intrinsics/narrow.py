"""Ranks and sums of trees on processors without AVX-512: registers of 16 or 32 bytes, slow gathers.

What AVX-512 does by permutes and gathers is done here by comparing with all pivots, and by scalar
loads of eight rows side by side. Only as many rows are looked at as there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from llvmlite.ir import IRBuilder

from oven.compiler import machine
from oven.compiler.intrinsics.base import Values, on_words
from oven.compiler.intrinsics.memory import stack
from oven.compiler.intrinsics.slices import (
    _FLOATS,
    _INT,
    _SHORT,
    _WHOLE,
    _WORD,
    FEW_ROWS,
    ROWS,
    _all,
    _chunk,
    _joined,
    _load,
    _loop,
    _pointer,
    _same,
    _spread,
    _store,
    for_so_many,
)
from oven.compiler.intrinsics.tiles import without
from oven.compiler.lowering import Intrinsic

#: What is read from a row on, or what is found for what was read.
_Rank = Callable[[Any], Sequence[Any]]
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
    made: dict[str, Intrinsic | int] = {
        f"add64_{index}_{value}": on_words(5, _adding(kind, held))
        for index, kind in _WHOLE.items()
        for value, held in _FLOATS.items()
    }
    made |= {
        f"fold64_{index}_{value}": on_words(6, _folding(kind, held))
        for index, kind in _WHOLE.items()
        for value, held in _FLOATS.items()
    }
    return made | {"rank64": on_words(6, _rank), "rank64_float32": on_words(7, _rank_small)}


def _rank(builder: IRBuilder, args: Values) -> None:
    """How many thresholds each value exceeds: as rank64 of oven.compiler.intrinsics.slices.

    The pivots leave less than a sixteenth of the thresholds, which are halved until at most fifteen
    are left. Those stand side by side, and each value is compared with all of them.
    """
    values, thresholds, power, out, times, rows = args
    lanes = _Lanes(builder, "float64")
    rest = builder.sub(power, _WORD(_LEVELS))
    far = builder.icmp_signed(">", rest, _WORD(_LEVELS))
    near = builder.select(far, _WORD(_LEVELS), rest)
    halvings = builder.sub(rest, near)
    beside = builder.sub(builder.shl(_WORD(1), near), _WORD(1))
    beside = builder.add(beside, _WORD(lanes.count - 1))
    beside = builder.udiv(beside, _WORD(lanes.count))
    pivots = builder.sub(thresholds, _WORD(8 * (_PIVOTS + 1)))

    def counted(known: Sequence[Any]) -> Sequence[Any]:
        return lanes.all_exceeded(known, thresholds)

    def searched(known: Sequence[Any]) -> Sequence[Any]:
        found = []
        far = lanes.all(rest)
        counts = lanes.exceeded(known, pivots, _WORD(_PIVOTS), _WORD(8))
        for value, count in zip(known, counts, strict=True):
            place = lanes.halved(value, builder.shl(count, far), thresholds, rest, halvings)
            found.append(builder.add(place, lanes.beside(value, place, thresholds, beside)))
        return found

    def read(first: Any) -> Sequence[Any]:
        return lanes.read(builder.add(values, builder.shl(first, _WORD(3))))

    few = builder.icmp_signed("<=", power, _WORD(_FEW_POWER))
    _write_ranks(builder, read, (few, counted, searched), (out, times, rows))


def _rank_small(builder: IRBuilder, args: Values) -> None:
    """The same for numbers of four bytes: as rank64_float32 of oven.compiler.intrinsics.tiles.

    Each value is compared with the first threshold of each part, and with all of its part; with all
    thresholds where there are few of them.
    """
    values, zero, thresholds, parts, out, times, rows = args
    lanes = _Lanes(builder, "float32")
    near = _all(builder, _load(builder, zero, _WORD(0), lanes.kind.element), lanes.count)
    others = builder.sub(parts, _WORD(1))
    second = builder.add(thresholds, _WORD(_PART_BYTES))

    def counted(known: Sequence[Any]) -> Sequence[Any]:
        return lanes.all_exceeded(known, thresholds)

    def searched(known: Sequence[Any]) -> Sequence[Any]:
        found = []
        counts = lanes.exceeded(known, second, others, _WORD(_PART_BYTES))
        for value, part in zip(known, counts, strict=True):
            place = builder.shl(part, _same(lanes.whole, 5))
            more = lanes.beside(value, place, thresholds, _WORD(_PART_BYTES // 4 // lanes.count))
            found.append(builder.add(builder.sub(place, part), more))
        return found

    def read(first: Any) -> Sequence[Any]:
        known = lanes.read(builder.add(values, builder.shl(first, _WORD(2))))
        return [without(builder, value, near) for value in known]

    few = builder.icmp_signed("==", parts, _WORD(1))
    _write_ranks(builder, read, (few, counted, searched), (out, times, rows))


def _write_ranks(
    builder: IRBuilder, read: _Rank, ways: tuple[Any, _Rank, _Rank], where: tuple[Any, Any, Any]
) -> None:
    """Write the ranks of the rows, which are read and ranked sixteen at a time.

    If a column has few thresholds, sixteen rows are ranked in the first way, else in the second.
    """
    out, times, rows = where
    few, counted, searched = ways
    memory = builder.ptrtoint(stack(builder, ir.VectorType(_SHORT, ROWS)), _WORD)

    def sixteen(first: Any, ranked: _Rank) -> Any:
        known, found = read(first), []
        for value, place in zip(known, ranked(known), strict=True):
            narrow = ir.VectorType(_SHORT, value.type.count)
            missing = builder.fcmp_unordered("uno", value, value)
            rank = builder.trunc(place, narrow)
            found.append(builder.select(missing, _same(narrow, 0xFFFF), rank))
        return _joined(builder, found)

    def group(g: Any, _: Values) -> Values:
        first = builder.mul(g, _WORD(_PIVOTED))
        made = sixteen(first, searched)
        at = builder.add(memory, builder.shl(first, _WORD(1)))
        builder.store(made, _pointer(builder, at, made.type), align=2)
        return ()

    def spread(lanes: int) -> None:
        found = _chunk(builder, memory, 0, ir.VectorType(_SHORT, lanes))
        _spread(builder, found, out, times)

    is_short = builder.icmp_signed("<=", rows, _WORD(FEW_ROWS))
    with builder.if_else(builder.and_(few, is_short)) as (one, more):
        with one:
            _spread(builder, sixteen(_WORD(0), counted), out, times)
        with more:
            count = builder.udiv(builder.add(rows, _WORD(_PIVOTED - 1)), _WORD(_PIVOTED))
            _loop(builder, count, (), group)
            for_so_many(builder, rows, (FEW_ROWS, ROWS), spread)


class _Lanes:
    """Writes searches for values, a register of them at a time, among ascending thresholds."""

    def __init__(self, builder: IRBuilder, value: str) -> None:
        self.builder = builder
        self.size = {"float32": 4, "float64": 8}[value]
        self.count = machine.vector_bytes() // self.size
        self.kind = ir.VectorType(_FLOATS[value], self.count)
        self.whole = ir.VectorType(ir.IntType(8 * self.size), self.count)

    def all(self, number: Any) -> Any:
        """A whole number in every lane."""
        kind = self.whole.element
        whole = number if number.type == kind else self.builder.trunc(number, kind)
        return _all(self.builder, whole, self.count)

    def read(self, address: Any) -> Sequence[Any]:
        """Sixteen values."""
        return [_chunk(self.builder, address, k, self.kind) for k in range(_PIVOTED // self.count)]

    def counted(self, count: Any, value: Any, limit: Any) -> Any:
        """One more where the value exceeds the limit, or is NaN."""
        above = self.builder.fcmp_unordered(">", value, limit)
        return self.builder.sub(count, self.builder.sext(above, self.whole))

    def exceeded(self, known: Sequence[Any], limits: Any, count: Any, far: Any) -> Sequence[Any]:
        """How many of the limits, so many bytes from each other, each value exceeds."""
        builder = self.builder

        def step(k: Any, before: Values) -> Values:
            where = builder.add(limits, builder.mul(k, far))
            limit = _all(builder, _load(builder, where, _WORD(0), self.kind.element), self.count)
            return [self.counted(c, v, limit) for c, v in zip(before, known, strict=True)]

        return _loop(builder, count, [_same(self.whole, 0)] * len(known), step)

    def all_exceeded(self, known: Sequence[Any], limits: Any) -> Sequence[Any]:
        """How many of the limits in front of the first infinite one each value exceeds."""
        builder = self.builder
        before = builder.block
        look, body, end = (builder.append_basic_block(name) for name in ("look", "body", "end"))
        builder.branch(look)
        builder.position_at_end(look)
        start = [_WORD(0), *(_same(self.whole, 0) for _ in known)]
        phis = [builder.phi(first.type) for first in start]
        limit = _load(builder, limits, phis[0], self.kind.element)
        last = ir.Constant(limit.type, float("inf"))
        builder.cbranch(builder.fcmp_ordered("<", limit, last), body, end)
        builder.position_at_end(body)
        limit = _all(builder, limit, self.count)
        counts = [self.counted(*each, limit) for each in zip(phis[1:], known, strict=True)]
        after = [builder.add(phis[0], _WORD(1)), *counts]
        for phi, first, then in zip(phis, start, after, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(then, body)
        builder.branch(look)
        builder.position_at_end(end)
        return phis[1:]

    def halved(self, value: Any, place: Any, thresholds: Any, rest: Any, times: Any) -> Any:
        """The first threshold of the half in which each value belongs, again and again."""
        builder = self.builder

        def step(k: Any, before: Values) -> Values:
            (place,) = before
            half = builder.shl(_WORD(1), builder.sub(builder.sub(rest, _WORD(1)), k))
            last = builder.mul(builder.sub(half, _WORD(1)), _WORD(self.size))
            base, limit = builder.add(thresholds, last), ir.Constant(self.kind, ir.Undefined)
            for lane in range(self.count):
                one = builder.extract_element(place, _INT(lane))
                one = _load(builder, base, one, self.kind.element)
                limit = builder.insert_element(limit, one, _INT(lane))
            above = builder.sext(builder.fcmp_unordered(">", value, limit), self.whole)
            return (builder.add(place, builder.and_(above, self.all(half))),)

        return _loop(builder, times, (place,), step)[0]

    def beside(self, value: Any, place: Any, thresholds: Any, registers: Any) -> Any:
        """How many thresholds each value exceeds among so many registers of them from a place."""
        builder, lanes = self.builder, range(self.count)
        numbers = [builder.extract_element(value, _INT(lane)) for lane in lanes]
        numbers = [_all(builder, number, self.count) for number in numbers]
        places = [builder.extract_element(place, _INT(lane)) for lane in lanes]
        if self.size < 8:
            places = [builder.zext(at, _WORD) for at in places]
        starts = [builder.add(thresholds, builder.mul(at, _WORD(self.size))) for at in places]

        def step(k: Any, before: Values) -> Values:
            far, after = builder.mul(k, _WORD(self.size * self.count)), []
            for count, number, start in zip(before, numbers, starts, strict=True):
                where = _pointer(builder, builder.add(start, far), self.kind)
                limits = builder.load(where, typ=self.kind, align=self.size)
                after.append(self.counted(count, number, limits))
            return after

        counts = _loop(builder, registers, [_same(self.whole, 0)] * self.count, step)
        return self.summed(counts)

    def summed(self, counts: Sequence[Any]) -> Any:
        """The sum of the elements of each of so many vectors as a vector has elements."""
        many, half = list(counts), 1
        while len(many) > 1:
            pairs = zip(many[::2], many[1::2], strict=True)
            many = [self._halves(low, high, half) for low, high in pairs]
            half *= 2
        return many[0]

    def _halves(self, low: Any, high: Any, half: int) -> Any:
        """Neighbouring sums of two vectors, added, by turns from either."""
        builder, sides = self.builder, []
        for odd in (0, half):
            lanes = range(self.count)
            order = [(lane & ~half) + odd + (self.count if lane & half else 0) for lane in lanes]
            index = ir.Constant(ir.VectorType(_INT, self.count), order)
            sides.append(builder.shuffle_vector(low, high, index))
        return builder.add(*sides)


def _adding(index: Any, value: Any) -> Callable[[Any, Sequence[Any]], None]:
    """The value of its leaf to each row's sum: as add64 of oven.compiler.intrinsics.slices."""

    def write(builder: IRBuilder, args: Values) -> None:
        leaves, values, stride, sums, rows = args

        def group(g: Any, _: Values) -> Values:
            first = builder.mul(g, _WORD(_SEARCHED))
            for k in range(_SEARCHED):
                row = builder.add(first, _WORD(k))
                leaf = builder.zext(_load(builder, leaves, row, index, constant=False), _WORD)
                held = _load(builder, values, builder.mul(leaf, stride), value)
                total = _load(builder, sums, row, value, constant=False)
                _store(builder, sums, row, builder.fadd(total, held))
            return ()

        count = builder.udiv(builder.add(rows, _WORD(_SEARCHED - 1)), _WORD(_SEARCHED))
        _loop(builder, count, (), group)

    return write


def _folding(index: Any, value: Any) -> Callable[[Any, Sequence[Any]], None]:
    """The values of their leaves in some trees: as fold64 of oven.compiler.intrinsics.slices."""
    size = 4 if isinstance(value, ir.FloatType) else 8

    def write(builder: IRBuilder, args: Values) -> None:
        leaves, trees, starts, values, sums, rows = args

        def group(g: Any, _: Values) -> Values:
            first = builder.mul(g, _WORD(_SEARCHED))

            def tree(t: Any, before: Values) -> Values:
                here = builder.add(builder.mul(t, _WORD(ROWS)), first)
                start = builder.mul(_load(builder, starts, t, _WORD), _WORD(size))
                where, after = builder.add(values, start), []
                for k, total in enumerate(before):
                    at = builder.add(here, _WORD(k))
                    leaf = builder.zext(_load(builder, leaves, at, index, constant=False), _WORD)
                    after.append(builder.fadd(total, _load(builder, where, leaf, value)))
                return after

            rows = [builder.add(first, _WORD(k)) for k in range(_SEARCHED)]
            start = [_load(builder, sums, row, value, constant=False) for row in rows]
            for row, total in zip(rows, _loop(builder, trees, start, tree), strict=True):
                _store(builder, sums, row, total)
            return ()

        count = builder.udiv(builder.add(rows, _WORD(_SEARCHED - 1)), _WORD(_SEARCHED))
        _loop(builder, count, (), group)

    return write
