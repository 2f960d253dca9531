"""Maps of characters as SentencePiece writes them, for tests: a double array and replacements."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np


def precompiled(changes: Mapping[str, str]) -> dict[str, str]:
    """The normaliser of a tokenizer.json that makes these changes."""
    raw = base64.b64encode(charsmap(changes)).decode()
    return {"type": "Precompiled", "precompiled_charsmap": raw}


def charsmap(changes: Mapping[str, str]) -> bytes:
    """The bytes of a map."""
    texts = b"".join(text.encode() + b"\0" for text in changes.values())
    tree: dict[int, Any] = {}
    start = 0
    for key, text in changes.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0], start = start, start + len(text.encode()) + 1
    units = _Units()
    units.write(0, 0, tree)
    numbers = [4 * units.end, *(units.found.get(place, 0) for place in range(units.end))]
    return np.array(numbers, "<u4").tobytes() + texts


class _Units:
    """The units of a double array: each node takes the next place where all its bytes are free."""

    def __init__(self) -> None:
        self.found: dict[int, int] = {0: 0}
        self.base, self.end = 0, 256

    def write(self, place: int, label: int, node: dict[int, Any]) -> None:
        """Write a node, whose unit is at this place, and all below it."""
        self.base += 1
        while any(self.base ^ byte in self.found for byte in node):
            self.base += 1
        base = self.base
        self.end = max(self.end, (base | 255) + 1)
        self.found[place] = (place ^ base) << 10 | (0 in node) << 8 | label
        self.found |= {base ^ byte: 0 if byte else 1 << 31 | below for byte, below in node.items()}
        for byte, below in node.items():
            if byte:
                self.write(base ^ byte, byte, below)
