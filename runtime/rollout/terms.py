"""The request for a rollout, as data that can be written down and read again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from flour.core.errors import check_values, is_number
from runtime.errors import BadCall
from runtime.rollout.criteria import EXAMPLES, Criterion
from runtime.rollout.criteria import read_criteria as read

#: The shares of keys, unless told otherwise.
STEPS = (5.0, 20.0, 50.0, 100.0)
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DWELL = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*(s|min|h|d)\s*")


@dataclass(frozen=True, slots=True)
class RolloutTerms:
    """The versions, the shares of keys one after the other, and what the challenger has to be."""

    champion: str
    to: str
    steps: tuple[float, ...] = STEPS
    dwell: float = 600.0
    require: tuple[str, ...] = ()
    by: str | None = None
    header: str | None = None
    alpha: float = 0.05
    least: int = 100
    webhook: str | None = None
    who: str = ""

    def __post_init__(self) -> None:
        """Check everything that can be checked without an endpoint."""
        one = self.by is None or self.header is None
        parts: tuple[tuple[str, object, str], ...] = (
            ("champion", isinstance(self.champion, str), "a version: 'fraud@3'"),
            ("to", isinstance(self.to, str), "a version: 'fraud@4'"),
            ("steps", _rise(self.steps), "shares that rise to 100 at most: (5, 20, 50, 100)"),
            ("dwell", is_number(self.dwell), "seconds, or a time: '30 s', '10 min', '2 h', '1 d'"),
            ("require", isinstance(self.require, tuple), f"criteria: {EXAMPLES}"),
            ("by", one and isinstance(self.by, str | None), "a column, or `header` is given"),
            ("header", isinstance(self.header, str | None), "a header: 'x-user'"),
            ("alpha", is_number(self.alpha) and 0 < self.alpha < 1, "a probability: 0.05"),
            ("least", type(self.least) is int and self.least > 0, "a number of answers: 100"),
            ("webhook", _is_address(self.webhook), "an address: 'http://host/path'"),
            ("who", isinstance(self.who, str), "a name: 'ann'"),
        )
        told = ((part, getattr(self, part), fits, meaning) for part, fits, meaning in parts)
        check_values(told, "a rollout cannot have such terms", str(self.to)[:100], BadCall)
        read(self.require)

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """Its own criteria, and those of every challenger."""
        return read(self.require)

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> RolloutTerms:
        """From plain data, or as a caller has them: a `dwell` as text, one criterion, lists."""
        known = {each.name for each in fields(cls)}
        if not set(data) <= known:
            raise ValueError(f"{min(set(data) - known)!r} is no part of a rollout")
        made = {"require": (), "steps": STEPS, **data}
        require = made["require"]
        if "dwell" in data:
            made["dwell"] = seconds_of(data["dwell"])
        made["require"] = _listed((require,) if isinstance(require, str) else require)
        return cls(**{**made, "steps": _listed(made["steps"])})


def seconds_of(given: object) -> Any:
    """The seconds of a time such as "10 min"; anything else as it is."""
    match = _DWELL.fullmatch(given) if isinstance(given, str) else None
    return given if match is None else float(match[1]) * _SECONDS[match[2]]


def _listed(given: object) -> object:
    return tuple(given) if isinstance(given, Iterable) else given


def _rise(steps: object) -> bool:
    """True if these shares rise."""
    if not isinstance(steps, tuple) or not all(map(is_number, steps)):
        return False
    rising = all(one < other for one, other in pairwise((0.0, *steps)))
    return rising and 0 < max(steps, default=0.0) <= 100


def _is_address(webhook: object) -> bool:
    if not isinstance(webhook, str):
        return webhook is None
    try:
        parts = urlsplit(webhook)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)
