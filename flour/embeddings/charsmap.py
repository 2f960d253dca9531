"""The `precompiled_charsmap` of SentencePiece, read as data: a trie of keys and what they become.

It is the size of the trie, the trie as a double array of darts-clone, and the replacements with a
NUL behind each. A unit of the trie is 32 bits: the byte that leads to it, whether a key ends there,
and where what follows is.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np
from numpy.typing import NDArray

from flour.embeddings.json_part import JsonPart
from flour.strings.charsmap import LONG

#: The byte that leads to a unit leaves the highest bit to values.
_LABEL = 0x800000FF
_ENDS = 1 << 8


def read_charsmap(part: JsonPart) -> str:
    """The keys that count and their replacements, a NUL behind each."""
    try:
        raw = base64.b64decode(part.text(), validate=True)
        count = int.from_bytes(raw[:4], "little") // 4
        units = np.frombuffer(raw, "<u4", count, 4).astype(np.int64)
        replacements = raw[4 + 4 * count :]
        replacements.decode()
        found = _keys(units)
        ends = {at: replacements.find(b"\0", at) for at in found.values()}
        texts = {at: replacements[at : end if end >= 0 else None] for at, end in ends.items()}
        good = max(found.values(), default=0) <= len(replacements)
        parts = [(key.decode(), texts[at].decode()) for key, at in found.items()]
    except (binascii.Error, ValueError, IndexError):
        good = False
    if not good:
        raise part.wrong("a map of characters is a trie of whole characters and their texts")
    return "".join(f"{key}\0{text}\0" for key, text in parts)


def _keys(units: NDArray[np.int64]) -> dict[bytes, int]:
    """The keys without another at their start, and where their replacements begin."""
    found, labels, seen = dict[bytes, int](), np.arange(1, 256), 0
    waiting = [(b"", _next(0, int(units[0])))]
    while waiting:
        key, place = waiting.pop()
        seen += 1
        if seen > len(units):
            raise ValueError("a unit is reached twice")
        inside = labels[(place ^ labels) < len(units)]
        for label in inside[(units[place ^ inside] & _LABEL) == inside].tolist():
            unit = int(units[place ^ label])
            longer, then = key + bytes([label]), _next(place ^ label, unit)
            if unit & _ENDS:
                found[longer] = int(units[then]) & 0x7FFFFFFF
            elif len(longer) < LONG - 1:
                waiting.append((longer, then))
    return found


def _next(place: int, unit: int) -> int:
    """Where the units that follow one are, each at its label."""
    return place ^ (unit >> 10 << ((unit & 1 << 9) >> 6))
