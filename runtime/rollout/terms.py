"""What a rollout was asked to do, as data that can be written down and read again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, Self
from urllib.parse import urlsplit

from runtime.errors import BadCall
from runtime.rollout.criteria import Criterion
from runtime.rollout.criteria import read_criteria as read

#: The shares of keys, unless told otherwise.
STEPS = (5.0, 20.0, 50.0, 100.0)
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DWELL = re.compile(r"\s*([0-9.]+)\s*(s|min|h|d)\s*")


@dataclass(frozen=True, slots=True)
class Terms:
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
        rising = all(
            one < other for one, other in zip((0.0, *self.steps), self.steps, strict=False)
        )
        checks = (
            ("steps", bool(self.steps) and rising and self.steps[-1] <= 100, "rise to 100 at most"),
            ("dwell", isfinite(self.dwell) and self.dwell >= 0, "is a time: '10 min'"),
            ("alpha", 0 < self.alpha < 1, "is between 0 and 1"),
            ("least", self.least >= 1, "is a number of answers"),
            ("by", self.by is None or self.header is None, "is a column, or `header` is given"),
            ("webhook", _is_address(self.webhook), "is an address: 'http://host/path'"),
        )
        for part, fits, how in checks:
            if not fits:
                found = repr(getattr(self, part))[:100]
                raise BadCall(f"`{part}` of a rollout {how}", found=found)
        read(self.require)

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """What is required, with what is asked of every challenger."""
        return read(self.require)

    def to_data(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Self:
        """From plain data; what does not fit raises TypeError, ValueError or BadCall."""
        known = {each.name for each in fields(cls)}
        if not set(data) <= known:
            raise ValueError(f"{min(set(data) - known)!r} is no part of a rollout")
        for part, kind in _KINDS.items():
            if part in data and not isinstance(data[part], kind):
                raise TypeError(f"{part} is {type(data[part]).__name__}")
        steps, require = data.get("steps", STEPS), data.get("require", ())
        if not all(isinstance(each, str) for each in require):
            raise TypeError("a criterion is a text")
        listed = {"steps": tuple(map(float, steps)), "require": tuple(require)}
        return cls(**{**data, **listed})


_TEXT_OR_NONE = (str, type(None))
_KINDS: dict[str, Any] = {
    "champion": str,
    "to": str,
    "steps": (list, tuple),
    "dwell": (int, float),
    "require": (list, tuple),
    "by": _TEXT_OR_NONE,
    "header": _TEXT_OR_NONE,
    "alpha": (int, float),
    "least": int,
    "webhook": _TEXT_OR_NONE,
    "who": str,
}


def seconds_of(dwell: str | float) -> float:
    """A time as '10 min' or as seconds."""
    if not isinstance(dwell, str):
        return float(dwell)
    match = _DWELL.fullmatch(dwell)
    try:
        return float(match[1]) * _SECONDS[match[2]] if match else float("nan")
    except ValueError:
        return float("nan")


def texts_of(require: str | Sequence[str]) -> tuple[str, ...]:
    """Criteria as they are given: one or several."""
    return (require,) if isinstance(require, str) else tuple(require)


def _is_address(webhook: str | None) -> bool:
    if webhook is None:
        return True
    try:
        parts = urlsplit(webhook)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)
