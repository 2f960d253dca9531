"""Ours, compiled for processors of the level x86-64-v3: AVX2, no AVX-512."""

from __future__ import annotations

from bench.contestants.pretzel import Pretzel


class PretzelV3(Pretzel):
    """The same plans; a processor of this level would run the same code."""

    name = "pretzel_v3"
    title = "Pretzel (x86-64-v3)"
    settings = "compiled for x86-64-v3"
    level = "x86-64-v3"


CONTESTANT = PretzelV3
