"""A pickle, a file of joblib or one of skops: its compression, its end, and what it holds."""

from __future__ import annotations

import bz2
import lzma
import struct
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from flour.core.errors import ImportRefused
from flour.pickles.machine import Machine
from flour.pickles.skops import Skops
from flour.pickles.standins import Damaged
from flour.pickles.world import World

#: How many times as large as the file its contents may be, and at least so many bytes.
_RATIO, _AT_LEAST = 200, 1 << 28
#: How many bytes are unpacked at once, at least.
_PIECE = 1 << 24
_WRONG = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    *(MemoryError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error, OSError, EOFError),
)


def read_pickle(data: bytes, where: str | None = None, met: Callable[[str], object] = str) -> Any:
    """Read the object of a file; nothing in the file is run, and no module is imported.

    `met` is called with the name of each module that the file names.
    """
    machine = None
    try:
        if data.startswith(b"PK"):
            limit = max(_RATIO * len(data), _AT_LEAST)
            world = World(len(data), met)
            return world.whole(Skops(data, world, limit).run())
        raw = unpacked(data)
        machine = Machine(raw, World(len(raw), met))
        return machine.world.whole(machine.run())
    except _WRONG as problem:
        at = f" at byte {machine.at}" if machine else ""
        said = str(problem) if isinstance(problem, Damaged) else type(problem).__name__
        raise ImportRefused(
            "this pickle cannot be read",
            where=where,
            found=f"{said}{at}"[:200],
            hint="it is damaged, or no pickle: write it again with pickle, joblib or skops",
        ) from problem


def is_pickle(head: bytes) -> bool:
    """Return whether a file that begins so is a pickle of protocol 2 or later, or a packed one."""
    for magic, begin in _PACKED.items():
        if head.startswith(magic):
            with suppress(OSError, zlib.error, lzma.LZMAError, EOFError, ImportRefused):
                head = begin().decompress(head, 2)
            break
    return head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")


def parted(path: Path) -> tuple[Path, str]:
    """The file, and the key of a model in it, of a path such as "models.pkl#model"."""
    name, _, part = path.name.rpartition("#")
    return (path, "") if not name or path.exists() else (path.with_name(name), part)


def unpacked(data: bytes) -> bytes:
    """The contents of a file that joblib has compressed; others as they are."""
    limit = max(_RATIO * len(data), _AT_LEAST)
    for magic, begin in _PACKED.items():
        if data.startswith(magic):
            return _unpacked(data, begin, limit)
    return data


def _unpacked(data: bytes, begin: Callable[[], Any], limit: int) -> bytes:
    parts, size = [], 0
    for part in _pieces(data, begin, limit):
        if size <= _AT_LEAST < size + len(part):  # what is too much is found before it is kept
            deque(_pieces(data, begin, limit), maxlen=0)
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _pieces(data: bytes, begin: Callable[[], Any], limit: int) -> Iterator[bytes]:
    """The contents in pieces, whose number is bounded: each copies what is left of the file."""
    most, size, stream, more = max(len(data) // 4, _PIECE), 0, begin(), bool(data)
    while more:
        try:
            part = stream.decompress(data, most)
        except (OSError, zlib.error, lzma.LZMAError, EOFError) as problem:
            raise Damaged(f"its compression is damaged: {problem}") from problem
        size += len(part)
        if size > limit:
            raise Damaged(f"its contents are more than {limit:,} bytes")
        yield part
        if stream.eof:
            data, stream = stream.unused_data, begin()
            more = bool(data)
            continue
        data = getattr(stream, "unconsumed_tail", b"")
        if not data and getattr(stream, "needs_input", not part):
            raise Damaged("the file ends within its compression")


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
