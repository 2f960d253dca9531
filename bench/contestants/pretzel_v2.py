"""Ours, compiled for processors of the level x86-64-v2: SSE4.2, no AVX."""

from __future__ import annotations

from bench.contestants.pretzel import Pretzel


class PretzelV2(Pretzel):
    """The same plans; a processor of this level would run the same code."""

    name = "pretzel_v2"
    title = "Pretzel (x86-64-v2)"
    settings = "compiled for x86-64-v2"
    level = "x86-64-v2"


CONTESTANT = PretzelV2
