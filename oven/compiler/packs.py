"""Packs: the object code of many functions in one file, compiled ahead of time.

A pack holds code for one level of processor (oven.compiler.levels) under the keys of the code
cache. Packs come with the release, and `pretzel warm` writes others for models of one's own. The
index and each function carry a checksum; what is damaged is compiled instead.

    magic, checksum of the index, its size, the index as JSON, then the object code

The index says {"level": name, "compilers": oven.compiler.cache.compilers(), "functions": {key:
[symbol, offset, size, checksum]}, "data": {key: text}}, with offsets from the end of the index.
"data" is what the code cache keeps besides code.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from objectstore import system

_MAGIC = b"PRETZELP"
_HEAD = struct.Struct("<8s16sQ")


#: Stands for the symbol of what is no code.
DATA = ""


class PackedFunction(NamedTuple):
    """A function of a pack; or data, whose symbol is DATA."""

    symbol: str
    code: bytes


class Pack:
    """A pack that is open."""

    def __init__(
        self, path: Path | None, content: mmap.mmap | bytes, index: dict[str, Any]
    ) -> None:
        self.path, self._content = path, content
        self._index: dict[str, list[str | int]] = index["functions"]
        self._data: dict[str, str] = index.get("data", {})
        self._start = _HEAD.size + _HEAD.unpack_from(content)[2]

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def data(self, key: str) -> bytes | None:
        """The data of this key; None if the pack has none."""
        found = self._data.get(key)
        return None if found is None else found.encode()

    def find(self, key: str) -> PackedFunction | None:
        """The function of this key; None if the pack has not got it, `Refused` if it is damaged."""
        entry = self._index.get(key)
        if entry is None:
            return None
        symbol, offset, size, checksum = entry
        start = self._start + int(offset)
        code = self._content[start : start + int(size)]
        if _checksum(code).hex() != checksum:
            raise Refused("a part of it is damaged")
        return PackedFunction(str(symbol), code)


class Refused(Exception):
    """A pack that is not used, and why."""


class Outdated(Refused):
    """A pack of another release."""


def read(path: Path, level: str, compilers: str) -> Pack:
    """Open a pack; `Refused` if it is damaged, of another release, or can be written by others."""
    descriptor = os.open(path, system.READ | system.NO_LINK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < _HEAD.size:
            raise Refused("it is no pack")
        if doubt := system.doubt_of(status):
            raise Refused(doubt)
        content = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        del file
    return opened(content, level, compilers, path)


def opened(
    content: mmap.mmap | bytes, level: str, compilers: str, path: Path | None = None
) -> Pack:
    """The pack of this content, which may be run; `Refused` if it is damaged or foreign."""
    if len(content) < _HEAD.size:
        raise Refused("it is no pack")
    magic, checksum, size = _HEAD.unpack_from(content)
    if magic != _MAGIC:
        raise Refused("it is no pack")
    text = content[_HEAD.size : _HEAD.size + size]
    if len(text) != size or _checksum(text) != checksum:
        raise Refused("it is damaged")
    index = json.loads(text)
    if index["level"] != level:
        raise Refused(f"its code is for {index['level']}")
    if index["compilers"] != compilers:
        raise Outdated("it was made by another release")
    functions = index["functions"].values()
    end = max((int(offset) + int(length) for _, offset, length, _ in functions), default=0)
    if len(content) < _HEAD.size + size + end:
        raise Refused("it is truncated")
    return Pack(path, content, index)


def write(path: Path, level: str, compilers: str, functions: Mapping[str, PackedFunction]) -> None:
    """Write a pack; readers see all of it or nothing."""
    data = {key: each.code.decode() for key, each in functions.items() if each.symbol == DATA}
    code_of = {key: each for key, each in sorted(functions.items()) if key not in data}
    index: dict[str, list[str | int]] = {}
    offset = 0
    for key, (symbol, code) in code_of.items():
        index[key] = [symbol, offset, len(code), _checksum(code).hex()]
        offset += len(code)
    about = {"level": level, "compilers": compilers, "functions": index, "data": data}
    text = json.dumps(about, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(_HEAD.pack(_MAGIC, _checksum(text), len(text)) + text)
            for _, code in code_of.values():
                file.write(code)
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
