"""What emitted code says about adding up the leaves of few trees: see flour.ops.trees.tiles.

The leaves of all trees are known before anything is added, so the sums stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from llvmlite.ir import IRBuilder, Value

from oven.compiler import machine
from oven.compiler.intrinsics.base import Values, on_words
from oven.compiler.intrinsics.slices import (
    _FLOATS,
    _INT,
    _WHOLE,
    _WORD,
    ROWS,
    _all,
    _declared,
    _gather,
    _load,
    _loop,
    _pointer,
)
from oven.compiler.lowering import Intrinsic

_BYTES = {"float32": 4, "float64": 8, "uint8": 1, "uint16": 2}
#: A vector register has so many bytes, and so many of them are summed up at once.
_REGISTER, _TOGETHER = 64, 4
#: Two registers hold the leaves of a tree that has no more than these.
FEW = {"float64": 16, "float32": 32}


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every word by name."""
    made: dict[str, Any] = {}
    for leaf in _WHOLE:
        for value in _FLOATS:
            made[f"sum64_{leaf}_{value}"] = on_words(10, _each_row(leaf, value))
            made[f"total64_{leaf}_{value}"] = on_words(8, _eight_rows(leaf, value, few=False))
    for value in _FLOATS:
        made[f"total64_few_{value}"] = on_words(8, _eight_rows("uint8", value, few=True))
    return made


def _each_row(leaf: str, value: str) -> Callable[[IRBuilder, Values], None]:
    """The values of its leaves for each row, all outputs side by side in a register.

    Arguments: the numbers of the leaves (64 for each tree), how many trees, where the leaves of
    each start; the values, how many for a leaf; what sums start from, and what they are divided
    by (an address; 1 for nothing); where the rows go, how far one is from the next, and how many.
    """
    size = _BYTES[value]
    lanes = _REGISTER // size
    kind = ir.VectorType(_FLOATS[value], lanes)
    numbers = ir.Constant(ir.VectorType(_WORD, lanes), list(range(lanes)))

    def write(builder: IRBuilder, args: Values) -> None:
        leaves, trees, starts, values, span, base, by, out, stride, there = args
        divisor = _all(builder, _load(builder, by, _WORD(0), _FLOATS[value]), lanes)
        chunks = builder.udiv(builder.add(span, _WORD(lanes - 1)), _WORD(lanes))

        def chunk(c: Value, _: Values) -> Values:
            first = builder.mul(c, _WORD(lanes))
            left = _all(builder, builder.sub(span, first), lanes)
            inside = builder.icmp_signed("<", numbers, left)
            far = builder.mul(first, _WORD(size))
            start = _some(builder, builder.add(base, far), inside, kind)
            here = builder.add(values, far)

            def row(r: Value, _: Values) -> Values:
                def tree(t: Value, before: Values) -> Values:
                    place = builder.add(builder.mul(t, _WORD(ROWS)), r)
                    number = _load(builder, leaves, place, _WHOLE[leaf], constant=False)
                    at = builder.add(builder.zext(number, _WORD), _load(builder, starts, t, _WORD))
                    at = builder.mul(builder.mul(at, span), _WORD(size))
                    held = _some(builder, builder.add(here, at), inside, kind)
                    return (builder.fadd(before[0], held),)

                (total,) = _loop(builder, trees, (start,), tree)
                total = builder.fdiv(total, divisor)
                where = builder.add(builder.add(out, far), builder.mul(r, stride))
                _store_some(builder, where, inside, total)
                return ()

            _loop(builder, there, (), row)
            return ()

        _loop(builder, chunks, (), chunk)

    return write


def _some(builder: IRBuilder, where: Value, inside: Value, kind: ir.VectorType) -> Value:
    """The elements at an address that are inside, zero for the others."""
    name = f"llvm.masked.load.v{kind.count}{_item(kind)}.p0"
    function = _declared(builder, name, [ir.PointerType(), _INT, inside.type, kind], kind)
    pointer, align = _pointer(builder, where, kind), _INT(_size(kind))
    return builder.call(function, [pointer, align, inside, ir.Constant(kind, [0.0] * kind.count)])


