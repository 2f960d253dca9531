"""Consistent hashing of models by what they share, with a bound on every node's load.

Models whose heaviest shared parameter is the same are a group. A group asks for nodes in an order
that a hash of that parameter's digest and of the node's name gives (rendezvous hashing), fills one
node up to the bound and goes on to the next, so that few nodes hold a copy of the parameter. The
answer depends on names, digests, bytes and loads only: every process computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil

import numpy as np

from flour.core.errors import check_values, is_number
from runtime.errors import ClusterError

Resident = Mapping[str, Mapping[str, int]]
"""The digests and bytes of each model's parameters, as `plan.program.resident()` has them."""
#: A group goes first to nodes with room for so much of a full node, to split less often.
_ROOMY = 0.5
#: Rounding of sums of loads, relative to the bound.
_ROUNDING = 1e-9


def holders_of(resident: Resident) -> tuple[dict[str, list[int]], dict[str, int]]:
    """The models of each parameter, by their numbers, and its bytes, which have to be the same."""
    holders: dict[str, list[int]] = {}
    bytes_of: dict[str, int] = {}
    for model, digests in enumerate(resident.values()):
        for digest, nbytes in digests.items():
            holders.setdefault(digest, []).append(model)
            if nbytes < 0 or bytes_of.setdefault(digest, nbytes) != nbytes:
                raise ClusterError(
                    "parameters of one digest have one size",
                    where=digest,
                    found=f"{bytes_of.get(digest, nbytes)} and {nbytes} bytes",
                )
    return holders, bytes_of


@dataclass(frozen=True)
class Assignment:
    """The nodes of every model, with the part of its requests that each node takes."""

    shares: Mapping[str, Mapping[str, float]]
    loads: Mapping[str, float]
    """The requests of each node."""

    def nodes_of(self, name: str) -> tuple[str, ...]:
        """The nodes of a model, the one with most of its requests first."""
        shares = self.shares[name]
        return tuple(sorted(shares, key=lambda node: (-shares[node], node)))

    def models(self) -> dict[str, list[str]]:
        """The models of every node."""
        found: dict[str, list[str]] = {node: [] for node in self.loads}
        for name, shares in self.shares.items():
            for node in shares:
                found[node].append(name)
        return found

    def bytes_of(self, resident: Resident) -> dict[str, int]:
        """The bytes of every node, each parameter once."""
        return {
            node: sum(
                {key: size for name in names for key, size in resident[name].items()}.values()
            )
            for node, names in self.models().items()
        }

    def moved(self, before: Assignment) -> int:
        """The number of models to load where this follows another assignment."""
        return sum(
            len(shares.keys() - before.shares.get(name, {}).keys())
            for name, shares in self.shares.items()
        )


def assign(  # noqa: PLR0913 (each has a default)
    resident: Resident,
    nodes: Iterable[str],
    *,
    loads: Mapping[str, float] | None = None,
    bound: float = 1.25,
    hot: float = 0.25,
    budget: float | None = None,
    before: Assignment | None = None,
    by_digest: bool = True,
) -> Assignment:
    """Nodes for every model; no node's load is more than `bound` times the mean.

    `loads` are requests, 1 for each model by default. A model with more than `hot` of a node's mean
    load has several nodes. Of nodes with room, those that stay within a `budget` of bytes are taken
    where there is one. After a change of nodes or loads, models stay where they were `before`
    unless the bound, a node that left or one that came moves them. With `by_digest=False` the name
    of a model alone decides.
    """
    places = _listed(nodes)
    check_values(
        (
            (
                "resident",
                resident,
                _has(resident, _are_numbers),
                "{'model': plan.program.resident()}",
            ),
            ("nodes", nodes, places, "names; models need a node"),
            ("loads", loads, loads is None or _are_numbers(loads), "number of requests by model"),
            ("bound", bound, is_number(bound) and bound > 1, "1.25: a quarter more than the mean"),
            ("hot", hot, is_number(hot) and hot > 0, "a part of a node's mean load: 0.25"),
            ("budget", budget, budget is None or is_number(budget), "bytes of a node"),
            ("before", before, isinstance(before, Assignment | None), "what assign has answered"),
        ),
        *("models cannot be assigned like this", "assign", ClusterError),
    )
    places = sorted(set(places))
    asked = {name: 1.0 if loads is None else float(loads.get(name, 0.0)) for name in resident}
    given = resident, places, asked, bound, hot, budget
    found = _Filling(*given, by_digest=by_digest).place()
    if before is None or not resident:
        return found
    filling = _Filling(*given, by_digest=by_digest)
    filling.keep(before, found)
    return filling.place()


