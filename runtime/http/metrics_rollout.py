"""Figures of rollouts: where they are, and what they counted."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.http.metrics_data import Family
from runtime.rollout import Rollout
from runtime.service.following import Noting


def families(rollouts: Iterable[Noting]) -> list[Family]:
    """The families of all rollouts that there are, or were last."""
    weight = Family("pretzel_rollout_weight", "gauge", "Percentage of keys of the challenger.")
    state = Family("pretzel_rollout_state", "gauge", "1 for the state that a rollout is in.")
    events = Family("pretzel_rollout_events_total", "counter", "What happened to rollouts.")
    values = Family("pretzel_rollout_values_total", "counter", "Values of a metric, by version.")
    sums = Family("pretzel_rollout_values_sum", "counter", "The sum of these values.")
    for each in rollouts:
        if not isinstance(each, Rollout):
            continue
        model = ("model", each.name)
        weight.put(each.weight, (model, ("challenger", each.terms.to)))
        state.put(1, (model, ("state", each.state)))
        for kind in sorted({one.event for one in each.events}):
            events.put(sum(one.event == kind for one in each.events), (model, ("event", kind)))
        for owner, counts in each.counts().items():
            for name, (total, number) in counts.items():
                labels = (model, ("version", owner.rpartition("@")[2]), ("metric", name))
                values.put(number, labels)
                sums.put(total, labels)
    return [weight, state, events, values, sums]
