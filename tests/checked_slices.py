"""The words for scoring trees, sixty-four rows at a time, in Python over checked memory."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Memory(Protocol):
    """See tests.checked."""

    def at(self, address: int, size: int, *, write: bool) -> NDArray[np.uint8]:
        """The bytes at an address, if they may be used so."""


class Slices:
    """What oven.compiler.intrinsics.slices says, one node and one row after the other."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def words(self) -> dict[str, Any]:
        """Every word by name."""
        made: dict[str, Any] = {
            "rank64": self.rank,
            "fails64": self.fail,
            "member64": self.member,
            "bytes64": self.spread,
        }
        made |= {f"leaf{width}": partial(self.leaf, width) for width in (32, 64)}
        made["rank_alone"] = self.rank_alone
        made |= dict.fromkeys(("permutes128", "bit_masks", "wide_registers"), 1)
        made["leaves64"] = self.constants
        for name, test in (
            ("split64", self._failed),
            ("split64_known", self._known),
            ("split64_tested", self._known),
        ):
            made[f"{name}_uint8"] = partial(self.choose, test)
            made[f"{name}_uint16"] = partial(self.split, test, "uint16")
            made[f"{name}_masks"] = partial(self.split, test, "uint8")
        for leaf in ("uint8", "uint16"):
            made |= {f"add64_{leaf}_{k}": partial(self.add, leaf, k) for k in _FLOATS}
            made |= {f"fold64_{leaf}_{k}": partial(self.fold, leaf, k) for k in _FLOATS}
        return made

    def _at(self, address: Any, count: int, dtype: str, *, write: bool = False) -> Any:
        size = count * np.dtype(dtype).itemsize
        return self._memory.at(int(address), size, write=write).view(dtype)

    def _fields(self, nodes: Any, k: int) -> list[int]:
        return [int(field) for field in self._at(int(nodes) + 8 * k, 4, "uint16")]

    def _failed(self, ranks: Any, nodes: Any, k: int) -> Any:
        slot, rank, _, _ = self._fields(nodes, k)
        assert rank >> 8 == (rank + 1) & 255 ^ 128
        return self._at(int(ranks) + 64 * slot, 64, "uint8") > rank & 255

    def _known(self, fails: Any, nodes: Any, k: int) -> Any:
        return _opened(self._at(int(fails) + 8 * k, 1, "uint64"))

    def rank(
        self, values: Any, thresholds: Any, power: Any, out: Any, times: Any, rows: Any
    ) -> None:
        """Ranks of one byte, with NaN last, and first."""
        known = self._at(values, 64, "float64")
        assert 0 < rows <= 64
        where, size = int(thresholds), (1 << int(power)) - 1
        assert np.all(self._at(where + 8 * size, 3, "float64") == np.inf)
        limits, step = self._at(where, size, "float64"), (size + 1) // 16
        pivots = self._at(where - 128, 15, "float64")
        np.testing.assert_array_equal(pivots, limits[step - 1 : 15 * step : step])
        found = np.searchsorted(limits, known)
        for k in range(int(times)):
            ranks = np.clip(found - 254 * k, 0, 254)
            for side, nan in enumerate((255, 0)):
                into = self._at(int(out) + 128 * k + 64 * side, 64, "uint8", write=True)
                into[:] = np.where(np.isnan(known), nan, ranks)

    def rank_alone(self, value: Any, thresholds: Any, power: Any) -> int:
        """How many thresholds one value exceeds."""
        self._at(int(thresholds) - 128, 16, "float64")
        limits = self._at(thresholds, (1 << int(power)) + 2, "float64")
        return int(np.searchsorted(limits, value))

    def fail(self, nodes: Any, count: Any, ranks: Any, fails: Any) -> None:
        """Which rows fail each node."""
        for k in range(int(count)):
            into = self._at(int(fails) + 8 * self._fields(nodes, k)[2], 1, "uint64", write=True)
            into[:] = _packed(self._failed(ranks, nodes, k))

    def constants(self, memory: Any, count: Any) -> None:
        """A vector of the number of each leaf."""
        for k in range(int(count)):
            self._at(int(memory) + 64 * k, 64, "uint8", write=True)[:] = k

    def choose(self, test: Any, *args: Any) -> None:
        """Choose leaves from the deepest nodes of some trees to their roots."""
        nodes, count, known, work, out, roots, trees, rows = (int(each) for each in args)
        assert 0 < rows <= 64
        for k in reversed(range(int(count))):
            _, _, left, right = self._fields(nodes, k)
            sides = (self._at(int(work) + 8 * side, 64, "uint8") for side in (right, left))
            into = self._at(int(work) + 64 * (256 + k), 64, "uint8", write=True)
            into[:] = np.where(test(known, nodes, k), *sides)
        for tree, root in enumerate(self._at(roots, int(trees), "int64")):
            leaves = self._at(int(work) + 8 * int(root), 64, "uint8")
            self._at(int(out) + 64 * tree, 64, "uint8", write=True)[:] = leaves

    def split(
        self, test: Any, leaf: str, nodes: Any, count: Any, known: Any, masks: Any, out: Any
    ) -> None:
        """Send the rows down a tree."""
        self._at(masks, 1, "uint64", write=True)[:] = 2**64 - 1
        leaves = np.zeros(64, leaf)
        for k in range(int(count)):
            _, _, place, passed = self._fields(nodes, k)
            here = _opened(self._at(int(masks) + 8 * place, 1, "uint64"))
            fails = test(known, nodes, k)
            for side, rows in enumerate((here & ~fails, here & fails)):
                child = int(masks) + 16 * k + 8 + 8 * side
                self._at(child, 1, "uint64", write=True)[:] = _packed(rows)
            leaves[here & fails] += np.dtype(leaf).type(passed)
        self._at(out, 64, leaf, write=True)[:] = leaves

    def fold(self, leaf: str, dtype: str, *args: Any) -> None:
        """The values of the leaves of some trees to each row's sum."""
        leaves, trees, starts, values, sums, rows = (int(each) for each in args)
        far, size = 64 * np.dtype(leaf).itemsize, np.dtype(dtype).itemsize
        for tree, start in enumerate(self._at(starts, int(trees), "int64")):
            where = int(values) + int(start) * size
            self.add(leaf, dtype, int(leaves) + far * tree, where, 1, sums, rows)

    def add(
        self, leaf: str, dtype: str, leaves: Any, values: Any, span: Any, sums: Any, rows: Any
    ) -> None:
        """The value of its leaf to each row's sum."""
        assert 0 < rows <= 64
        size = np.dtype(dtype).itemsize
        total = self._at(sums, 64, dtype, write=True)
        for row, number in enumerate(self._at(leaves, 64, leaf)):
            place = int(values) + int(number) * int(span) * size
            total[row] += self._at(place, 1, dtype)[0]

    def member(self, codes: Any, members: Any) -> int:
        """Which codes are among the members."""
        bits = [int(members) >> int(code) & 1 for code in self._at(codes, 64, "uint8")]
        return sum(bit << row for row, bit in enumerate(bits))

    def spread(self, rows: Any, out: Any) -> None:
        """A byte for each row."""
        self._at(out, 64, "uint8", write=True)[:] = _opened(np.uint64(rows))

    def leaf(self, width: int, nodes: Any, masks: Any, ranks: Any, failed: Any) -> int:
        """The leftmost leaf that is still possible."""
        kind = f"uint{width}"
        slots = self._at(nodes, width, "uint8")
        limits = self._at(int(nodes) + width, width, "uint8")
        table, kept = self._at(ranks, 128, "uint8"), self._at(masks, width, kind)
        left = 2**width - 1
        for node in range(width):
            if table[slots[node]] > limits[node] or int(failed) >> node & 1:
                left &= int(kept[node])
        return int(left & -left).bit_length() - 1


_FLOATS = ("float32", "float64")


def _packed(rows: Any) -> Any:
    return np.packbits(rows, bitorder="little").view(np.uint64)


def _opened(mask: Any) -> Any:
    return np.unpackbits(mask.view(np.uint8), bitorder="little").astype(bool)
