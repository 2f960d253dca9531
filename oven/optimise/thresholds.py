"""Where, among all floats, does f(x) stop being at most t? Found by bisection over their order.

Floats of one width are ordered like whole numbers once the sign bit is taken care of, so that
bisection needs 64 steps (32 for float32) to find the last of them that passes, for as many
functions and limits at once as there are columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Flags = NDArray[np.bool_]
#: Whether each of these numbers passes its test; must not turn true again once it is false.
Test = Callable[[Floats], Flags]

_BITS = {"float64": np.int64, "float32": np.int32}


def key(x: Floats) -> NDArray[np.int64]:
    """The place of each float in their order; NaN has none."""
    bits = np.asarray(x).view(_BITS[x.dtype.name])
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits).astype(np.int64)


def at_key(places: NDArray[np.int64], dtype: str) -> Floats:
    """The float at each place."""
    bits = places.astype(_BITS[dtype])
    made: Floats = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits).view(dtype)
    return made


def last_passing(test: Test, count: int, dtype: str) -> Floats | None:
    """The last float that passes each of `count` tests; None where one fails for all of them.

    The answer is checked against its neighbours on both sides: if a test is not what it should be
    (it passes again further on) there is no answer either.
    """
    low = np.full(count, -np.inf, dtype)
    high = np.full(count, np.inf, dtype)
    everywhere = test(high)
    if not np.all(test(low)):
        return None
    below, above = key(low), key(high)
    # The floor of the mean, without the overflow of a sum (or of a difference, to see the end).
    while np.any((middle := (below & above) + ((below ^ above) >> 1)) != below):
        passed = test(at_key(middle, dtype))
        below = np.where(passed, middle, below)
        above = np.where(passed, above, middle)
    found = np.where(everywhere, high, at_key(below, dtype))
    # Adding 0.0 makes -0.0 the 0.0 it is equal to.
    return found + np.asarray(0.0, dtype) if _proved(test, found) else None


def _proved(test: Test, found: Floats) -> bool:
    """Whether the answer passes, what follows it fails, and so a few floats further out."""
    inside, outside = found, found
    with np.errstate(all="ignore"):
        for _ in range(4):
            if not np.all(test(inside)):
                return False
            inside = np.nextafter(inside, np.asarray(-np.inf, found.dtype))
        for _ in range(4):
            outside = np.nextafter(outside, np.asarray(np.inf, found.dtype))
            if np.any(test(outside) & (found < np.inf)):
                return False
    return True


def after(x: Floats) -> Floats:
    """The next float above each of these."""
    made: Floats = np.nextafter(x, np.asarray(np.inf, x.dtype))
    return made
