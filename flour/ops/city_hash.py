"""Hashes of values: CatBoost's, and that of ONNX, which is MurmurHash3.

CatBoost hashes categories: the lower half of CityHash64 (version 1) of a string's bytes.
MurmurHash3 is of each value by itself: of a string's UTF-8 bytes, of a number's own bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flour.core.check import expect
from flour.core.emission import Emitter, RowValue
from flour.core.errors import InputError, ParameterError
from flour.core.native import columnwise
from flour.core.op import Columns, Op
from flour.core.types import FLOATS, Category, Scalar, Type, Vector
from flour.core.words import Number, Numbers, refuse, string, unpaired, wrap_mul
from flour.strings.hashing import murmur3

# Numbers have a sign here, as those of native code have.
_K0 = 0xC3A5C85C97CB3127 - 2**64
_K1 = 0xB492B66FBE98F273 - 2**64
_K2 = 0x9AE16A3B2F90404F - 2**64
_K3 = 0xC949D7C7509E6557 - 2**64
_MIX = 0x9DDFEA08EB382D69 - 2**64
_AXES = ("row", "column")


class CityHash(Op, refuses=True, method=""):
    """The hash that CatBoost has for each string, in 32 bits with a sign; none may be missing."""

    def infer(self, x: Type) -> Vector | Scalar:
        fine = isinstance(x, Vector | Scalar | Category) and x.dtype == "string"
        expect(fine, f"city_hash needs strings, got {x}")
        return Vector(x.width, "int64") if isinstance(x, Vector) else Scalar("int64")

    def reference(self, x: Columns) -> Columns:
        codes = np.empty(x.shape, np.int64)
        for where, value in np.ndenumerate(x):
            try:
                codes[where] = city_hash(value)
            except ValueError:
                raise InputError(
                    "this is no category",
                    where=", ".join(f"{what} {i}" for what, i in zip(_AXES, where, strict=False)),
                    found=repr(value)[:40],
                    hint="CatBoost refuses it, too: fill in a string, such as 'nan'",
                ) from None
        return codes

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        return columnwise(e, hash_of_column, x, dtype="int64")


def hash_of_column(cell: Number, _: int) -> Number:
    """The hash of a column's string."""
    return city_hash(cell)


