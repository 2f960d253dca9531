"""A reader of UBJSON (the binary JSON that XGBoost writes), for files from anyone.

Every length is checked against the rest of the file before memory is allocated for it, so a
damaged file ends in an error, not in lack of memory.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_NUMBERS = {
    "i": ">i1",
    "U": ">u1",
    "I": ">i2",
    "u": ">u2",
    "l": ">i4",
    "m": ">u4",
    "L": ">i8",
    "M": ">u8",
    "d": ">f4",
    "D": ">f8",
}
_CONSTANTS = {"Z": None, "T": True, "F": False}
_MAX_DEPTH = 64


def loads(raw: bytes) -> Any:
    """The value in these bytes; ValueError for anything that is not exactly one value."""
    reader = _UbjsonReader(raw)
    try:
        value = reader.value(reader.mark(), 0)
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise ValueError(f"damaged UBJSON at byte {reader.at}: {problem}") from None
    return value


class _UbjsonReader:
    """Reads values one after the other."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def mark(self) -> str:
        """The next type mark ("N" marks nothing)."""
        while True:
            mark = chr(self.take(1)[0])
            if mark != "N":
                return mark

    def peek(self) -> str:
        """The next byte as a mark, not yet taken."""
        return chr(self.raw[self.at])

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count < 0 or self.at + count > len(self.raw):
            raise ValueError(f"damaged UBJSON: {count} bytes wanted at byte {self.at}")
        self.at += count
        return self.raw[self.at - count : self.at]

    def number(self, mark: str) -> Any:
        """A number of this type."""
        kind = np.dtype(_NUMBERS[mark])
        return np.frombuffer(self.take(kind.itemsize), kind)[0].item()

    def length(self) -> int:
        """A count: any kind of whole number."""
        mark = self.mark()
        if mark not in "iUIulmLM":
            raise ValueError(f"damaged UBJSON: {mark!r} is no length")
        return int(self.number(mark))

    def text(self) -> str:
        """A string."""
        return self.take(self.length()).decode("utf-8")

    def value(self, mark: str, depth: int) -> Any:
        """A value of this type."""
        if depth > _MAX_DEPTH:
            raise ValueError("damaged UBJSON: nested too deeply")
        if mark in _CONSTANTS:
            return _CONSTANTS[mark]
        if mark in _NUMBERS:
            return self.number(mark)
        if mark in "SH":
            return self.text()
        if mark == "C":
            return chr(self.take(1)[0])
        if mark == "[":
            return self.array(depth)
        if mark == "{":
            return self.object(depth)
        raise ValueError(f"damaged UBJSON: unknown type {mark!r} at byte {self.at - 1}")

    def head(self) -> tuple[str | None, int | None]:
        """The optional type and count ahead of a container's items."""
        kind = count = None
        if self.peek() == "$":
            self.take(1)
            kind = self.mark()
        if self.peek() == "#":
            self.take(1)
            count = self.length()
        if kind is not None and count is None:
            raise ValueError("damaged UBJSON: a typed container needs a count")
        return kind, count

    def array(self, depth: int) -> Any:
        """A list; one of numbers of one type is an array."""
        kind, count = self.head()
        if kind in _NUMBERS and count is not None:
            dtype = np.dtype(_NUMBERS[kind])
            return np.frombuffer(self.take(count * dtype.itemsize), dtype).astype(
                dtype.newbyteorder("=")
            )
        items: list[Any] = []
        while not self.ended("]", len(items), count):
            items.append(self.value(kind or self.mark(), depth + 1))
        return items

    def object(self, depth: int) -> dict[str, Any]:
        """A dict."""
        kind, count = self.head()
        fields: dict[str, Any] = {}
        items = 0
        while not self.ended("}", items, count):
            key = self.text()
            fields[key] = self.value(kind or self.mark(), depth + 1)
            items += 1
        return fields

    def ended(self, sign: str, items: int, count: int | None) -> bool:
        """True if a container has all its items."""
        if count is not None:
            if count > len(self.raw):
                raise ValueError("damaged UBJSON: more items than bytes")
            return items >= count
        if self.peek() != sign:
            return False
        self.take(1)
        return True
