"""Finds the last float at which f(x) is at most t, by bisection over all floats in order.

Floats of one width are ordered like integers once the sign bit is handled, so bisection needs 64
steps (32 for float32) to find the last float that passes, for all columns at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Flags = NDArray[np.bool_]
#: True if each of these numbers passes its test; must stay false once it is false.
Test = Callable[[Floats], Flags]

_BITS = {"float64": np.int64, "float32": np.int32}


def key(x: Floats) -> NDArray[np.int64]:
    """The index of each float in the order of all floats; undefined for NaN."""
    bits = np.asarray(x).view(_BITS[x.dtype.name])
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits).astype(np.int64)


def at_key(places: NDArray[np.int64], dtype: str) -> Floats:
    """The float at each index."""
    bits = places.astype(_BITS[dtype])
    floats: Floats = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits).view(dtype)
    return floats


def last_passing(test: Test, count: int, dtype: str) -> Floats | None:
    """The last float that passes each of `count` tests; None where one fails for all of them.

    The answer is checked against its neighbours on both sides: None also if a test passes again
    further on.
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
    last = np.where(everywhere, high, at_key(below, dtype))
    # Adding 0.0 makes -0.0 the 0.0 it is equal to.
    return last + np.asarray(0.0, dtype) if _proved(test, last) else None


def _proved(test: Test, last: Floats) -> bool:
    """True if the answer and a few floats before it pass, and a few floats after it fail."""
    inside, outside = last, last
    with np.errstate(all="ignore"):
        for _ in range(4):
            if not np.all(test(inside)):
                return False
            inside = np.nextafter(inside, np.asarray(-np.inf, last.dtype))
        for _ in range(4):
            outside = np.nextafter(outside, np.asarray(np.inf, last.dtype))
            if np.any(test(outside) & (last < np.inf)):
                return False
    return True


def after(x: Floats) -> Floats:
    """The next float above each of these."""
    following: Floats = np.nextafter(x, np.asarray(np.inf, x.dtype))
    return following
