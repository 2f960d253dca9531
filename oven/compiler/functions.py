"""Functions that native code computes itself, so that a loop over them becomes vector code.

They are plain Python over floats, and the native back end compiles this very text, with names of
its own for what stands at the top: `fused` rounds once where the processor can, `bits` and
`of_bits` look at a float as a whole number. The C library's functions work on one number a call.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once or twice."""
    return a * b + c


def bits(x: Any) -> int:
    """The bits of a float as a whole number with a sign."""
    return int(x.view(np.int64 if x.dtype == np.float64 else np.int32))


def of_bits(like: Any, number: int) -> Any:
    """The float, as wide as `like`, with these bits."""
    whole = np.int64 if like.dtype == np.float64 else np.int32
    return whole(number).view(like.dtype)


def exp_float64(x: Any) -> Any:
    """e to the power x, within 0.8 units in the last place (the C library: 0.51).

    x = k ln 2 + r with |r| <= ln 2 / 2, and e**r = 1 + r + r**2 p(r). Adding 1.5 * 2**52 rounds k
    to a whole number, which then stands in the lowest bits. The sum 1 + r keeps what it rounds off.
    2**k is multiplied in two halves, as k may be beyond any exponent.
    """
    c = 710.0 if x > 710.0 else x  # noqa: FURB136 (a NaN stays one)
    c = -746.0 if c < -746.0 else c  # noqa: FURB136 (as above)
    shifted = fused(c, 1.4426950408889634, 6755399441055744.0)
    k = shifted - 6755399441055744.0
    # ln 2 in two parts; the first is short, so that its product with k is exact.
    high = fused(k, -6.93147180369123816490e-01, c)
    low = k * 1.90821492927058770002e-10
    r = high - low
    r2 = r * r
    r4 = r2 * r2
    # 1/2!, 1/3!, ... 1/13!, in pairs that do not wait for each other.
    p2, p4 = fused(r, 1 / 6, 1 / 2), fused(r, 1 / 120, 1 / 24)
    p6, p8 = fused(r, 1 / 5040, 1 / 720), fused(r, 1 / 362880, 1 / 40320)
    p10, p12 = fused(r, 1 / 39916800, 1 / 3628800), fused(r, 1 / 6227020800, 1 / 479001600)
    upper = fused(fused(p12, r2, p10), r4, fused(p8, r2, p6))
    tail = r2 * fused(upper, r4, fused(p4, r2, p2))
    one = 1.0 + high
    made = one + ((high - (one - 1.0)) + (tail - low))
    whole = bits(shifted) - 4843621399236968448
    half = whole >> 1
    made = made * of_bits(x, (half + 1023) << 52)
    return made * of_bits(x, (whole - half + 1023) << 52)


def exp_float32(x: Any) -> Any:
    """e to the power x, within 0.9 units in the last place: exp_float64 with shorter numbers."""
    c = type_of(x, 89) if x > type_of(x, 89) else x  # noqa: FURB136 (a NaN stays one)
    c = type_of(x, -104) if c < type_of(x, -104) else c  # noqa: FURB136 (as above)
    shifted = fused(c, type_of(x, 1.442695041), type_of(x, 12582912.0))
    k = shifted - type_of(x, 12582912.0)
    high = fused(k, type_of(x, -0.693359375), c)
    low = k * type_of(x, -2.12194440e-4)
    r = high - low
    r2 = r * r
    p2 = fused(r, type_of(x, 1 / 6), type_of(x, 1 / 2))
    p4 = fused(r, type_of(x, 1 / 120), type_of(x, 1 / 24))
    p6 = fused(r, type_of(x, 1 / 5040), type_of(x, 1 / 720))
    tail = r2 * fused(fused(p6, r2, p4), r2, p2)
    one = type_of(x, 1) + high
    made = one + ((high - (one - type_of(x, 1))) + (tail - low))
    whole = bits(shifted) - 1262485504
    half = whole >> 1
    made = made * of_bits(x, (half + 127) << 23)
    return made * of_bits(x, (whole - half + 127) << 23)


def type_of(like: Any, value: float) -> Any:
    """The number in the type of `like`."""
    return type(like)(value)


EXP: dict[str, Any] = {"float64": exp_float64, "float32": exp_float32}
