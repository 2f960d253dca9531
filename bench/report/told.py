"""What tables say in words: where ours is behind, and by how much. It follows from the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.report.figures import times

#: More than so many places are counted, the worst named.
_NAMED = 6
Place = tuple[str, str, float]
"""Who it is held against, where (on a workload, at a size), by what: below 1 ours is behind."""


def behind(places: Iterable[Place]) -> str:
    """A sentence on where ours is behind; empty where nothing was compared."""
    known = list(places)
    lost = sorted((each for each in known if each[2] < 1), key=lambda each: each[2])
    if not known:
        return ""
    if not lost:
        return "Ours is behind nowhere."
    named = ", ".join(f"{who} {where} ({times(by)})" for who, where, by in lost[:_NAMED])
    if len(lost) <= _NAMED:
        return f"Ours is behind {named}."
    return f"Ours is behind in {len(lost)} of {len(known)} places, most of all {named}."


def counted(verdicts: Sequence[str]) -> str:
    """How many goals were met, missed, and not measured."""
    known = [each.strip("*") for each in verdicts]
    said = [f"{known.count(each)} {each}" for each in ("met", "missed", "not measured")]
    return f"{said[0]}, {said[1]}, {said[2]}."
