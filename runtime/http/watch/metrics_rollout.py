"""Figures of rollouts: where they are, and what they counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from flour.core.errors import FlourError
from flour.core.time_limit import time_limit
from runtime.http.snapshots import Family
from runtime.http.wire.interfaces import Peers

#: Time limit for the process that judges, which may be busy with changes.
SECONDS = 2.0


async def known(peers: Peers) -> list[dict[str, Any]]:
    """All rollouts as data; none where the process that judges them cannot be asked."""
    try:
        async with time_limit(SECONDS):
            rollouts: list[dict[str, Any]] = await peers.judge("all", {})
    except (FlourError, TimeoutError):
        return []
    return rollouts


def families(rollouts: Iterable[Mapping[str, Any]]) -> list[Family]:
    """The families of all rollouts that there are, or were last, as data."""
    weight = Family("pretzel_rollout_weight", "gauge", "Percentage of keys of the challenger.")
    state = Family("pretzel_rollout_state", "gauge", "1 for the state that a rollout is in.")
    events = Family("pretzel_rollout_events_total", "counter", "What happened to rollouts.")
    values = Family("pretzel_rollout_values_total", "counter", "Values of a metric, by version.")
    sums = Family("pretzel_rollout_values_sum", "counter", "The sum of these values.")
    for each in rollouts:
        model = ("model", each["endpoint"])
        weight.put(each["weight"], (model, ("challenger", each["to"])))
        state.put(1, (model, ("state", each["state"])))
        for kind, count in sorted(Counter(one["event"] for one in each["events"]).items()):
            events.put(count, (model, ("event", kind)))
        for owner, counts in each["counts"].items():
            for name, found in counts.items():
                labels = (model, ("version", owner.rpartition("@")[2]), ("metric", name))
                values.put(found["number"], labels)
                sums.put(found["total"], labels)
    return [weight, state, events, values, sums]
