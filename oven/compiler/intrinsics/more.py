"""More of the vocabulary for native code: whole numbers that wrap around, and text.

A part of oven.compiler.native, which would be too long with it.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder, Value
from numba import njit, types
from numba.core import cgutils
from numba.core.base import BaseContext
from numba.core.typing import Context, Signature
from numba.extending import intrinsic
from numba.types import Type

from oven.compiler import machine
from oven.compiler.intrinsics import counts, patterns, text
from oven.compiler.intrinsics.slices import Values

#: Words so short that calling them costs more than their work; they are made part of their callers.
_PARTS = frozenset(
    (
        *("text_width", "text_small", "text_kind_at", "text_word", "text_hash", "text_tag"),
        *("text_group", "text_goes_on", "text_is", "text_alike", "text_aim", "text_place"),
        *("text_add", "text_meet"),
        *("text_turn", "text_scramble"),
    )
)


def _wrapping(operation: str) -> Any:
    """Arithmetic of int64 modulo 2**64; numba's own promises LLVM that nothing overflows."""

    def word(typingctx: Context, left: Type, right: Type) -> Any:
        def code(context: BaseContext, builder: IRBuilder, _: Signature, args: Values) -> Value:
            return getattr(builder, operation)(*args)

        return types.int64(types.int64, types.int64), code

    return intrinsic(word)


#: Functions of the C library that few programs use.
_RARE = ("acos", "acosh", "asin", "asinh", "atan", "atanh")


@intrinsic
def _seek_slots(typingctx: Context, slots: Type, slot: Type, tag: Type) -> Any:
    """Eight slots at once, xor the tag: the least of them, taken as numbers without a sign."""

    def code(context: BaseContext, builder: IRBuilder, _: Signature, args: Values) -> Value:
        word = ir.IntType(64)
        group = ir.VectorType(word, 8)
        start = builder.inttoptr(args[0], word.as_pointer())
        where = builder.gep(start, [args[1]], source_etype=word)
        found = builder.load(builder.bitcast(where, group.as_pointer()), align=8, typ=group)
        found.set_metadata("invariant.load", builder.module.add_metadata([]))
        high = builder.shl(args[2], word(32))
        one = builder.insert_element(ir.Constant(group, ir.Undefined), high, ir.IntType(32)(0))
        order = ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)
        every = builder.shuffle_vector(one, ir.Constant(group, ir.Undefined), order)
        least = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(word, [group]), "llvm.vector.reduce.umin.v8i64"
        )
        return builder.call(least, [builder.xor(found, every)])

    return types.int64(types.int64, types.int64, types.int64), code


_BYTES = ir.VectorType(ir.IntType(8), 64)


def _bytes(builder: IRBuilder, where: Value) -> Value:
    """The 64 bytes at an address."""
    start = builder.inttoptr(where, _BYTES.as_pointer())
    return builder.load(start, align=1, typ=_BYTES)


