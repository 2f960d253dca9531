"""How large the numbers of a node can be, and whether NaN is among them.

Extents say where a check for NaN or infinity is needed behind a step. Magnitudes are told apart by
a few levels: which level holds is one question about fitted numbers, with the same answer for most
models of a structure (see flour/tracing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flour.core.types import INTS

if TYPE_CHECKING:
    from flour.core.node import Node

LARGEST = float(np.finfo(np.float64).max)
#: The largest number that float32 does not round to infinity.
LARGEST_SINGLE = float(np.nextafter(2.0**128 - 2.0**103, 0))
#: Numbers beyond are not expected: docs/15-scikit-learn.md excepts them.
EXPECTED = 1e200
_LEVELS = np.array(
    (
        *(1.0, 1e5, 1e10, 1e15, 1e25, 1e30, 1e34, LARGEST_SINGLE, 1e80, 1e140, 1e210, 1e250),
        *(1e290, LARGEST, np.inf),
    )
)


class Extent(NamedTuple):
    """The numbers that a node may hold: NaN or not, and magnitudes up to `largest`."""

    nan: bool = True
    largest: float = np.inf
    #: They are counts: whole numbers that are not negative.
    counts: bool = False

    @property
    def finite(self) -> bool:
        """Whether every number is finite."""
        return not self.nan and self.largest <= LARGEST


#: Any number, NaN and infinity too.
ANYTHING = Extent()


def extent_of(values: Any) -> Extent:
    """The extent of an array, or of numbers at most this large in magnitude."""
    place = _level(np.max(np.abs(values), initial=0.0))
    if place < len(_LEVELS):
        return Extent(nan=False, largest=float(_LEVELS[place]))
    largest = np.where(values == values, np.abs(values), 0.0)  # noqa: PLR0124 (NaN)
    return Extent(nan=True, largest=float(_LEVELS[_level(np.max(largest))]))


def _level(number: Any) -> int:
    """The place of the first level that is no smaller; there is none for NaN."""
    return int(np.searchsorted(_LEVELS, number))


def union(extents: Sequence[Extent]) -> Extent:
    """The extent of numbers that are in one of these."""
    return Extent(
        any(each.nan for each in extents),
        max((each.largest for each in extents), default=0.0),
        all(each.counts for each in extents),
    )


def extents(
    order: Iterable[Node], checked: Callable[[Node, Extent], Extent] | None = None
) -> dict[Node, Extent]:
    """The extents of nodes, inputs before readers; `checked` may change each before it is used."""
    known: dict[Node, Extent] = {}
    for item in order:
        dtype = getattr(item.type, "dtype", "")
        given = [known[each] for each in item.inputs]
        passes = item.op.moves or item.op.same_values
        if (dtype in INTS or dtype == "bool") and not passes:
            found = Extent(nan=False, largest=1e20, counts=item.op.counting)
        else:
            found = item.op.extent(given, [each.type for each in item.inputs])
        if item.op.name == "Over" and item.inputs[1].op.name == "OneIfTiny" and given[0].finite:
            found = Extent(nan=False, largest=1.0)  # a row over its own length
        if dtype == "float32" and found.largest > LARGEST_SINGLE:
            found = found._replace(largest=np.inf)
        known[item] = checked(item, found) if checked else found
    return known
