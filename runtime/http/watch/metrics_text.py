"""Metrics as text in Prometheus' format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import inf, isnan

from runtime.http.snapshots import BOUNDS, Distribution, Family, Labels, Snapshot, Value
from runtime.http.wire.loop_fairness import gently

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: A number that takes some tenths of a millisecond.
_LINES = 256


def exposition(snapshot: Snapshot) -> bytes:
    """The text, without families that have no samples."""
    lines = [
        line for family in snapshot if family.samples for line in gently(_family(family), _LINES)
    ]
    # A name that is not valid Unicode must not break the whole text.
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _family(family: Family) -> Iterator[str]:
    help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {help_text}"
    yield f"# TYPE {family.name} {family.kind}"
    for labels, value in family.samples:
        yield from _sample(family.name, labels, value)


def _sample(name: str, labels: Labels, value: Value) -> Iterator[str]:
    if not isinstance(value, Distribution):
        yield f"{name}{_labels(labels)} {_number(value)}"
        return
    start = f"{name}_bucket{{{''.join(f'{each},' for each in _pairs(labels))}le="
    for bound, count in zip(_SHOWN, accumulate(value.counts), strict=True):
        yield f'{start}"{bound}"}} {count}'
    yield f"{name}_sum{_labels(labels)} {_number(value.total)}"
    yield f"{name}_count{_labels(labels)} {value.count}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(_pairs(labels)) + "}"


def _pairs(labels: Labels) -> list[str]:
    return [f'{name}="{_escaped(value)}"' for name, value in labels]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))  # also of truth values
    if isnan(value):
        return "NaN"
    if value in {inf, -inf}:
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


_SHOWN = tuple(map(_number, (*BOUNDS, inf)))
