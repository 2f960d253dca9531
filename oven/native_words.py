"""More of the vocabulary for native code: whole numbers that wrap around, and text.

A part of oven.native, which would be too long with it.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from oven import words_count, words_text

#: Words so short that calling them costs more than their work; they are made part of their callers.
_PARTS = frozenset(
    (
        *("text_width", "text_kind_at", "text_is_plain", "text_word", "text_hash", "text_tag"),
        *("text_group", "text_is", "text_alike", "text_maybe", "text_add"),
        *("text_turn", "text_scramble"),
    )
)


def _wrapping(operation: str) -> Any:
    """Arithmetic of int64 modulo 2**64; numba's own promises LLVM that nothing overflows."""

    def word(typingctx: Any, left: Any, right: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, operation)(*args)

        return types.int64(types.int64, types.int64), code

    return intrinsic(word)


#: Functions of the C library that few programs use.
_RARE = ("acos", "acosh", "asin", "asinh", "atan", "atanh")


@intrinsic
def _seek_slots(typingctx: Any, slots: Any, slot: Any, tag: Any) -> Any:
    """Eight slots at once, xor the tag: the least of them, taken as numbers without a sign."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
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


@intrinsic
def _first_bit(typingctx: Any, mask: Any) -> Any:
    """The number of the lowest bit that is set."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), code


def more_words(words: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The functions of oven.words_text and oven.words_count, over the words so far."""
    texts = {**vars(words_text), **vars(words_count)}
    made = {name: getattr(math, name) for name in _RARE}
    made |= {"fmod": np.fmod, "wrap_add": _wrapping("add"), "wrap_mul": _wrapping("mul")}
    made |= {"seek_slots": _seek_slots, "first_bit_uint64": _first_bit}
    space = {**texts, **words, **made}
    for name, function in texts.items():
        if name.startswith("text_"):
            again = FunctionType(function.__code__, space, name)
            part = {"forceinline": True} if name in _PARTS else {}
            space[name] = made[name] = njit(again, **options, **part)
    return made
