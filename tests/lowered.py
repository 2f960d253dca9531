"""Emitted source run three ways: by our lowering, by numba, and by Python itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from oven.compiler import functions, machine, native, numba_compiler
from tests import checked

Native = Callable[..., int]


def ours(source: str, name: str) -> Native:
    """The function, by our own lowering: what it refuses is a failure here."""
    symbol, text = native.ir_text(*_renamed(source, name, "ours"))
    module = native.optimised(llvm.parse_assembly(text))
    return machine.STAGE(machine.load(_code(module), symbol))


def by_numba(source: str, name: str) -> Native:
    """The function, by numba."""
    return machine.STAGE(numba_address(source, name))


@cache
def numba_address(source: str, name: str) -> int:
    """The address of the function that numba made."""
    text, unique = _renamed(source, name, "numba")
    module = native.optimised(llvm.parse_assembly(numba_compiler.ir_text(text, unique)))
    return machine.load(_code(module), unique)


def _code(module: llvm.ModuleRef) -> bytes:
    return bytes(machine.target_machine().emit_object(module))


def _renamed(source: str, name: str, by: str) -> tuple[str, str]:
    """The source with a name that no other function in the process has."""
    unique = f"{name}_{by}_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    return source.replace(f"def {name}(", f"def {unique}(", 1), unique


def filled(
    function: Native, whole: NDArray[np.int64], floats: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """What the function writes for rows of numbers: the bits of `count` words for each."""
    made = np.zeros((len(whole), count), np.int64)
    function(whole.ctypes.data, floats.ctypes.data, len(whole), made.ctypes.data)
    return made


def by_python(
    source: str, name: str, whole: NDArray[np.int64], floats: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """The same, by Python over memory that is checked."""
    memory = checked.Memory()
    space = checked.vocabulary(memory) | {"bits": functions.bits, "of_bits": functions.of_bits}
    exec(compile(source, name, "exec"), space)
    made = np.zeros((len(whole), count), np.int64)
    places = (memory.add("whole", whole), memory.add("floats", floats))
    into = memory.add("answers", made, writable=True)
    with np.errstate(all="ignore"):
        space[name](*map(checked.Int64, (*places, len(whole), into)))
    return made


def same(found: NDArray[np.int64], wanted: NDArray[np.int64]) -> None:
    """Both have the same bits; only the sign of a NaN is left open."""
    np.testing.assert_array_equal(_plain(found), _plain(wanted))


def _plain(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """The words with one sign for NaN; other bits of NaNs are whole numbers, such as -1."""
    return np.where(words == _NEGATIVE_NAN, _NAN, words)


_NAN = np.float64(np.nan).view(np.int64)
_NEGATIVE_NAN = (-np.float64(np.nan)).view(np.int64)