def city_hash(cell: Number) -> Number:
    """The hash of a string: the lower 32 bits, with a sign."""
    text, length = string(cell)
    if length < 0 or unpaired(text, length):
        refuse()
    code = _K2
    if length > 64:
        code = _long(text, length)
    elif length > 32:
        code = _to_64(text, length)
    elif length > 16:
        code = _to_32(text, length)
    elif length > 8:
        first, last = _eight(text, 0), _eight(text, length - 8)
        code = _mixed(first, _turned(last + length, length)) ^ last
    elif length >= 4:
        code = _mixed(length + (_four(text, 0) << 3), _four(text, length - 4))
    elif length > 0:
        first = text[0] + (text[length >> 1] << 8)
        last = length + (text[length - 1] << 2)
        code = wrap_mul(_shifted(wrap_mul(first, _K2) ^ wrap_mul(last, _K3)), _K2)
    return ((code & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def _to_32(text: Numbers, length: int) -> Number:
    a, b = wrap_mul(_eight(text, 0), _K1), _eight(text, 8)
    c, d = wrap_mul(_eight(text, length - 8), _K2), wrap_mul(_eight(text, length - 16), _K0)
    return _mixed(_turned(a - b, 43) + _turned(c, 30) + d, a + _turned(b ^ _K3, 20) - c + length)


def _to_64(text: Numbers, length: int) -> Number:
    last = _eight(text, length - 16)
    v = _half(text, 0, _eight(text, 24), wrap_mul(length + last, _K0))
    w = _half(text, length - 32, _eight(text, length - 8), _eight(text, 16))
    code = wrap_mul(v.first + w.second, _K2) + wrap_mul(w.first + v.second, _K0)
    return wrap_mul(_shifted(wrap_mul(_shifted(code), _K0) + v.second), _K2)


class Two(NamedTuple):
    """Sixteen bytes of state."""

    first: Number
    second: Number


def _half(text: Numbers, start: int, z: Number, more: Number) -> Two:
    """The two sums of one end of a text of up to 64 bytes."""
    a = _eight(text, start) + more
    b, c = _turned(a + z, 52), _turned(a, 37)
    d = a + _eight(text, start + 8)
    end = d + _eight(text, start + 16)
    return Two(end + z, b + _turned(end, 31) + c + _turned(d, 7))


def _long(text: Numbers, length: int) -> Number:
    """The hash of more than 64 bytes: 64 at a time, the last ones first."""
    x, y = _eight(text, 0), _eight(text, length - 16) ^ _K1
    z = _eight(text, length - 56) ^ _K0
    v = _weak(text, length - 64, length, y)
    w = _weak(text, length - 32, wrap_mul(length, _K1), _K0)
    v1, v2, w1, w2 = v.first, v.second, w.first, w.second
    z = z + wrap_mul(_shifted(v2), _K1)
    x = wrap_mul(_turned(z + x, 39), _K1)
    y = wrap_mul(_turned(y, 33), _K1)
    for block in range((length - 1) >> 6):
        s = block << 6
        new = wrap_mul(_turned(x + y + v1 + _eight(text, s + 16), 37), _K1) ^ w2
        y = wrap_mul(_turned(y + v2 + _eight(text, s + 48), 42), _K1) ^ v1
        x = _turned(z ^ w1, 33)
        z = new
        one = _weak(text, s, wrap_mul(v2, _K1), z + w1)
        other = _weak(text, s + 32, x + w2, y)
        v1, v2, w1, w2 = one.first, one.second, other.first, other.second
    low = _mixed(v1, w1) + wrap_mul(_shifted(y), _K1) + z
    return _mixed(low, _mixed(v2, w2) + x)


def _weak(text: Numbers, start: int, a: Number, b: Number) -> Two:
    """32 bytes mixed into two numbers."""
    z, first = _eight(text, start + 24), a + _eight(text, start)
    second = _turned(b + first + z, 21)
    most = first + _eight(text, start + 8) + _eight(text, start + 16)
    return Two(most + z, second + _turned(most, 44) + first)


def _mixed(u: Number, v: Number) -> Number:
    """Two numbers hashed to one."""
    a = wrap_mul(u ^ v, _MIX)
    b = wrap_mul(v ^ _shifted(a), _MIX)
    return wrap_mul(_shifted(b), _MIX)


def _shifted(value: Number) -> Number:
    """The number, its upper bits mixed into the lower ones."""
    return value ^ ((value >> 47) & 0x1FFFF)


def _turned(value: Number, by: int) -> Number:
    """The bits turned to the right, by 7 to 57 places."""
    return wrap_mul(value, 1 << (64 - by)) | ((value >> by) & ((1 << (64 - by)) - 1))


def _four(text: Numbers, at: int) -> Number:
    return text[at] + (text[at + 1] << 8) + (text[at + 2] << 16) + (text[at + 3] << 24)


def _eight(text: Numbers, at: int) -> Number:
    """Eight bytes as one number, the lowest first."""
    return _four(text, at) + wrap_mul(_four(text, at + 4), 1 << 32)


_HALF = (1 << 32) - 1
_KINDS = ("string", "int32", "uint32", "int64", "uint64", *FLOATS)


class Murmur(Op, method=""):
    """The 32-bit MurmurHash3 of each value from a seed, with a sign unless `positive`."""

    seed: int = 0
    positive: bool = True

    def check(self) -> None:
        if not 0 <= self.seed <= _HALF:
            raise ParameterError("a seed has 32 bits and no sign", found=str(self.seed))

    def infer(self, x: Type) -> Vector | Scalar:
        fine = isinstance(x, Vector | Scalar) and x.dtype in _KINDS
        expect(fine, f"murmur needs strings, or numbers of four or eight bytes, got {x}")
        dtype = self._result_dtype
        return Vector(x.width, dtype) if isinstance(x, Vector) else Scalar(dtype)

    @property
    def _result_dtype(self) -> str:
        return "uint32" if self.positive else "int32"

    def reference(self, x: Columns) -> Columns:
        text = x.dtype.kind not in "iuf"
        codes = [
            murmur3(str(v).encode() if text else v.tobytes(), self.seed) for v in x.reshape(-1)
        ]
        return np.array(codes, np.int64).astype(self._result_dtype).reshape(x.shape)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        hashed = _text if x.dtype == "string" else _number

        def one(_: str, value: str) -> str:
            code = hashed(e, value, x.dtype, e.size(self.seed))
            return e.cast(code, "int64", self._result_dtype)

        return e.map(one, x, dtype=self._result_dtype)


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
    e.refuse(f"{size} < 0 or text_surrogate({where}, {size})")
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
