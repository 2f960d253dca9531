"""A route: which version of an endpoint answers a request. A value that never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType

from runtime.errors import BadRegistration
from runtime.routing.sticky import PLACES, place


@dataclass(frozen=True, slots=True)
class Route:
    """The versions that answer, by tenant first, then by the key of the split.

    `split` gives each challenger its percentage of the keys in the column `by` (or the header
    `header`); what remains, and what has no key, is the champion's. The first challenger takes
    places from the low end, the others from the high end down, so that growing one of two
    challengers moves keys to it only from the champion, and never back.
    """

    champion: str
    split: Mapping[str, float] = field(default_factory=dict)
    by: str | None = None
    header: str | None = None
    salt: str = ""
    tenants: Mapping[str, str] = field(default_factory=dict)
    _bounds: tuple[tuple[int, int, str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the shares, and freeze what was handed in."""
        _check(self)
        name = self.header if self.header is None else self.header.lower()
        freeze = object.__setattr__
        freeze(self, "header", name)
        freeze(self, "split", MappingProxyType(dict(self.split)))
        freeze(self, "tenants", MappingProxyType(dict(self.tenants)))
        freeze(self, "_bounds", _bounds(self.split))

    def __hash__(self) -> int:
        """Equal routes have equal hashes; mappings have none of their own."""
        parts = (frozenset(self.split.items()), frozenset(self.tenants.items()))
        return hash((self.champion, self.by, self.header, self.salt, parts))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every version that may answer, each once."""
        return tuple(dict.fromkeys((self.champion, *self.split, *self.tenants.values())))

    def choose(
        self, row: object, headers: Mapping[str, str] = MappingProxyType({}), tenant: str = ""
    ) -> str:
        """The address of the version that answers this request.

        The names of `headers` are in lower case, as front ends have them.
        """
        own = self.tenants.get(tenant)
        if own is not None or not self._bounds:
            return own or self.champion
        key: object = None
        if self.header is not None:
            key = headers.get(self.header)
        elif isinstance(row, Mapping):
            key = row.get(self.by)
        found = place(key, self.salt)
        return self.champion if found is None else self.at(found)

    def at(self, found: int) -> str:
        """The version that a place of a key belongs to."""
        for low, high, address in self._bounds:
            if low <= found < high:
                return address
        return self.champion


def _bounds(split: Mapping[str, float]) -> tuple[tuple[int, int, str], ...]:
    """The places of each challenger: from the low end for the first, the high end for others."""
    bounds, top = [], PLACES
    for number, (address, share) in enumerate(split.items()):
        width = int(PLACES * (share / 100))
        if number == 0:
            bounds.append((0, width, address))
        else:
            bounds.append((top - width, top, address))
            top -= width
    return tuple(bounds)


def _check(route: Route) -> None:
    total = 0.0
    for address, share in route.split.items():
        if not (isfinite(share) and 0 <= share <= 100):
            raise BadRegistration(
                "a share is a percentage from 0 to 100", where=address, found=repr(share)
            )
        total += share
    if total > 100 + 1e-9:  # 0.1 and the like have no exact sums
        raise BadRegistration(
            "the shares of a split add up to more than 100",
            found=f"{total:g}",
            hint="what is left of 100 is the champion's; it is not named in the split",
        )
    if route.champion in route.split:
        raise BadRegistration(
            "the champion is named in its own split",
            where=route.champion,
            hint="it answers what the challengers leave",
        )
    if route.split and (route.by is None) is (route.header is None):
        raise BadRegistration(
            "a split needs the key that it goes by: one column or one header",
            found=f"by={route.by!r}, header={route.header!r}",
            hint="by='user_id', or header='x-user'",
        )
