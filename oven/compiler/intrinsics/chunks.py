"""Sixty-four bytes at once, groups of a dictionary's slots, single bits: what text is read with.

The functions for text in Python (text, patterns, counts, subwords, merges) are written over these.
"""

from __future__ import annotations

from types import FunctionType

from llvmlite import ir
from llvmlite.ir import Value

from oven.compiler import machine
from oven.compiler.intrinsics import counts, merges, patterns, subwords, text
from oven.compiler.intrinsics.base import Routine, Values
from oven.compiler.intrinsics.builder import Builder, same, typed
from oven.compiler.kinds import BIT, BOOL, BYTE, INT64, NOTHING, UINT64, WORD
from oven.compiler.lowering import Intrinsic

_BYTES = ir.VectorType(BYTE, 64)

#: Functions so short that calling them costs more than their work.
_SHORT = frozenset(
    (
        *("text_width", "text_small", "text_kind_at", "text_word", "text_hash", "text_tag"),
        *("text_group", "text_goes_on", "text_is", "text_alike", "text_aim", "text_place"),
        *(
            "text_add",
            "text_meet",
            "text_turn",
            "text_scramble",
            "text_entry",
            "text_pair",
            "text_look",
            "text_rank",
        ),
    )
)


def intrinsics() -> dict[str, Intrinsic | int]:
    """Every intrinsic by name, and the numbers that the functions in Python refer to."""
    made: dict[str, Intrinsic | int] = {
        "seek_slots": typed((INT64, INT64, INT64), INT64, _seek_slots),
        "first_bit_uint64": typed((UINT64,), INT64, lambda b, args: b.cttz(args[0], BIT(0))),
        "count_bits": typed((INT64,), INT64, lambda b, args: b.ctpop(args[0])),
        "choose": typed((BOOL, INT64, INT64), INT64, _choose),
        "fetch": typed((INT64,), NOTHING, lambda b, args: b.fetch(b.pointer(args[0], BYTE))),
        "copy_small": typed((INT64, INT64, INT64), INT64, _copy_small),
        "bytes_within": typed((INT64, INT64, INT64), INT64, _bytes_within),
        "odd_bytes": typed((INT64,), INT64, lambda b, args: _odd(b, b.read(args[0], _BYTES))),
        "kinds_of_bytes": typed((INT64, INT64), INT64, _kinds_of_bytes),
    }
    for module in (text, patterns, counts, subwords, merges):
        for name, item in vars(module).items():
            if name.startswith("text_") and isinstance(item, FunctionType):
                made[name] = Routine(item, inline=name in _SHORT)
            elif isinstance(item, int) and name.isupper():
                made.setdefault(name, item)
    return made


def _seek_slots(b: Builder, args: Values) -> Value:
    """Eight slots at once, xor the tag: the least of them, taken as numbers without a sign."""
    group = ir.VectorType(WORD, 8)
    held, every = b.load(b.place(args[:2], WORD, group), align=8), b.all(b.shl(args[2], 32), 8)
    slots = [b.xor(b.unchanging(held), every)]
    return b.intrinsic("llvm.vector.reduce.umin.v8i64", slots, WORD)


def _each(b: Builder, byte: Value) -> Value:
    """A byte in every lane."""
    return b.all(b.trunc(byte, BYTE))


def _bytes_within(b: Builder, args: Values) -> Value:
    """A bit for each of 64 bytes: set for those from `low` up to `span` above it."""
    above = b.sub(b.read(args[0], _BYTES), _each(b, args[1]))
    return b.bitcast(b.icmp_unsigned("<=", above, _each(b, args[2])), WORD)


def _copy_small(b: Builder, args: Values) -> Value:
    """Copy 64 bytes, capital letters or-ed; which are not ASCII: a bit for each."""
    source = b.read(args[0], _BYTES)
    capital = b.icmp_unsigned("<=", b.sub(source, 65), same(_BYTES, 25))
    small = b.or_(source, _each(b, args[2]))
    b.write(b.select(capital, small, source), args[1])
    return b.bitcast(b.icmp_signed("<", source, same(_BYTES, 0)), WORD)


def _odd(b: Builder, numbers: Value) -> Value:
    """A bit for each of 64 bytes: set for odd ones."""
    return b.bitcast(b.trunc(numbers, ir.VectorType(BIT, 64)), WORD)


def _kinds_of_bytes(b: Builder, args: Values) -> Value:
    """A bit for each of 64 bytes of ASCII: set for those with an odd entry in a table of 128."""
    entries = b.read(args[0], _BYTES)
    if machine.has("avx512vbmi"):  # never called elsewhere: see permutes128
        low, high = (b.chunk(args[1], k, _BYTES) for k in (0, 1))
        entries = b.intrinsic("llvm.x86.avx512.vpermi2var.qi.512", [low, entries, high], _BYTES)
    return _odd(b, entries)


def _choose(b: Builder, args: Values) -> Value:
    """One of two numbers; the compiler is told that a branch would be predicted badly."""
    made = b.select(*args)
    made.set_metadata("unpredictable", b.module.add_metadata([]))
    return made
