"""Calls single intrinsics: each is compiled as a function of whole numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from oven.compiler import machine, native
from oven.errors import CompileError

#: The most values that a function in the vocabulary returns.
_MOST = 2


@cache
def native_word(name: str, count: int) -> Callable[..., int | tuple[int, ...]]:
    """The intrinsic of this name, for `count` whole numbers."""
    given = ", ".join(f"a{place}" for place in range(count))
    one = f"def word_{name}_{count}({given}):\n    return int64({name}({given}))\n"
    two = (
        f"def word_{name}_{count}({given}, into):\n    x, y = {name}({given})\n"
        "    st_int64(into, 0, x)\n    st_int64(into, 1, y)\n    return 0\n"
    )
    try:
        return _loaded(one, f"word_{name}_{count}", count)
    except CompileError:
        call = _loaded(two, f"word_{name}_{count}", count + 1)

    def pair(*arguments: int) -> tuple[int, ...]:
        made = (ctypes.c_int64 * _MOST)()
        call(*arguments, ctypes.addressof(made))
        return tuple(made)

    return pair


def _loaded(source: str, name: str, count: int) -> Callable[..., int]:
    made = native.compile_source(source, name)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * count)
    return kind(machine.load(made.code, made.symbol))


class Words:
    """The vocabulary, to be called."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: native_word(name, len(arguments))(*arguments)
