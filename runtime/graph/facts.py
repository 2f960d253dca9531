"""Facts about a graph: its models, what they share, and what its steps took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flour.core.source import Source
from runtime.graph.cutting import Step


@dataclass(frozen=True)
class ModelFacts:
    """A model of a graph."""

    address: str
    """Address of the model in the graph."""
    owner: str
    """The version that was found there."""
    operators: Mapping[str, int]
    """Operators in the graph, by kind."""
    shared: Mapping[str, int]
    """Operators in common with other models, by their address."""


@dataclass(frozen=True)
class GraphFacts:
    """A registered graph."""

    models: tuple[ModelFacts, ...]
    steps: Sequence[Step]
    """Those it is cut into; none where it is a single plan."""
    problem: str
    """Why it goes on with models that have switched; empty where it does not."""

    def lines(self) -> list[str]:
        """These facts as text."""
        lines = [f"  a graph of {len(self.models)} models"]
        for model in self.models:
            common = "".join(f", {count} shared with {a}" for a, count in model.shared.items())
            count = sum(model.operators.values())
            lines.append(f"    {model.address} ({model.owner}): {count} operators{common}")
        for step in self.steps:
            spared = f", {step.spared:,} spared" if step.spared else ""
            rows = f"{step.calls:,} calls, {step.rows:,} rows{spared}{_took(step)}"
            lines.append(f"    step {step.number}, {step.title}: {rows}")
        return lines + ([f"    it could not follow: {self.problem}"] if self.problem else [])


def _took(step: Step) -> str:
    alone = f", {step.alone * 1e6:,.1f} us a row" if step.alone else ""
    return alone + (f", {step.each * 1e6:,.1f} us a row of a block" if step.each else "")


def facts(uses: Mapping[str, str], problem: str, plan: Any) -> GraphFacts:
    """Facts about a graph that uses these versions, by the addresses it names."""
    places: dict[str, dict[str, str]] = {address: {} for address in uses}
    for item, origins in plan.program.optimised.origins().items():
        for origin in origins:
            if origin.step in places and not isinstance(item.op, Source):
                places[origin.step][item.digest] = item.op.name
    models = []
    for address, own in places.items():
        others = {each: len(own.keys() & inside.keys()) for each, inside in places.items()}
        shared = {each: count for each, count in others.items() if count and each != address}
        models.append(ModelFacts(address, uses[address], Counter(own.values()), shared))
    graph = getattr(plan, "graph", None)  # an ordinary plan has none
    return GraphFacts(tuple(models), () if graph is None else graph.steps, problem)
