"""More of the vocabulary for native code: whole numbers that wrap around, and text.

A part of oven.native, which would be too long with it.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from oven import words_count, words_text


def _wrapping(operation: str) -> Any:
    """Arithmetic of int64 modulo 2**64; numba's own promises LLVM that nothing overflows."""

    def word(typingctx: Any, left: Any, right: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, operation)(*args)

        return types.int64(types.int64, types.int64), code

    return intrinsic(word)


#: Functions of the C library that few programs use.
_RARE = ("acos", "acosh", "asin", "asinh", "atan", "atanh")


def more_words(words: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The functions of oven.words_text and oven.words_count, over the words so far."""
    texts = {**vars(words_text), **vars(words_count)}
    made = {name: getattr(math, name) for name in _RARE}
    made |= {"fmod": np.fmod, "wrap_add": _wrapping("add"), "wrap_mul": _wrapping("mul")}
    space = {**texts, **words, **made}
    for name, function in texts.items():
        if name.startswith("text_"):
            again = FunctionType(function.__code__, space, name)
            space[name] = made[name] = njit(again, **options)
    return made
