"""A route: which version of an endpoint answers a request. A value that never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from hashlib import blake2b
from math import isfinite
from types import MappingProxyType
from typing import Any

import numpy as np

from flour.core.errors import nearest
from flour.core.types import Type
from runtime.errors import BadCall, BadRegistration, InUse
from runtime.routing.blocks import Places, rows_of
from runtime.routing.predicate import Predicate, columns_of, predicate
from runtime.routing.row import MANY, refuse, values_of

#: Places are whole numbers below this one, so that shares need no rounding.
PLACES = 1 << 64


def place(key: object, salt: str) -> int | None:
    """The place of a key among `PLACES`; None for a missing key, which is in no split.

    Whole numbers have the place of their decimal text, whichever type holds them: a client that
    sends "17" and one that sends 17 or 17.0 mean the same user.
    """
    text = _text(key)
    if text is None:
        return None
    salted = f"{len(salt)}:{salt}{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(salted, digest_size=8).digest(), "little")


def _text(key: object) -> str | None:
    """A key as text; None for None and NaN."""
    if isinstance(key, (np.generic, np.ndarray)) and key.ndim == 0:
        key = key.item()
    match key:
        case None:
            return None
        case str():
            return key
        case float() if key != key:  # noqa: PLR0124 (NaN is the number that differs from itself)
            return None
        case float() if key.is_integer():
            return str(int(key))
        case bool() | int() | float():
            return str(key)
    if key is MANY:
        refuse("a column of several rows")
    return None if _is_missing(key) else refuse(type(key).__name__)


def _is_missing(key: object) -> bool:
    """True if it is what pandas calls NA or NaT."""
    try:
        return bool(key != key)  # noqa: PLR0124 (what is missing does not equal itself)
    except TypeError:  # NA is neither true nor false
        return True
    except ValueError:  # an array is not missing
        return False


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_MAPPINGS = ("split", "rules", "tenants")
_TEXTS = ("champion", "by", "header", "salt", "where", "shadow")


@dataclass(frozen=True, slots=True)
class Route:
    """The versions that answer, by tenant first, then by rule, then by the key of the split.

    `rules` are conditions with the version that answers where one holds; the first counts. `split`
    gives each challenger its percentage of the keys in the column `by` (or the header `header`),
    among the requests for which `where` holds; what remains, and what has no key, is the
    champion's. The first challenger takes places from the low end, the others from the high end
    down, so that growing one of two challengers moves keys to it only from the champion, and never
    back. What the champion answers is also asked of the `shadow`, or a `sample` of it: one part of
    so many. The shadow is asked `inline`, in one program with the champion, or later; unless
    this says so, it is inline where the champion's answers keep every bit and both take less time.
    """

    champion: str
    split: Mapping[str, float] = field(default_factory=dict)
    by: str | None = None
    header: str | None = None
    salt: str = ""
    where: str | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    tenants: Mapping[str, str] = field(default_factory=dict)
    shadow: str | None = None
    sample: float = 1.0
    inline: bool | None = None
    _bounds: tuple[tuple[int, int, str], ...] = field(init=False, repr=False, compare=False)
    _where: Predicate | None = field(init=False, repr=False, compare=False)
    _rules: tuple[tuple[Predicate, str], ...] = field(init=False, repr=False, compare=False)
    reads_rows: bool = field(init=False, repr=False, compare=False)
    """True if the choice depends on the row, and not on headers and tenants alone."""

    def __post_init__(self) -> None:
        """Check the shares, read the conditions, and freeze what was handed in."""
        _check(self)
        name = self.header if self.header is None else self.header.lower()
        freeze = object.__setattr__
        freeze(self, "header", name)
        for part in _MAPPINGS:
            freeze(self, part, MappingProxyType(dict(getattr(self, part))))
        freeze(self, "split", MappingProxyType({k: float(v) for k, v in self.split.items()}))
        freeze(self, "sample", float(self.sample))
        freeze(self, "_bounds", _bounds(self.split))
        freeze(self, "_where", None if self.where is None else predicate(self.where))
        freeze(self, "_rules", tuple((predicate(text), to) for text, to in self.rules.items()))
        freeze(self, "reads_rows", bool(self.by) or any(each.columns for each in _conditions(self)))

    def __hash__(self) -> int:
        """Equal routes have equal hashes; mappings have none of their own."""
        parts = tuple(frozenset(getattr(self, name).items()) for name in _MAPPINGS)
        return hash((self.champion, self.by, self.header, self.salt, self.where, parts))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every version that may answer or is compared, each once."""
        shadow = () if self.shadow is None else (self.shadow,)
        others = (*self.split, *self.rules.values(), *self.tenants.values())
        return tuple(dict.fromkeys((self.champion, *others, *shadow)))

    @property
    def answering(self) -> tuple[str, ...]:
        """Every version that may answer, each once."""
        return tuple(each for each in self.addresses if each != self.shadow)

    @property
    def is_direct(self) -> bool:
        """True if the champion answers everything, and nothing else is done."""
        return not (self._bounds or self._rules or self.tenants) and self.shadow is None

    def check_unused(self, owner: str) -> None:
        """Raise InUse if a version that is to go is named here."""
        if owner in self.addresses:
            raise InUse(
                "the endpoint's route names this version",
                where=owner,
                hint="change the route first, or unregister the whole name",
            )

    def check(self, inputs: Mapping[str, Type]) -> None:
        """Raise unless rows of a model with these inputs may have the columns that this reads.

        A key may be a column that the model does not have, unless its name is nearly one of these.
        """
        for each in _conditions(self):
            each.check(inputs)
        known = columns_of(inputs)
        if self.by is None or known is None or self.by in {*known, *inputs}:
            return
        meant = nearest(self.by, known, alike=0.85)
        if meant or (not known and len(inputs) == 1):
            raise BadRegistration(
                f"no row has a column {self.by!r} that the split could go by",
                found=", ".join(list(known)[:20]) or "rows without columns: " + ", ".join(inputs),
                hint=meant or "a header is a key, too: header='x-user'",
            )

    def choose(
        self,
        row: object,
        headers: Mapping[str, str] = _NO_HEADERS,
        tenant: str = "",
        names: Sequence[str] = (),
    ) -> str:
        """The address of the version that answers this request.

        The names of `headers` are in lower case, as front ends have them. A row without names has
        the values of the columns `names`.
        """
        if self.tenants:
            own = self.tenants.get(tenant)
            if own is not None:
                return own
        if not self._bounds and not self._rules:
            return self.champion
        values = values_of(row, names) if self.reads_rows else {}
        for holds, address in self._rules:
            if holds(values, headers):
                return address
        if not self._bounds or (self._where is not None and not self._where(values, headers)):
            return self.champion
        key = headers.get(self.header) if self.header else values.get(self.by or "")
        found = place(key, self.salt)
        return self.champion if found is None else self.at(found)

    def by_row(
        self,
        block: object,
        headers: Mapping[str, str] = _NO_HEADERS,
        tenant: str = "",
        names: Sequence[str] = (),
    ) -> dict[str, Places] | None:
        """The rows of a block by the version that answers them; None for unknown forms."""
        rows = rows_of(block, self._columns, names)
        if rows is None:
            return None
        found: dict[str, Places] = {}
        for place_of_row, row in enumerate(rows):
            found.setdefault(self.choose(row, headers, tenant), []).append(place_of_row)
        return found

    @property
    def _columns(self) -> set[str]:
        """The columns that the choice depends on."""
        read = {name for each in _conditions(self) for name, _ in each.columns}
        return read if self.by is None else read | {self.by}

    def at(self, found: int) -> str:
        """The version that a place of a key belongs to."""
        for low, high, address in self._bounds:
            if low <= found < high:
                return address
        return self.champion


