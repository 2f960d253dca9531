"""Accounting of a store: own and shared bytes of each owner.

Pure functions of two inputs: the digests that each owner holds, and the size of each. A byte is an
owner's own if no other owner holds its parameter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

Holdings = Mapping[str, AbstractSet[str]]
"""For each owner the digests it holds."""

SHOWN_SHARERS = 3
"""The number of other owners that a report names; `Store.sharers` names all."""


@dataclass(frozen=True, slots=True)
class OwnerReport:
    """The bytes of one owner."""

    owner: str
    own_bytes: int
    shared_bytes: int
    sharers: int
    some_sharers: tuple[str, ...]

    def with_whom(self) -> str:
        """The names of the first sharers, and the number of others."""
        more = self.sharers - len(self.some_sharers)
        return ", ".join(self.some_sharers) + (f" and {more} more" if more else "")


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The contents of a store by owner; its `str` is a table."""

    blobs: int
    unique_bytes: int
    """The size of the store: every parameter once."""
    held_bytes: int
    """The size if every owner had copies of its own."""
    free_bytes: int
    """Bytes without an owner."""
    owners: tuple[OwnerReport, ...]

    def __str__(self) -> str:
        head = (
            f"{self.blobs:,} parameters, {self.unique_bytes:,} bytes "
            f"({self.held_bytes:,} without sharing, {self.free_bytes:,} without an owner)"
        )
        rows = [("owner", "own", "shared", "with")]
        rows += [
            (one.owner, f"{one.own_bytes:,}", f"{one.shared_bytes:,}", one.with_whom())
            for one in self.owners
        ]
        return "\n".join([head, *_table(rows)])


def holders_of(holdings: Holdings) -> dict[str, list[str]]:
    """For each digest the owners that hold it."""
    holders: dict[str, list[str]] = defaultdict(list)
    for owner, digests in sorted(holdings.items()):
        for digest in digests:
            holders[digest].append(owner)
    return dict(holders)


def shared_by(holdings: Holdings, owner: str) -> dict[str, set[str]]:
    """For each other owner the digests it has in common with this one."""
    mine = holdings.get(owner, frozenset())
    common = ((other, set(mine & digests)) for other, digests in sorted(holdings.items()))
    return {other: digests for other, digests in common if digests and other != owner}


def report(holdings: Holdings, stored: Iterable[str], size: Callable[[str], int]) -> StoreReport:
    """Account for a whole store."""
    holders = holders_of(holdings)
    sizes = {digest: size(digest) for digest in {*stored, *holders}}
    circles: dict[frozenset[str], frozenset[str]] = {}
    owners = [
        _owner_report(owner, digests, holders, sizes, circles)
        for owner, digests in sorted(holdings.items())
    ]
    return StoreReport(
        blobs=len(sizes),
        unique_bytes=sum(sizes.values()),
        held_bytes=sum(sizes[digest] * len(owners) for digest, owners in holders.items()),
        free_bytes=sum(sizes[digest] for digest in sizes.keys() - holders.keys()),
        owners=tuple(owners),
    )


def _owner_report(
    owner: str,
    digests: AbstractSet[str],
    holders: Mapping[str, list[str]],
    sizes: Mapping[str, int],
    circles: dict[frozenset[str], frozenset[str]],
) -> OwnerReport:
    shared = frozenset(digest for digest in digests if len(holders[digest]) > 1)
    # Pipelines of one family share the same parameters: their holders are computed once per set of
    # parameters, as a report over ten thousand owners would take a hundred million steps otherwise.
    if shared not in circles:
        circles[shared] = frozenset(name for digest in shared for name in holders[digest])
    circle = circles[shared]
    shared_bytes = sum(sizes[digest] for digest in shared)
    firsts = {name for digest in shared for name in holders[digest][: SHOWN_SHARERS + 1]}
    return OwnerReport(
        owner=owner,
        own_bytes=sum(sizes[digest] for digest in digests) - shared_bytes,
        shared_bytes=shared_bytes,
        sharers=max(len(circle) - 1, 0),
        some_sharers=tuple(sorted(firsts - {owner})[:SHOWN_SHARERS]),
    )


def _table(rows: list[tuple[str, str, str, str]]) -> list[str]:
    """Aligned columns; numbers to the right."""
    name, own, shared = (max(len(row[column]) for row in rows) for column in range(3))
    return [
        f"  {row[0]:<{name}}  {row[1]:>{own}}  {row[2]:>{shared}}  {row[3]}".rstrip()
        for row in rows
    ]
