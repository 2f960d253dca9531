"""Words of emitted code for adding up the leaves of few trees: see flour.ops.trees.tiles.

The leaves of all trees are known before anything is added, so the sums stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llvmlite import ir
from llvmlite.ir import Value

from oven.compiler import machine
from oven.compiler.intrinsics.base import Values
from oven.compiler.intrinsics.builder import FLOATS, ROWS, WHOLE, Builder, on_words, size_of
from oven.compiler.kinds import BYTE, INT, WORD
from oven.compiler.lowering import Intrinsic

#: A vector register has so many bytes, and so many of them are summed up at once.
_REGISTER, _TOGETHER = 64, 4
#: Two registers hold the leaves of a tree that has no more than these.
FEW = {"float64": 16, "float32": 32}


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every word by name."""
    made: dict[str, Intrinsic | int] = {}
    for value, held in FLOATS.items():
        for leaf, kind in WHOLE.items():
            made[f"sum64_{leaf}_{value}"] = on_words(10, partial(_each_row, leaf=kind, value=held))
            total = partial(_eight_rows, leaf=kind, value=held, few=False)
            made[f"total64_{leaf}_{value}"] = on_words(8, total)
        total = partial(_eight_rows, leaf=BYTE, value=held, few=True)
        made[f"total64_few_{value}"] = on_words(8, total)
    return made


def _each_row(b: Builder, args: Values, *, leaf: ir.Type, value: ir.Type) -> None:
    """The values of its leaves for each row, all outputs side by side in a register.

    Arguments: the numbers of the leaves (64 for each tree), how many trees, where the leaves of
    each start; the values, how many for a leaf; what sums start from, and what they are divided
    by (an address; 1 for nothing); where the rows go, how far one is from the next, and how many.
    """
    leaves, trees, starts, values, span, base, by, out, stride, there = args
    size = size_of(value)
    lanes = _REGISTER // size
    kind = ir.VectorType(value, lanes)
    divisor = b.all(b.item(by, WORD(0), value), lanes)

    def chunk(c: Value, _: Values) -> Values:
        first = b.mul(c, lanes)
        inside = b.first(b.sub(span, first), lanes)
        far = b.mul(first, size)
        start = b.read_some(b.add(base, far), inside, kind)
        here = b.add(values, far)

        def row(r: Value, _: Values) -> Values:
            def tree(t: Value, before: Values) -> Values:
                number = b.item(leaves, b.add(b.mul(t, ROWS), r), leaf, constant=False)
                at = b.add(b.zext(number, WORD), b.item(starts, t, WORD))
                held = b.read_some(b.far(here, b.mul(at, span), size), inside, kind)
                return (b.fadd(before[0], held),)

            (total,) = b.loop(trees, (start,), tree)
            total = b.fdiv(total, divisor)
            where = b.pointer(b.far(b.add(out, far), r, stride), kind)
            b.write_some(total, where, inside)
            return ()

        b.loop(there, (), row)
        return ()

    b.loop(b.udiv(b.add(span, lanes - 1), lanes), (), chunk)


def _eight_rows(b: Builder, args: Values, *, leaf: ir.Type, value: ir.Type, few: bool) -> None:
    """The sums of one output for 64 rows, as many of them in a register as it holds.

    Arguments: the numbers of the leaves (64 for each tree), how many trees, where the leaves of
    each start, the values; what sums start from, and what they are divided by (addresses); where
    the 64 sums go, and how many of them are wanted. Where leaves are few, two registers are read
    from the first value of a tree on.
    """
    leaves, trees, starts, values, base, by, out, there = args
    size, wide = size_of(value), machine.has("avx512bw")
    lanes = _REGISTER // size if wide else 1
    kind, narrow = ir.VectorType(value, lanes), ir.VectorType(leaf, lanes)
    first, divisor = (b.all(b.item(each, WORD(0), value), lanes) for each in (base, by))
    together = _TOGETHER // 2 if wide else 2 * _TOGETHER
    step = together * lanes

    def rows(group: Value, _: Values) -> Values:
        row = b.mul(group, step)

        def tree(t: Value, before: Values) -> Values:
            where = b.far(values, b.item(starts, t, WORD), size)
            place = b.far(leaves, b.add(b.mul(t, ROWS), row), size_of(leaf))
            chosen, made = _chooser(b, where, kind, few=few), []
            for k, total in enumerate(before):
                number = b.read(b.add(place, k * lanes * size_of(leaf)), narrow)
                made.append(b.fadd(total, chosen(number)))
            return made

        for k, total in enumerate(b.loop(trees, [first] * together, tree)):
            where = b.far(out, b.add(row, k * lanes), size)
            b.write(b.fdiv(total, divisor), where, size)
        return ()

    b.loop(b.udiv(b.add(there, step - 1), step), (), rows)


def _chooser(
    b: Builder, where: Value, kind: ir.VectorType, *, few: bool
) -> Callable[[Value], Value]:
    """A function that looks leaves' values up: among two registers' worth, or in memory."""
    if not (few and machine.has("avx512f")):
        wide = ir.VectorType(INT, kind.count)
        return lambda number: b.gather(where, b.zext(number, wide), kind.element)
    size = size_of(kind.element)
    table = [b.read(b.add(where, k * _REGISTER), kind, size) for k in (0, 1)]
    places = ir.VectorType(ir.IntType(8 * size), kind.count)
    return lambda number: b.looked_up(table, b.zext(number, places))
