"""Levels of processors that code is compiled for, here or ahead of time.

Sums may be in any order that suits the vectors, so code for another processor may answer with
another last bit. All code of a machine is therefore for its level: a plan answers the same bits
whether its code comes out of a pack, a cache, a plan file or the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Level(NamedTuple):
    """A kind of processor, in the compiler's words."""

    name: str
    triple: str
    cpu: str
    features: frozenset[str]
    #: What this processor has of its own, and others of the level may lack.
    without: frozenset[str] = frozenset()

    @property
    def listed(self) -> str:
        """The features as the compiler lists them."""
        wanted = [f"+{feature}" for feature in sorted(self.features)]
        return ",".join(wanted + [f"-{feature}" for feature in sorted(self.without)])


_X86 = "x86_64-unknown-linux-gnu"
_V2 = frozenset(("cmov", "cx16", "cx8", "fxsr", "mmx", "popcnt", "sahf"))
_V2 |= {"sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3"}
_V3 = _V2 | frozenset(["avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
#: What later processors with AVX-512 have, and text and trees use.
_BYTES = frozenset(["avx512vbmi", "avx512bitalg"])
#: Vectors of 64 bytes are worth their while on every processor with those: the compiler says so of
#: this one alone (boosted trees and distances are 1.7 times as fast as with "x86-64-v4").
_ZEN = frozenset(["sse4a", "clzero", "aes", "sha", "vaes", "vpclmulqdq", "gfni", "avx512bf16"])
_ZEN |= {"avx512ifma", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq"}
#: The best first.
LEVELS = (
    Level("x86-64-v4-vbmi", _X86, "znver4", _V4 | _BYTES, _ZEN),
    Level("x86-64-v4", _X86, "x86-64-v4", _V4),
    Level("x86-64-v3", _X86, "x86-64-v3", _V3),
    Level("x86-64-v2", _X86, "x86-64-v2", _V2),
    Level("aarch64", "aarch64-unknown-linux-gnu", "generic", frozenset({"neon", "fp-armv8"})),
)


def named(name: str) -> Level | None:
    """The level of this name."""
    return next((level for level in LEVELS if level.name == name), None)


def best(triple: str, features: str) -> Level | None:
    """The best level whose code a processor runs that has these features."""
    return next(runnable(triple, features), None)


def runnable(triple: str, features: str) -> Iterator[Level]:
    """Every level whose code a processor runs that has these features, the best first."""
    here = frozenset(item[1:] for item in features.split(",") if item.startswith("+"))
    for level in LEVELS:
        if architecture(level.triple) == architecture(triple) and level.features <= here:
            yield level


def architecture(triple: str) -> str:
    """The kind of processor in a triple."""
    return triple.partition("-")[0]