def _listed(given: object) -> list[str]:
    """The texts of this; none where there is something else."""
    found = [*given] if isinstance(given, Iterable) and not isinstance(given, str) else []
    return found if all(isinstance(each, str) for each in found) else []


def _has(given: object, fits: Callable[[object], bool]) -> bool:
    """True if this has something for each name that fits."""
    if not isinstance(given, Mapping) or len(_listed(given)) < len(given):
        return False
    return all(map(fits, given.values()))


def _are_numbers(given: object) -> bool:
    return _has(given, is_number)


def groups(resident: Resident) -> dict[str, list[str]]:
    """Models by the shared parameter that weighs most; one that shares nothing is by itself.

    What a parameter weighs is what sharing it saves each of its models. The models of a group are
    in the order of what else they share, so that a part of it shares that, too.
    """
    holders, sizes = holders_of(resident)
    saves = {key: sizes[key] * (1 - 1 / len(models)) for key, models in holders.items()}
    found: dict[str, list[tuple[list[str], int, str]]] = {}
    for name, digests in resident.items():
        common = sorted(
            (key for key in digests if saves[key] > 0), key=lambda key: (-saves[key], key)
        )
        alone = not common
        key = f"model {name}" if alone else common[0]
        found.setdefault(key, []).append((common[1:], _number(name), name))
    return {key: [name for *_, name in sorted(found[key])] for key in sorted(found)}


def _number(text: str) -> int:
    """A hash that is the same in every process."""
    raw = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big")


class _Filling:
    """Nodes while they are filled with models."""

    def __init__(
        self,
        resident: Resident,
        nodes: Sequence[str],
        asked: Mapping[str, float],
        bound: float,
        hot: float,
        budget: float | None,
        *,
        by_digest: bool,
    ) -> None:
        self.resident, self.nodes, self.asked, self.budget = resident, nodes, asked, budget
        mean = sum(asked.values()) / len(nodes)
        self.most, self.slack = bound * mean, bound * mean * _ROUNDING
        self.groups = groups(resident) if by_digest else {name: [name] for name in sorted(resident)}
        self.copies = {
            name: min(len(nodes), max(1, ceil(load / (hot * mean) - _ROUNDING))) if load else 1
            for name, load in asked.items()
        }
        self.shares: dict[str, dict[str, float]] = {name: {} for name in resident}
        self.loads = [0.0] * len(nodes)
        self._digests: list[set[str]] = [set() for _ in nodes]
        self._bytes = [0] * len(nodes)
        self._hashes = np.array([_number(node) for node in nodes], np.uint64)

    def keep(self, before: Assignment, fresh: Assignment) -> None:
        """Leave models where they were, but for those that a new node is to have."""
        index = {node: number for number, node in enumerate(self.nodes)}
        for name in sorted(self.resident, key=lambda name: (-self.asked[name], _number(name))):
            if name not in before.shares:
                continue
            came = [node for node in fresh.nodes_of(name) if node not in before.loads]
            stayed = [node for node in before.nodes_of(name) if node in index]
            part = self.asked[name] / self.copies[name]
            for node in (came + stayed)[: self.copies[name]]:
                if self._fits(index[node], name, part, within=False):
                    self._put(index[node], name, part)

    def place(self) -> Assignment:
        """Place what has no node yet: first models with several nodes, then large groups first."""
        left = {
            key: [name for name in names if len(self.shares[name]) < self.copies[name]]
            for key, names in self.groups.items()
        }
        weights = {key: sum(map(self._left, names)) for key, names in left.items()}
        rank = sorted(left, key=lambda key: (-_doublings(weights[key]), _number(key)))
        for key in rank:
            several = [name for name in left[key] if self.copies[name] > 1]
            for name in sorted(several, key=lambda name: -self.asked[name]):
                self._pour_all(key, [name] * (self.copies[name] - len(self.shares[name])))
        for key in rank:
            self._pour_all(key, [name for name in left[key] if self.copies[name] == 1])
        return Assignment(self.shares, dict(zip(self.nodes, self.loads, strict=True)))

    def _left(self, name: str) -> float:
        copies = self.copies[name]
        return self.asked[name] * (copies - len(self.shares[name])) / copies

    def _order(self, key: str) -> list[int]:
        """The nodes in the order in which a group asks for them: first those that hold it."""
        values = self._hashes ^ np.uint64(_number(key))
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = values ^ (values >> np.uint64(31))
        order: list[int] = np.argsort(mixed, kind="stable").tolist()
        return sorted(order, key=lambda node: key not in self._digests[node])

    def _pour_all(self, key: str, left: list[str]) -> None:
        """Fill one node after the other with the models of a group."""
        order, closed, within = self._order(key) if left else [], set[int](), True
        while left:
            node = self._roomiest(order, closed, left)
            if node is not None:
                # Fill a node; returns what does not go there.
                rest = []
                for name in left:
                    part = self.asked[name] / self.copies[name]
                    if self.nodes[node] not in self.shares[name] and self._fits(
                        node, name, part, within=within
                    ):
                        self._put(node, name, part)
                    else:
                        rest.append(name)
                left = rest
                closed.add(node)
            elif within and self.budget is not None:
                within, closed = False, set()
            else:
                self._split(left.pop(0))
                closed = set()

    def _roomiest(self, order: list[int], closed: set[int], left: list[str]) -> int | None:
        """The first node with room for all that is left, or for much of it, or the emptiest."""
        free = [node for node in order if node not in closed]
        wanted = sum(self.asked[name] / self.copies[name] for name in left)
        enough = min(wanted, _ROOMY * self.most) - self.slack
        for node in free:
            if self.most - self.loads[node] >= enough:
                return node
        return min(free, key=lambda node: self.loads[node], default=None)

    def _split(self, name: str) -> None:
        """Cut a model's requests into as few parts as nodes with room take."""
        part = self.asked[name] / self.copies[name]
        for node in sorted(range(len(self.nodes)), key=lambda node: self.loads[node]):
            taken = min(part, self.most - self.loads[node])
            self._put(node, name, max(0.0, taken))
            part -= taken
            if part <= self.slack:
                return

    def _fits(self, node: int, name: str, part: float, *, within: bool) -> bool:
        if self.loads[node] + part > self.most + self.slack:
            return False
        return not within or self.budget is None or self._added(node, name) <= self.budget

    def _added(self, node: int, name: str) -> int:
        """The bytes of a node with one more model."""
        there = self._digests[node]
        return self._bytes[node] + sum(
            size for key, size in self.resident[name].items() if key not in there
        )

    def _put(self, node: int, name: str, part: float) -> None:
        whole = self.asked[name]
        shares, place = self.shares[name], self.nodes[node]
        shares[place] = shares.get(place, 0.0) + (part / whole if whole else 1.0)
        self.loads[node] += part
        self._bytes[node] = self._added(node, name)
        self._digests[node] |= self.resident[name].keys()


def _doublings(weight: float) -> int:
    """The size of a group, coarse enough not to change with every model."""
    return int(np.frexp(weight)[1]) if weight > 0 else -1100
