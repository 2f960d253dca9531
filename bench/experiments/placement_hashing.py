"""Models on nodes by what they share, beside nodes by the hash of a model's name."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from bench.experiments.sentiment_digests import sentiment
from bench.goal import Goal
from runtime.cluster.hashing import Assignment, Resident, assign

NODES, BOUND = (3, 8, 20), 1.25
MODELS = (250, 20_000)


def hashing_goals() -> Iterator[Goal]:
    """Bytes of nodes, their loads, and what moves when nodes come and go."""
    for count in MODELS:
        resident = sentiment(count)
        weights = 1 / np.arange(1, count + 1)
        order = np.random.default_rng(0).permutation(count)
        loads = {name: float(weights[order[number]]) for number, name in enumerate(resident)}
        for nodes in NODES:
            yield from _held(resident, nodes, loads)


def _held(resident: Resident, nodes: int, loads: dict[str, float]) -> Iterator[Goal]:
    names, said = [f"node{number}" for number in range(nodes)], f"{len(resident):,} models"
    start = time.perf_counter()
    made = assign(resident, names)
    seconds = time.perf_counter() - start
    other = assign(resident, names, by_digest=False)
    ours, theirs = (_mean(each, resident) for each in (made, other))
    print(
        f"# {said}, {nodes} nodes: {ours / 1e6:,.0f} MB a node by digest, {theirs / 1e6:,.0f} by "
        f"name, {_once(resident) / nodes / theirs:.2f} of these if nothing were there twice; "
        f"{seconds * 1e3:.0f} ms"
    )
    yield Goal(f"{said}, {nodes} nodes: bytes of those by name", ours / theirs, 0.6, at_most=True)
    hot = assign(resident, names, loads=loads, bound=BOUND)
    most = max(hot.loads.values()) / (sum(hot.loads.values()) / nodes)
    yield Goal(f"{said}, {nodes} nodes, Zipf: most load, of the mean", most, BOUND, at_most=True)
    fewer = assign(resident, names[1:], before=made)
    more = assign(resident, [*names, "another"], before=made)
    for what, after, share in (("leaves", fewer, 1 / nodes), ("comes", more, 1 / (nodes + 1))):
        moved = after.moved(made) / len(resident)
        print(
            f"#   a node {what}: {moved:.1%} of the models are loaded, where {share:.1%} has to be"
        )


def _mean(made: Assignment, resident: Resident) -> float:
    return float(np.mean(list(made.bytes_of(resident).values())))


def _once(resident: Resident) -> int:
    """The bytes of all parameters, each once: no placement takes less."""
    return sum({key: size for each in resident.values() for key, size in each.items()}.values())
