"""Models on nodes by what they share, beside nodes by the hash of a model's name."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from math import ceil

import numpy as np

from bench.experiments.sentiment_digests import sentiment
from bench.goal import Goal
from runtime.cluster.hashing import Assignment, Resident, assign, groups

NODES, BOUND = (3, 8, 20), 1.25
MODELS = (250, 20_000)
#: The part of the bytes by name that placement by digest should take, where any placement can.
WANTED = 0.6


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
    least = _least(resident, nodes) / nodes
    room = WANTED * theirs
    fit = [sum(_fitting(each, resident, room)) / len(resident) for each in (made, other)]
    print(
        f"# {said}, {nodes} nodes: {ours / 1e6:,.0f} MB a node by digest, {ours / theirs:.2f} of "
        f"that by name; no placement takes less than {least / theirs:.2f}; with room for {WANTED} "
        f"of that by name, {fit[0]:.0%} of the models fit by digest, {fit[1]:.0%} by name; "
        f"{seconds * 1e3:.0f} ms"
    )
    if least <= WANTED * theirs:
        said_by_name = f"{said}, {nodes} nodes: bytes of those by name"
        yield Goal(said_by_name, ours / theirs, WANTED, at_most=True)
    said_of_least = f"{said}, {nodes} nodes: bytes of the least of any placement"
    yield Goal(said_of_least, ours / least, 1.05, at_most=True)
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


def _least(resident: Resident, nodes: int) -> float:
    """The bytes of all nodes together that no placement within the bound undercuts.

    The models that share a parameter take as many nodes as the bound makes them, each with a copy.
    """
    most = BOUND * len(resident) / nodes
    sizes = {key: size for each in resident.values() for key, size in each.items()}
    users = Counter(key for each in resident.values() for key in each)
    return sum(size * ceil(users[key] / most) for key, size in sizes.items())


def _fitting(made: Assignment, resident: Resident, room: float) -> Iterator[int]:
    """How many models each node has in memory, where it has room for so many bytes."""
    order = {
        name: place for place, name in enumerate(chain.from_iterable(groups(resident).values()))
    }
    for names in made.models().values():
        there, left, count = set[str](), room, 0
        for name in sorted(names, key=order.__getitem__):
            left -= sum(size for key, size in resident[name].items() if key not in there)
            if left < 0:
                break
            there |= resident[name].keys()
            count += 1
        yield count
