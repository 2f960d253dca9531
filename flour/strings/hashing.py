"""MurmurHash3 (32 bits, x86), the hash behind hashed features: public domain, by A. Appleby."""

from __future__ import annotations

_MASK = 0xFFFFFFFF


def murmur3(data: bytes, seed: int = 0) -> int:
    """The hash of these bytes as a signed 32-bit number."""
    code, whole = seed, len(data) & ~3
    for start in range(0, whole, 4):
        code ^= _scrambled(int.from_bytes(data[start : start + 4], "little"))
        code = (_turned(code, 13) * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        code ^= _scrambled(int.from_bytes(data[whole:], "little"))
    code ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        code = ((code ^ (code >> shift)) * factor) & _MASK
    return code - (1 << 32) if code >> 31 else code


def _scrambled(block: int) -> int:
    return (_turned((block * 0xCC9E2D51) & _MASK, 15) * 0x1B873593) & _MASK


def _turned(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK
