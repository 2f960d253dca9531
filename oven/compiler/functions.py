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


def tanh_float64(x: Any) -> Any:
    """The hyperbolic tangent, within one unit in the last place.

    Near zero x + x z P(z) / Q(z) with z = x**2, elsewhere 1 - 2 / (e**2|x| + 1), whose sum is kept
    in two parts. Both come down to one division.
    """
    a = abs(x)
    c = 22.0 if a > 22.0 else a  # noqa: FURB136 (a NaN stays one)
    shifted = fused(c, 2.8853900817779268, 6755399441055744.0)
    k = shifted - 6755399441055744.0
    high = fused(k, -6.93147180369123816490e-01, c + c)
    low = k * 1.90821492927058770002e-10
    r = high - low
    r2 = r * r
    r4 = r2 * r2
    p2, p4 = fused(r, 1 / 6, 1 / 2), fused(r, 1 / 120, 1 / 24)
    p6, p8 = fused(r, 1 / 5040, 1 / 720), fused(r, 1 / 362880, 1 / 40320)
    p10, p12 = fused(r, 1 / 39916800, 1 / 3628800), fused(r, 1 / 6227020800, 1 / 479001600)
    upper = fused(fused(p12, r2, p10), r4, fused(p8, r2, p6))
    tail = r2 * fused(upper, r4, fused(p4, r2, p2))
    one = 1.0 + high
    rest = (high - (one - 1.0)) + (tail - low)
    main = one + rest
    rest = rest - (main - one)
    power = of_bits(x, (bits(shifted) - 4843621399236968448 + 1023) << 52)
    grown = power * main
    total = grown + 1.0
    lost = fused(power, rest, 1.0 - (total - grown))
    z = c * c
    upper = fused(-9.64399179425052238628e-1, z, -9.92877231001918586564e1)
    upper = fused(upper, z, -1.61468768441708447952e3) * z * c
    lower = fused(z + 1.12811678491632931402e2, z, 2.23548839060100448583e3)
    lower = fused(lower, z, 4.84406305325125486048e3)
    near = a < 0.625
    above = upper if near else -2.0
    below = lower if near else total
    ratio = above / below
    close = c + ratio
    far = 1.0 + fused(ratio * ratio * 0.5, lost, ratio)
    made = close if near else far
    return of_bits(x, bits(made) | (bits(x) & -9223372036854775808))


def tanh_float32(x: Any) -> Any:
    """The hyperbolic tangent, within one unit in the last place: tanh_float64, shorter."""
    a = abs(x)
    unit = type_of(x, 1)
    c = type_of(x, 10) if a > type_of(x, 10) else a  # noqa: FURB136 (a NaN stays one)
    shifted = fused(c, type_of(x, 2.885390082), type_of(x, 12582912.0))
    k = shifted - type_of(x, 12582912.0)
    high = fused(k, type_of(x, -0.693359375), c + c)
    low = k * type_of(x, -2.12194440e-4)
    r = high - low
    r2 = r * r
    p2 = fused(r, type_of(x, 1 / 6), type_of(x, 1 / 2))
    p4 = fused(r, type_of(x, 1 / 120), type_of(x, 1 / 24))
    p6 = fused(r, type_of(x, 1 / 5040), type_of(x, 1 / 720))
    tail = r2 * fused(fused(p6, r2, p4), r2, p2)
    one = unit + high
    rest = (high - (one - unit)) + (tail - low)
    main = one + rest
    rest = rest - (main - one)
    power = of_bits(x, (bits(shifted) - 1262485504 + 127) << 23)
    grown = power * main
    total = grown + unit
    lost = fused(power, rest, unit - (total - grown))
    z = c * c
    p = fused(type_of(x, -5.70498872745e-3), z, type_of(x, 2.06390887954e-2))
    p = fused(p, z, type_of(x, -5.37397155531e-2))
    p = fused(fused(p, z, type_of(x, 1.33314422036e-1)), z, type_of(x, -3.33332819422e-1))
    ratio = type_of(x, -2) / total
    far = unit + fused(ratio * ratio * type_of(x, 0.5), lost, ratio)
    close = fused(p * z, c, c)
    made = close if a < type_of(x, 0.625) else far
    return of_bits(x, bits(made) | (bits(x) & -2147483648))


def log_float64(x: Any) -> Any:
    """The natural logarithm, within one unit in the last place; NaN below zero.

    x = 2**k (1 + f) with 1 + f between the roots of 1/2 and 2. With s = f / (2 + f), the logarithm
    of 1 + f is f - f**2 / 2 + s (f**2 / 2 + R(s**2)).
    """
    tiny = x < 2.2250738585072014e-308
    whole = bits(x * 18014398509481984.0 if tiny else x)
    # The exponent of what is above the root of 1/2 counts as one more.
    moved = whole - 4604544271217802189
    k = float(moved >> 52) - (54.0 if tiny else 0.0)
    f = of_bits(x, (moved & 4503599627370495) + 4604544271217802189) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = fused(fused(0.1531383769920937332, w, 0.2222219843214978396), w, 0.3999999999940941908)
    odd = fused(0.1479819860511658591, w, 0.1818357216161805012)
    odd = fused(fused(odd, w, 0.2857142874366239149), w, 0.6666666666666735130)
    half = 0.5 * f * f
    low = fused(s, half + fused(w, even, z * odd), k * 1.90821492927058770002e-10)
    made = fused(k, 6.93147180369123816490e-01, f - (half - low))
    made = made if x > 0.0 else of_bits(x, -4503599627370496 if x == 0.0 else 9221120237041090560)
    return made if x < of_bits(x, 9218868437227405312) else (x if not x < 0.0 else made)


def log_float32(x: Any) -> Any:
    """The natural logarithm, within one unit in the last place: log_float64, shorter."""
    tiny = x < of_bits(x, 8388608)
    whole = bits(x * type_of(x, 33554432.0) if tiny else x)
    moved = whole - 1060439283
    k = type_of(x, moved >> 23) - (type_of(x, 25) if tiny else type_of(x, 0))
    f = of_bits(x, (moved & 8388607) + 1060439283) - type_of(x, 1)
    s = f / (type_of(x, 2) + f)
    z = s * s
    w = z * z
    even = w * fused(type_of(x, 0.24279078841), w, type_of(x, 0.40000972152))
    odd = z * fused(type_of(x, 0.28498786688), w, type_of(x, 0.66666662693))
    half = type_of(x, 0.5) * f * f
    low = fused(s, half + (even + odd), k * type_of(x, 9.0580006145e-06))
    made = fused(k, type_of(x, 6.9313812256e-01), f - (half - low))
    zero = type_of(x, 0)
    made = made if x > zero else of_bits(x, -8388608 if x == zero else 2143289344)
    return made if x < of_bits(x, 2139095040) else (x if not x < zero else made)


TANH: dict[str, Any] = {"float64": tanh_float64, "float32": tanh_float32}
LOG: dict[str, Any] = {"float64": log_float64, "float32": log_float32}
