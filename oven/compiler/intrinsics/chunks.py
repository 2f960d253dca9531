"""Sixty-four bytes at once, groups of a dictionary's slots, single bits: what text is read with.

The functions for text in Python (text, patterns, counts) are written over these.
"""

from __future__ import annotations

from types import FunctionType, ModuleType

from llvmlite import ir

from oven.compiler import machine
from oven.compiler.intrinsics import counts, patterns, text
from oven.compiler.intrinsics.base import Routine, Typed, Values
from oven.compiler.intrinsics.memory import declared, unchanging
from oven.compiler.intrinsics.vectors import repeated
from oven.compiler.kinds import BOOL, INT64, NOTHING, UINT64
from oven.compiler.lowering import Intrinsic

_BIT, _BYTE, _INT, _WORD = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_BYTES = ir.VectorType(_BYTE, 64)

#: Functions so short that calling them costs more than their work.
_SHORT = frozenset(
    (
        *("text_width", "text_small", "text_kind_at", "text_word", "text_hash", "text_tag"),
        *("text_group", "text_goes_on", "text_is", "text_alike", "text_aim", "text_place"),
        *("text_add", "text_meet", "text_turn", "text_scramble"),
    )
)
_MODULES: tuple[ModuleType, ...] = (text, patterns, counts)


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every intrinsic by name, and the numbers that the functions in Python refer to."""
    made: dict[str, Intrinsic | int] = {
        "seek_slots": Typed((INT64, INT64, INT64), INT64, _seek_slots),
        "first_bit_uint64": Typed(
            (UINT64,), INT64, lambda builder, args: builder.cttz(args[0], _BIT(0))
        ),
        "count_bits": Typed((INT64,), INT64, lambda builder, args: builder.ctpop(args[0])),
        "choose": Typed((BOOL, INT64, INT64), INT64, _choose),
        "fetch": Typed((INT64,), NOTHING, _fetch),
        "copy_small": Typed((INT64, INT64, INT64), INT64, _copy_small),
        "bytes_within": Typed((INT64, INT64, INT64), INT64, _bytes_within),
        "odd_bytes": Typed((INT64,), INT64, _odd_bytes),
        "kinds_of_bytes": Typed((INT64, INT64), INT64, _kinds_of_bytes),
    }
    for module in _MODULES:
        for name, item in vars(module).items():
            if name.startswith("text_") and isinstance(item, FunctionType):
                made[name] = Routine(item, inline=name in _SHORT)
            elif isinstance(item, int) and name.isupper():
                made.setdefault(name, item)
    return made


def _seek_slots(builder: ir.IRBuilder, args: Values) -> ir.Value:
    """Eight slots at once, xor the tag: the least of them, taken as numbers without a sign."""
    group = ir.VectorType(_WORD, 8)
    start = builder.inttoptr(args[0], _WORD.as_pointer())
    where = builder.gep(start, [args[1]], source_etype=_WORD)
    held = builder.load(builder.bitcast(where, group.as_pointer()), align=8, typ=group)
    every = repeated(builder, builder.shl(args[2], _WORD(32)), 8)
    least = declared(builder, "llvm.vector.reduce.umin.v8i64", [group], _WORD)
    return builder.call(least, [builder.xor(unchanging(builder, held), every)])


def _bytes(builder: ir.IRBuilder, where: ir.Value) -> ir.Value:
    """The 64 bytes at an address."""
    start = builder.inttoptr(where, _BYTES.as_pointer())
    return builder.load(start, align=1, typ=_BYTES)


def _each(builder: ir.IRBuilder, byte: ir.Value) -> ir.Value:
    """A byte in every lane."""
    return repeated(builder, builder.trunc(byte, _BYTE), 64)


def _bytes_within(builder: ir.IRBuilder, args: Values) -> ir.Value:
    """Which of 64 bytes are `low` or up to `span` above it: a bit for each."""
    above = builder.sub(_bytes(builder, args[0]), _each(builder, args[1]))
    return builder.bitcast(builder.icmp_unsigned("<=", above, _each(builder, args[2])), _WORD)


def _copy_small(builder: ir.IRBuilder, args: Values) -> ir.Value:
    """Copy 64 bytes, capital letters or-ed; which are not ASCII: a bit for each."""
    source = _bytes(builder, args[0])
    above = builder.sub(source, ir.Constant(_BYTES, [65] * 64))
    capital = builder.icmp_unsigned("<=", above, ir.Constant(_BYTES, [25] * 64))
    small = builder.or_(source, _each(builder, args[2]))
    target = builder.inttoptr(args[1], _BYTES.as_pointer())
    builder.store(builder.select(capital, small, source), target, align=1)
    high = builder.icmp_signed("<", source, ir.Constant(_BYTES, [0] * 64))
    return builder.bitcast(high, _WORD)


def _odd(builder: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    return builder.bitcast(builder.trunc(numbers, ir.VectorType(_BIT, 64)), _WORD)


def _odd_bytes(builder: ir.IRBuilder, args: Values) -> ir.Value:
    """Which of 64 bytes are odd: a bit for each."""
    return _odd(builder, _bytes(builder, args[0]))


def _kinds_of_bytes(builder: ir.IRBuilder, args: Values) -> ir.Value:
    """Which of 64 bytes of ASCII have an odd entry in a table of 128 bytes: a bit for each."""
    entries = _bytes(builder, args[0])
    if machine.has("avx512vbmi"):  # never called elsewhere: see permutes128
        low, high = (_bytes(builder, builder.add(args[1], _WORD(k))) for k in (0, 64))
        name = "llvm.x86.avx512.vpermi2var.qi.512"
        function = declared(builder, name, [_BYTES] * 3, _BYTES)
        entries = builder.call(function, [low, entries, high])
    return _odd(builder, entries)


def _choose(builder: ir.IRBuilder, args: Values) -> ir.Value:
    """One of two numbers; the compiler is told that a branch would be predicted badly."""
    made = builder.select(*args)
    made.set_metadata("unpredictable", builder.module.add_metadata([]))
    return made


def _fetch(builder: ir.IRBuilder, args: Values) -> None:
    """Ask for the line of memory at an address, to be kept in all caches."""
    pointer = ir.IntType(8).as_pointer()
    function = declared(builder, "llvm.prefetch.p0", [pointer, _INT, _INT, _INT], ir.VoidType())
    builder.call(function, [builder.inttoptr(args[0], pointer), _INT(0), _INT(3), _INT(1)])