def _each(builder: IRBuilder, byte: Value) -> Value:
    """A byte, 64 times over."""
    none = ir.Constant(_BYTES, ir.Undefined)
    one = builder.insert_element(none, builder.trunc(byte, ir.IntType(8)), ir.IntType(32)(0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
    return builder.shuffle_vector(one, none, order)


@intrinsic
def _bytes_within(typingctx: Context, where: Type, low: Type, span: Type) -> Any:
    """Which of 64 bytes are `low` or up to `span` above it: a bit for each."""

    def code(context: BaseContext, builder: IRBuilder, _: Signature, args: Values) -> Value:
        above = builder.sub(_bytes(builder, args[0]), _each(builder, args[1]))
        found = builder.icmp_unsigned("<=", above, _each(builder, args[2]))
        return builder.bitcast(found, ir.IntType(64))

    return types.int64(types.int64, types.int64, types.int64), code


@intrinsic
def _copy_small(typingctx: Context, where: Type, made: Type, fold: Type) -> Any:
    """Copy 64 bytes, capital letters or-ed; which are not ASCII: a bit for each."""

    def code(context: BaseContext, builder: IRBuilder, _: Signature, args: Values) -> Value:
        found = _bytes(builder, args[0])
        above = builder.sub(found, ir.Constant(_BYTES, [65] * 64))
        capital = builder.icmp_unsigned("<=", above, ir.Constant(_BYTES, [25] * 64))
        small = builder.or_(found, _each(builder, args[2]))
        target = builder.inttoptr(args[1], _BYTES.as_pointer())
        builder.store(builder.select(capital, small, found), target, align=1)
        high = builder.icmp_signed("<", found, ir.Constant(_BYTES, [0] * 64))
        return builder.bitcast(high, ir.IntType(64))

    return types.int64(types.int64, types.int64, types.int64), code


@intrinsic
def _odd_bytes(typingctx: Context, where: Type) -> Any:
    """Which of 64 bytes are odd: a bit for each."""

    def code(context: BaseContext, builder: IRBuilder, _: Signature, args: Values) -> Value:
        odd = builder.trunc(_bytes(builder, args[0]), ir.VectorType(ir.IntType(1), 64))
        return builder.bitcast(odd, ir.IntType(64))

    return types.int64(types.int64), code


@intrinsic
def _kinds_of_bytes(typingctx: Context, where: Type, table: Type) -> Any:
    """Which of 64 bytes of ASCII have an odd entry in a table of 128 bytes: a bit for each."""

    def code(context: BaseContext, builder: IRBuilder, _: Signature, args: Values) -> Value:
        found = _bytes(builder, args[0])
        if machine.has("avx512vbmi"):  # nobody calls it elsewhere: see permutes128
            low, high = (_bytes(builder, builder.add(args[1], ir.IntType(64)(k))) for k in (0, 64))
            name = "llvm.x86.avx512.vpermi2var.qi.512"
            kind = ir.FunctionType(_BYTES, [_BYTES] * 3)
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            found = builder.call(function, [low, found, high])
        odd = builder.trunc(found, ir.VectorType(ir.IntType(1), 64))
        return builder.bitcast(odd, ir.IntType(64))

    return types.int64(types.int64, types.int64), code


@intrinsic
def _first_bit(typingctx: Context, mask: Type) -> Any:
    """The number of the lowest bit that is set."""

    def code(context: BaseContext, builder: IRBuilder, _: Signature, args: Values) -> Value:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), code


@intrinsic
def _count_bits(typingctx: Context, word: Type) -> Any:
    """How many bits are set."""

    def code(context: BaseContext, builder: IRBuilder, _: Signature, args: Values) -> Value:
        return builder.ctpop(args[0])

    return types.int64(types.int64), code


@intrinsic
def _choose(typingctx: Context, condition: Type, yes: Type, no: Type) -> Any:
    """One of two numbers; the compiler is told that a branch would be guessed wrong."""

    def code(context: BaseContext, builder: IRBuilder, _: Signature, args: Values) -> Value:
        made = builder.select(*args)
        made.set_metadata("unpredictable", builder.module.add_metadata([]))
        return made

    return types.int64(types.boolean, types.int64, types.int64), code


@intrinsic
def _fetch(typingctx: Context, where: Type) -> Any:
    """Ask for the line of memory at an address, to be kept in all caches."""

    def code(context: BaseContext, builder: IRBuilder, _: Signature, args: Values) -> Value:
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.inttoptr(args[0], pointer), flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.void(types.int64), code


def more_words(words: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The intrinsics for text and counts, over those so far."""
    texts = {**vars(text), **vars(patterns), **vars(counts)}
    made = {name: getattr(math, name) for name in _RARE}
    made |= {"fmod": np.fmod, "wrap_add": _wrapping("add"), "wrap_mul": _wrapping("mul")}
    made |= {"seek_slots": _seek_slots, "first_bit_uint64": _first_bit}
    made |= {
        "count_bits": _count_bits,
        "fetch": _fetch,
        "choose": _choose,
        "copy_small": _copy_small,
    }
    made |= {"bytes_within": _bytes_within, "odd_bytes": _odd_bytes}
    made["kinds_of_bytes"] = _kinds_of_bytes
    space = {**texts, **words, **made}
    for name, function in texts.items():
        if name.startswith("text_"):
            again = FunctionType(function.__code__, space, name)
            part = {"forceinline": True} if name in _PARTS else {}
            space[name] = made[name] = njit(again, **options, **part)
    return made
