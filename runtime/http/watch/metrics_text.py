"""Metrics as text in Prometheus' format, version 0.0.4.

The same figures under Triton's metric names, for existing dashboards.
Only measured figures appear: a model has no queue of its own, so there is no queue time, and inputs
and outputs are not timed apart from the call.
"""

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


#: Our name, Triton's name, the help text, and the factor from our unit to Triton's.
_PLAIN = (
    ("pretzel_calls_total", "nv_inference_request_success", "Calls that were answered", 1),
    ("pretzel_rows_total", "nv_inference_count", "Rows that were answered", 1),
    (
        "pretzel_call_seconds_total",
        "nv_inference_request_duration_us",
        "What answered calls took together, in microseconds",
        1_000_000,
    ),
)
_CACHE = {
    "hit": ("nv_cache_num_hits_per_model", "Answers that were kept"),
    "miss": ("nv_cache_num_misses_per_model", "Answers that were not"),
}


def triton_aliases(snapshot: Snapshot) -> Snapshot:
    """Our families under Triton's names."""
    ours = {family.name: family.samples for family in snapshot}
    plain = [
        Family(name, "counter", text, [(labels, _times(value, unit)) for labels, value in ours[of]])
        for of, name, text, unit in _PLAIN
        if of in ours
    ]
    return [*plain, *_failures(ours), *_executions(ours), *_pending(ours), *_cache(ours)]


_Samples = dict[str, list[tuple[Labels, float | Distribution]]]


def _times(value: float | Distribution, unit: int) -> float:
    assert not isinstance(value, Distribution), "counters are plain numbers"
    return int(value * unit)


def _failures(ours: _Samples) -> Snapshot:
    family = Family("nv_inference_request_failure", "counter", "Calls that were not answered")
    for labels, value in ours.get("pretzel_call_failures_total", ()):
        family.samples.append(((*labels, ("reason", "OTHER")), value))
    return [family]


def _executions(ours: _Samples) -> Snapshot:
    """Runs of a plan, of both engines together."""
    runs: dict[Labels, float] = {}
    for labels, value in ours.get("pretzel_engine_calls_total", ()):
        version = tuple(pair for pair in labels if pair[0] != "engine")
        runs[version] = runs.get(version, 0) + _times(value, 1)
    family = Family("nv_inference_exec_count", "counter", "Runs of the model")
    family.samples += runs.items()
    return [family]


def _pending(ours: _Samples) -> Snapshot:
    """Waiting requests. Triton counts them by model; we have one queue for all models."""
    family = Family(
        "nv_inference_pending_request_count", "gauge", "Requests that wait, for any model"
    )
    for labels, value in ours.get("pretzel_http_requests_waiting", ()):
        family.samples.append((labels, value))
    return [family]


def _cache(ours: _Samples) -> Snapshot:
    families = {result: Family(name, "counter", text) for result, (name, text) in _CACHE.items()}
    for labels, value in ours.get("pretzel_cache_lookups_total", ()):
        rest = dict(labels)
        families[rest.pop("result")].samples.append((tuple(rest.items()), value))
    return list(families.values())
