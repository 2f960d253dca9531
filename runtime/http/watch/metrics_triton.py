"""The same figures under Triton's metric names, for existing dashboards.

Only measured figures appear: a model has no queue of its own, so there is no queue time, and inputs
and outputs are not timed apart from the call.
"""

from __future__ import annotations

from runtime.http.snapshots import Distribution, Family, Labels, Snapshot

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


def aliases(snapshot: Snapshot) -> Snapshot:
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
