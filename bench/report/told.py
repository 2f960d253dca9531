"""Conclusions from tables in words: where ours is behind, and by how much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.report.figures import times

#: Most places that are named; of more, the worst are named and all are counted.
_NAMED = 4
Place = tuple[str, str, float]
"""A contestant, a place (a workload, a size), and theirs by ours: below 1 ours is behind."""


def behind(places: Iterable[Place]) -> str:
    """A sentence on where ours is behind; empty if nothing was compared."""
    compared = list(places)
    lost = sorted((each for each in compared if each[2] < 1), key=lambda each: each[2])
    if not compared:
        return ""
    if not lost:
        return "Ours is behind nowhere."
    named = ", ".join(f"{who} {where} ({times(by)})" for who, where, by in lost[:_NAMED])
    if len(lost) <= _NAMED:
        return f"Ours is behind {named}."
    return f"Ours is behind in {len(lost)} of {len(compared)} places, most of all {named}."


def counted(verdicts: Sequence[str]) -> str:
    """How many goals were met, missed, and not measured."""
    plain = [each.strip("*") for each in verdicts]
    said = [f"{plain.count(each)} {each}" for each in ("met", "missed", "not measured")]
    return f"{said[0]}, {said[1]}, {said[2]}."