def _store_some(builder: IRBuilder, where: Value, inside: Value, value: Value) -> None:
    kind = value.type
    name = f"llvm.masked.store.v{kind.count}{_item(kind)}.p0"
    given = [kind, ir.PointerType(), _INT, inside.type]
    function = _declared(builder, name, given, ir.VoidType())
    pointer = _pointer(builder, where, kind)
    builder.call(function, [value, pointer, _INT(_size(kind)), inside])


def _size(kind: ir.VectorType) -> int:
    return 4 if isinstance(kind.element, ir.FloatType) else 8


def _item(kind: ir.VectorType) -> str:
    return f"f{8 * _size(kind)}"


def _eight_rows(leaf: str, value: str, *, few: bool) -> Callable[[IRBuilder, Values], None]:
    """The sums of one output for 64 rows, as many of them in a register as it holds.

    Arguments: the numbers of the leaves (64 for each tree), how many trees, where the leaves of
    each start, the values; what sums start from, and what they are divided by (addresses); where
    the 64 sums go, and how many of them are wanted. Where leaves are few, two registers are read
    from the first value of a tree on.
    """
    size = _BYTES[value]

    def write(builder: IRBuilder, args: Values) -> None:
        wide = machine.has("avx512bw")
        lanes = _REGISTER // size if wide else 1
        kind, narrow = ir.VectorType(_FLOATS[value], lanes), ir.VectorType(_WHOLE[leaf], lanes)
        leaves, trees, starts, values, base, by, out, there = args
        first = _all(builder, _load(builder, base, _WORD(0), _FLOATS[value]), lanes)
        divisor = _all(builder, _load(builder, by, _WORD(0), _FLOATS[value]), lanes)
        together = _TOGETHER // 2 if wide else 2 * _TOGETHER
        step = together * lanes
        groups = builder.udiv(builder.add(there, _WORD(step - 1)), _WORD(step))

        def rows(group: Value, _: Values) -> Values:
            row = builder.mul(group, _WORD(step))

            def tree(t: Value, before: Values) -> Values:
                at = _load(builder, starts, t, _WORD)
                where = builder.add(values, builder.mul(at, _WORD(size)))
                place = builder.add(builder.mul(t, _WORD(ROWS)), row)
                place = builder.add(leaves, builder.mul(place, _WORD(_BYTES[leaf])))
                chosen = _chooser(builder, where, kind, few=few)
                made = []
                for k, total in enumerate(before):
                    here = builder.add(place, _WORD(k * lanes * _BYTES[leaf]))
                    number = builder.load(_pointer(builder, here, narrow), typ=narrow, align=1)
                    made.append(builder.fadd(total, chosen(number)))
                return made

            for k, total in enumerate(_loop(builder, trees, [first] * together, tree)):
                far = builder.mul(builder.add(row, _WORD(k * lanes)), _WORD(size))
                pointer = _pointer(builder, builder.add(out, far), kind)
                builder.store(builder.fdiv(total, divisor), pointer, align=size)
            return ()

        _loop(builder, groups, (), rows)

    return write


def _chooser(
    builder: IRBuilder, where: Value, kind: ir.VectorType, *, few: bool
) -> Callable[[Value], Value]:
    """What looks up the values of leaves: among two registers' worth, or in memory."""
    if not (few and machine.has("avx512f")):
        wide = ir.VectorType(_INT, kind.count)
        return lambda number: _gather(builder, where, builder.zext(number, wide), kind.element)
    size = _size(kind)
    table = [
        builder.load(
            _pointer(builder, builder.add(where, _WORD(k * _REGISTER)), kind), typ=kind, align=size
        )
        for k in (0, 1)
    ]
    places = ir.VectorType(ir.IntType(8 * size), kind.count)
    name = f"llvm.x86.avx512.vpermi2var.{'ps' if size == 4 else 'pd'}.512"
    function = _declared(builder, name, [kind, places, kind], kind)

    def look(number: Value) -> Value:
        return builder.call(function, [table[0], builder.zext(number, places), table[1]])

    return look
