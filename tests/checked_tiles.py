"""The words for tiles of sixty-four rows, in Python over checked memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.checked_slices import Memory, _packed

_FLOATS = ("float32", "float64")
_SIZE = {"float32": 4, "float64": 8, "uint8": 1, "uint16": 2}


class Tiles:
    """What the intrinsics `tiles` and `sums` say, one row after the other."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def words(self) -> dict[str, Any]:
        """Every word by name."""
        made: dict[str, Any] = {"rank64_float32": self.rank, "seen64": self.seen, "test_bytes": 8}
        made["turn64_float64_float64_narrowed"] = partial(self.turn, "float64", "float64", True)
        for given in _FLOATS:
            for held in _FLOATS:
                made[f"turn64_{given}_{held}"] = partial(self.turn, given, held, False)
            made |= {
                f"above64_{given}{more}": partial(self.above, given) for more in ("", "_bytes")
            }
            for leaf in ("uint8", "uint16"):
                made[f"sum64_{leaf}_{given}"] = partial(self.sum, leaf, given)
                made[f"total64_{leaf}_{given}"] = partial(self.total, leaf, given, 1)
            few = 128 // _SIZE[given]
            made[f"total64_few_{given}"] = partial(self.total, "uint8", given, few)
        return made

    def _at(self, address: Any, count: int, dtype: str, *, write: bool = False) -> Any:
        size = count * np.dtype(dtype).itemsize
        return self._memory.at(int(address), size, write=write).view(dtype)

    def turn(self, given: str, held: str, narrow: bool, *args: Any) -> None:  # noqa: FBT001
        """Eight columns at a time."""
        base, stride, there, width, groups, count, out = (int(each) for each in args)
        for row in range(64):
            where = base + min(row, there - 1) * stride
            for k, start in enumerate(self._at(groups, count, "int64")):
                read = np.zeros(8, given)
                inside = min(8, width - int(start))
                read[:inside] = self._at(where + int(start) * _SIZE[given], inside, given)
                with np.errstate(over="ignore"):
                    read = read.astype("float32") if narrow else read
                    for column, number in enumerate(read.astype(held)):
                        place = out + ((8 * k + column) * 64 + row) * _SIZE[held]
                        self._at(place, 1, held, write=True)[:] = number

    def above(self, held: str, *args: Any) -> None:
        """Which rows fail each node."""
        tile, slots, zeros, count, limits, places, fails, rows = (int(each) for each in args)
        assert 0 < rows <= 64
        start = 0
        for u in range(count):
            where, middle, end = (int(part) for part in self._at(slots + 24 * u, 3, "int64"))
            seen = self._without(tile + where, zeros + u * _SIZE[held], held)
            for k in range(start, end):
                limit = self._at(limits + k * _SIZE[held], 1, held)[0]
                failed = ~(seen <= limit) if k < middle else seen > limit
                place = int(self._at(places + 4 * k, 1, "int32")[0])
                self._at(fails + 8 * place, 1, "uint64", write=True)[:] = _packed(failed)
            start = end

    def _without(self, values: Any, zero: Any, dtype: str) -> Any:
        seen = self._at(values, 64, dtype).copy()
        seen[np.abs(seen) <= self._at(zero, 1, dtype)[0]] = np.nan
        return seen

    def seen(self, values: Any, zero: Any, out: Any) -> None:
        """NaN for what is missing."""
        self._at(out, 64, "float64", write=True)[:] = self._without(values, zero, "float64")

    def rank(self, *args: Any) -> None:
        """Ranks of one byte, with NaN last, and first."""
        values, zero, thresholds, parts, out, times, rows = (int(each) for each in args)
        assert 0 < rows <= 64
        seen = self._without(values, zero, "float32")
        limits = self._at(thresholds, 32 * parts, "float32").reshape(parts, 32)
        assert np.all(np.isinf(limits[:, -1]))
        found = sum(np.searchsorted(part[:31], seen) for part in limits)
        found = np.asarray(found)
        for k in range(times):
            ranks = np.clip(found - 254 * k, 0, 254)
            for side, nan in enumerate((255, 0)):
                into = self._at(out + 128 * k + 64 * side, 64, "uint8", write=True)
                into[:] = np.where(np.isnan(seen), nan, ranks)

    def sum(self, leaf: str, dtype: str, *args: Any) -> None:
        """The leaves' values of each row, side by side."""
        leaves, trees, starts, values, span, base, by, out, stride, there = map(int, args)
        first, size = self._at(starts, trees, "int64"), _SIZE[dtype]
        for row in range(there):
            total = self._at(base, span, dtype).copy()
            for t in range(trees):
                number = self._at(leaves + (64 * t + row) * _SIZE[leaf], 1, leaf)[0]
                where = values + (int(first[t]) + int(number)) * span * size
                total += self._at(where, span, dtype)
            into = self._at(out + row * stride, span, dtype, write=True)
            into[:] = total / self._at(by, 1, dtype)[0]

    def total(self, leaf: str, dtype: str, few: int, *args: Any) -> None:
        """The sum of one output for each row."""
        leaves, trees, starts, values, base, by, out, rows = (int(each) for each in args)
        assert 0 < rows <= 64
        total = np.repeat(self._at(base, 1, dtype), 64)
        for t, start in enumerate(self._at(starts, trees, "int64")):
            where = values + int(start) * _SIZE[dtype]
            self._at(where, few, dtype)
            for row, number in enumerate(self._at(leaves + 64 * t * _SIZE[leaf], 64, leaf)):
                total[row] += self._at(where + int(number) * _SIZE[dtype], 1, dtype)[0]
        self._at(out, 64, dtype, write=True)[:] = total / self._at(by, 1, dtype)[0]
