"""The same figures under the names that Triton has for them, for dashboards that exist.

Only what is measured has a name here: there are no queues of a model's own, so nothing is said of
the time in them, and inputs and outputs are not timed apart from the call.
"""

from __future__ import annotations

from runtime.http.metrics_data import Distribution, Family, Labels, Snapshot

#: Our name, Triton's, the text, and what one of ours is in its unit.
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
    """Families in Triton's words, made of ours."""
    ours = {family.name: family.samples for family in snapshot}
    made = [
        Family(name, "counter", text, [(labels, _times(value, unit)) for labels, value in ours[of]])
        for of, name, text, unit in _PLAIN
        if of in ours
    ]
    return [*made, *_failures(ours), *_executions(ours), *_pending(ours), *_cache(ours)]


_Samples = dict[str, list[tuple[Labels, float | Distribution]]]


def _times(value: float | Distribution, unit: int) -> float:
    assert not isinstance(value, Distribution), "counters are plain numbers"
    return int(value * unit)


def _failures(ours: _Samples) -> Snapshot:
    made = Family("nv_inference_request_failure", "counter", "Calls that were not answered")
    for labels, value in ours.get("pretzel_call_failures_total", ()):
        made.samples.append(((*labels, ("reason", "OTHER")), value))
    return [made]


def _executions(ours: _Samples) -> Snapshot:
    """Runs of a plan: by either engine."""
    runs: dict[Labels, float] = {}
    for labels, value in ours.get("pretzel_engine_calls_total", ()):
        version = tuple(pair for pair in labels if pair[0] != "engine")
        runs[version] = runs.get(version, 0) + _times(value, 1)
    made = Family("nv_inference_exec_count", "counter", "Runs of the model")
    made.samples += runs.items()
    return [made]


def _pending(ours: _Samples) -> Snapshot:
    """What waits; Triton counts it by model, and we have one queue for all."""
    made = Family(
        "nv_inference_pending_request_count", "gauge", "Requests that wait, for any model"
    )
    for labels, value in ours.get("pretzel_http_requests_waiting", ()):
        made.samples.append((labels, value))
    return [made]


def _cache(ours: _Samples) -> Snapshot:
    families = {result: Family(name, "counter", text) for result, (name, text) in _CACHE.items()}
    for labels, value in ours.get("pretzel_cache_lookups_total", ()):
        known = dict(labels)
        families[known.pop("result")].samples.append((tuple(known.items()), value))
    return list(families.values())
