"""MurmurHash3 of values, each by itself: of a string's UTF-8 bytes, of a number's own bytes."""

from __future__ import annotations

import numpy as np

from flour.core.check import expect
from flour.core.emission import Emitter, RowValue, ScalarValue
from flour.core.errors import ParameterError
from flour.core.op import Columns, Op
from flour.core.types import FLOATS, Scalar, Type, Vector
from flour.strings.hashing import murmur3

_HALF = (1 << 32) - 1
_KINDS = ("string", "int32", "uint32", "int64", "uint64", *FLOATS)


class Murmur(Op):
    """The 32-bit MurmurHash3 of each value from a seed, with a sign unless `positive`."""

    method = ""
    seed: int = 0
    positive: bool = True

    def check(self) -> None:
        if not 0 <= self.seed <= _HALF:
            raise ParameterError("a seed has 32 bits and no sign", found=str(self.seed))

    def infer(self, x: Type) -> Vector | Scalar:
        fine = isinstance(x, Vector | Scalar) and x.dtype in _KINDS
        expect(fine, f"murmur needs strings, or numbers of four or eight bytes, got {x}")
        return (
            Vector(x.width, self._result_dtype)
            if isinstance(x, Vector)
            else Scalar(self._result_dtype)
        )

    @property
    def _result_dtype(self) -> str:
        return "uint32" if self.positive else "int32"

    def reference(self, x: Columns) -> Columns:
        text = x.dtype.kind not in "iuf"
        codes = [
            murmur3(str(v).encode() if text else v.tobytes(), self.seed) for v in x.reshape(-1)
        ]
        return np.array(codes, np.int64).astype(self._result_dtype).reshape(x.shape)

    def structure(self) -> tuple[object, ...]:
        return (self.positive,)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        hashed = _text if x.dtype == "string" else _number

        def one(value: str) -> str:
            code = hashed(e, value, x.dtype, e.size(self.seed))
            return e.cast(code, "int64", self._result_dtype)

        if isinstance(x, ScalarValue):
            return e.let(one(x.expr), self._result_dtype)
        return e.map(lambda _, value: one(value), x, dtype=self._result_dtype, width=x.width)


def _number(e: Emitter, value: str, dtype: str, seed: str) -> str:
    """The hash of a number's bytes, the lowest first."""
    size = np.dtype(dtype).itemsize
    raw = _bits(e, value, dtype, size) if dtype in FLOATS else value
    whole, code = e.let(f"int64({raw})", "int64").expr, e.var(f"int64({seed})")
    _step(e, code, f"{whole} & {_HALF}")
    if size > 4:
        _step(e, code, f"{whole} >> 32 & {_HALF}")
    return _stirred(e, code, str(size))


def _bits(e: Emitter, value: str, dtype: str, size: int) -> str:
    """A float's bytes as a whole number."""
    buffer = e.scratch(dtype, 1)
    e.store(buffer, "0", value, dtype)
    return e.load(buffer, "0", f"int{8 * size}")


def _text(e: Emitter, value: str, _: str, seed: str) -> str:
    """The hash of a string's bytes; rows without a string are refused, as are halves of pairs."""
    cell, code = e.let(value, "int64").expr, e.var(f"int64({seed})")
    where, size = (e.let(f"ld_int64({cell}, {half})", "int64").expr for half in (0, 1))
    with e.block(f"if {size} < 0 or text_surrogate({where}, {size}):"):
        e.line("return 1")
    position = e.var("int64(0)")
    with e.block(f"while {position} + 4 <= {size}:"):
        _step(e, code, f"peek_int32({where} + {position}, 0) & {_HALF}")
        e.line(f"{position} = {position} + 4")
    with e.block(f"if {position} < {size}:"):
        rest = f"((1 << 8 * ({size} - {position})) - 1)"
        e.line(f"{code} = {code} ^ text_scramble(peek_int32({where} + {position}, 0) & {rest})")
    return _stirred(e, code, size)


def _step(e: Emitter, code: str, block: str) -> None:
    """Mix four bytes into the hash."""
    e.line(f"{code} = {code} ^ text_scramble({block})")
    e.line(f"{code} = (text_turn({code}, 13) * 5 + {0xE6546B64}) & {_HALF}")


def _stirred(e: Emitter, code: str, size: str) -> str:
    """The final mix of the hash."""
    e.line(f"{code} = {code} ^ {size}")
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        e.line(f"{code} = wrap_mul({code} ^ {code} >> {shift}, {factor}) & {_HALF}")
    e.line(f"{code} = {code} ^ {code} >> 16")
    return code
