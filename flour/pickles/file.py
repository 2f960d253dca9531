"""A pickle or a file of joblib: its compression, its end, and what it holds."""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Any

from flour.core.errors import ImportRefused
from flour.pickles.machine import Machine
from flour.pickles.standins import Damaged
from flour.pickles.world import World

#: How many times as large as the file its contents may be, and at least so many bytes.
_RATIO, _AT_LEAST = 200, 1 << 28
_WRONG = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    *(MemoryError, RecursionError, struct.error),
)


def read_pickle(data: bytes, where: str | None = None, met: Callable[[str], object] = str) -> Any:
    """Read the object of a file; nothing in the file is run, and no module is imported.

    `met` is called with the name of each module that the file names.
    """
    machine = None
    try:
        raw = unpacked(data)
        machine = Machine(raw, World(len(raw), met))
        return machine.run()
    except _WRONG as problem:
        at = f" at byte {machine.at}" if machine else ""
        said = str(problem) if isinstance(problem, Damaged) else type(problem).__name__
        raise ImportRefused(
            "this pickle cannot be read",
            where=where,
            found=f"{said}{at}"[:200],
            hint="it is damaged, or no pickle: write it again with pickle or joblib",
        ) from problem


def unpacked(data: bytes) -> bytes:
    """The contents of a file that joblib has compressed; others as they are."""
    limit = max(_RATIO * len(data), _AT_LEAST)
    for magic, begin in _PACKED.items():
        if data.startswith(magic):
            return _unpacked(data, begin, limit)
    return data


def _unpacked(data: bytes, begin: Callable[[], Any], limit: int) -> bytes:
    parts, size, stream = [], 0, begin()
    while data:
        try:
            part = stream.decompress(data, limit + 1 - size)
        except (OSError, zlib.error, lzma.LZMAError, EOFError) as problem:
            raise Damaged(f"its compression is damaged: {problem}") from problem
        parts.append(part)
        size += len(part)
        if size > limit:
            raise Damaged(f"its contents are more than {limit:,} bytes")
        if not stream.eof:
            data = getattr(stream, "unconsumed_tail", b"")
            if not data:
                raise Damaged("the file ends within its compression")
            continue
        data, stream = stream.unused_data, begin()
    return b"".join(parts)


def _lz4() -> Any:
    try:
        from lz4.frame import (  # type: ignore[import-not-found,unused-ignore]  # it is optional
            LZ4FrameDecompressor,
        )
    except ImportError as problem:
        raise ImportRefused(
            "this file is compressed by LZ4", hint="pip install lz4, or compress it by zlib"
        ) from problem
    return LZ4FrameDecompressor()


_PACKED: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(31),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ": lambda: lzma.LZMADecompressor(memlimit=1 << 28),
    b"\x5d\0\0": lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=1 << 28),
    b"\x04\x22\x4d\x18": _lz4,
    b"x\x01": zlib.decompressobj,
    b"x\x5e": zlib.decompressobj,
    b"x\x9c": zlib.decompressobj,
    b"x\xda": zlib.decompressobj,
}
