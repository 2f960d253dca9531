"""A graph of models over HTTP, beside other servers that compose it of services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.crew import Absent
from bench.experiments.end_to_end import first_answer, started
from bench.goal import Goal
from bench.servers import GRAPHS, ServerKind, graph_parts
from bench.wrk import Outcome, race

#: One after the other: so many rounds of so many seconds, and the best of each figure.
ROUNDS, SECONDS = 3, 1.0
#: Clients that ask for the latency, and for the rate.
FEW, MANY = 1, 16
OURS = "graph_pretzel"


def measured() -> Iterator[Goal]:
    """What the same graph takes on each server that is installed, of what ours takes."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "parts.pickle")
        parts = graph_parts.write(file)
        ours = _figures(OURS, file, parts)
        for name in GRAPHS:
            if name == OURS:
                continue
            try:
                theirs = _figures(name, file, parts)
            except (Absent, ConnectionError, OSError, KeyError) as problem:
                print(f"{GRAPHS[name].title}: left out, {problem}")
                continue
            yield from _goals(GRAPHS[name].title, ours, theirs)


def _goals(title: str, ours: Outcome, theirs: Outcome) -> Iterator[Goal]:
    for what, unit in (("p50", "ms"), ("p99", "ms"), ("rate", "requests/s")):
        mine, other = getattr(ours, what), getattr(theirs, what)
        gain = mine / other if what == "rate" else other / mine
        said = f"{mine:,.4g} to {other:,.4g} {unit}"
        yield Goal(f"risk graph, {what} of {title}: {said}, x", gain, 1.0)


def _figures(name: str, file: Path, parts: graph_parts.Parts) -> Outcome:
    kind, wanted = GRAPHS[name], partial(graph_parts.expected, parts)
    return figures(name, kind, [str(file)], graph_parts.WIDTH, wanted)


def figures(
    name: str,
    kind: ServerKind,
    arguments: list[str],
    width: int,
    expected: Callable[[list[float]], float],
) -> Outcome:
    """The best latency with one client, and the best rate with many, of a server that is right."""
    rows = np.random.default_rng(1).normal(size=(64, width)).tolist()
    requests = [kind.request(0, row) for row in rows]
    with ExitStack() as stack:
        entry = started(name, kind, arguments, stack)
        score, wanted = first_answer(entry, requests[0])[0], expected(rows[0])
        if abs(score - wanted) > 1e-9:
            raise Absent(f"it answers {score} where scikit-learn says {wanted}")
        few, many = (
            [race(entry.port, requests, clients, SECONDS, entry.before) for _ in range(1 + ROUNDS)]
            for clients in (FEW, MANY)
        )
    p50, p99, p999 = (min(getattr(each, name) for each in few) for name in ("p50", "p99", "p999"))
    return Outcome(max(each.rate for each in many), p50, p99, p999, few[0].by)