def _conditions(route: Route) -> list[Predicate]:
    """Every condition of a route."""
    rules = [each for each, _ in route._rules]  # noqa: SLF001 (a part of the class)
    where = route._where  # noqa: SLF001 (as above)
    return rules if where is None else [*rules, where]


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


def fits(name: str, value: object) -> bool:
    """True if a part of a route is of its type."""
    if name in _TEXTS:
        return isinstance(value, str)
    if name == "sample":
        return isinstance(value, int | float)
    if name == "inline":
        return isinstance(value, bool)
    parts: tuple[type, ...] = (int, float) if name == "split" else (str,)
    pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
    return all(isinstance(key, str) and isinstance(part, parts) for key, part in pairs)


def _check(route: Route) -> None:
    for part in fields(route):
        value = getattr(route, part.name) if part.init else None
        if value is not None and not fits(part.name, value):
            raise BadRegistration(
                f"{part.name} of a route is not of its type", found=repr(value)[:100]
            )
    if "" in route.tenants:
        raise BadRegistration(
            "a tenant has a name", found="''", hint="requests without a tenant are the champion's"
        )
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
    if route.where is not None and not route.split:
        raise BadRegistration(
            "`where` says which requests are split, and there is no split",
            found=repr(route.where)[:200],
            hint="rules={condition: version} needs no split",
        )
    _check_shadow(route)


def _check_shadow(route: Route) -> None:
    if not 0 <= route.sample <= 1:
        raise BadRegistration("a sample is a part, from 0 to 1", found=repr(route.sample))
    if route.shadow == route.champion:
        raise BadRegistration("the champion is its own shadow", where=route.champion)


def only_challenger(name: str, route: Route) -> str:
    """The one challenger of a route."""
    challengers = dict.fromkeys((*route.split, *route.rules.values()))
    if route.shadow is not None:
        challengers[route.shadow] = None
    challengers.pop(route.champion, None)
    if len(challengers) != 1:
        raise BadCall(
            "which challenger is to be promoted is not clear",
            where=name,
            found=f"{len(challengers)} challengers",
            hint="promote(name, version)",
        )
    return next(iter(challengers))


def address(name: str, version: str | int) -> str:
    """The address of a version of an endpoint, given by its address or by its number alone."""
    known = isinstance(version, str) and ("@" in version or version == name)
    return str(version) if known else f"{name}@{version}"


def addressed(name: str, route: Route) -> Route:
    """The route of an endpoint, with the addresses of versions that were given by number."""
    full = partial(address, name)
    return replace(
        route,
        champion=full(route.champion),
        split={full(version): share for version, share in route.split.items()},
        rules={condition: full(version) for condition, version in route.rules.items()},
        tenants={tenant: full(version) for tenant, version in route.tenants.items()},
        shadow=None if route.shadow is None else full(route.shadow),
    )


def promoted(name: str, route: Route, version: str | int | None) -> Route:
    """The route when a challenger is the champion; tenants keep their own."""
    champion = only_challenger(name, route) if version is None else address(name, version)
    without: Any = {"shadow": None, "sample": 1.0, "inline": None, "where": None}
    return replace(route, champion=champion, split={}, rules={}, **without)
