"""Graphs on the pages: models as boxes that open, what they share, and the time of each step."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from runtime.http.pages.page_html import Row, box, duration, number, paragraph, section, table
from runtime.http.wire.loop_fairness import gently
from runtime.runtime import Runtime

if TYPE_CHECKING:
    from runtime.graph.cutting import Step
    from runtime.graph.facts import GraphFacts, ModelFacts

#: Most graphs that are drawn; `explain` draws any.
SHOWN = 50
_COLUMNS = {"step": "number", "does": "name", "after": "short"}
_COLUMNS |= dict.fromkeys(("calls", "rows", "a row", "a row of a block"), "number")


def graphs(runtime: Runtime, wanted: str) -> str:
    """A section with every graph; empty where there is none."""
    owners = [owner for owner in runtime.endpoints.versions() if wanted in owner.partition("@")[0]]
    found = ((owner, runtime.graphs.facts(owner)) for owner in owners)
    some = islice((graph(owner, facts) for owner, facts in found if facts is not None), SHOWN)
    drawn = list(gently(some, 8))
    note = f"the first {SHOWN:,}; search for others" if len(drawn) == SHOWN else ""
    return section("Graphs of models", "".join(drawn), note) if drawn else ""


def graph(owner: str, facts: GraphFacts, *, opened: bool = False) -> str:
    """A graph as a box, with a box for each model."""
    parts = [_model(model) for model in facts.models]
    if facts.steps:
        parts.append(table(_COLUMNS, map(_step, facts.steps)))
    if facts.problem:
        parts.append(paragraph(f"could not follow: {facts.problem}", "bad"))
    steps = f", {len(facts.steps)} steps" if facts.steps else ", one plan"
    return box(f"{owner}: {len(facts.models)} models{steps}", "".join(parts), opened=opened)


def _model(model: ModelFacts) -> str:
    shared = "".join(f"; {count} shared with {each}" for each, count in model.shared.items())
    kinds = ", ".join(
        name if count == 1 else f"{count} {name}" for name, count in model.operators.items()
    )
    title = f"{model.address} ({model.owner}): {sum(model.operators.values())} operators{shared}"
    return box(title, paragraph(kinds or "nothing of its own", "dim"))


def _step(step: Step) -> Row:
    times = (duration(seconds or None) for seconds in (step.alone, step.each))
    after = ", ".join(map(str, step.after))
    return str(step.number), step.title, after, number(step.calls), number(step.rows), *times
