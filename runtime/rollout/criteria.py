"""Conditions that a challenger has to fulfil, read from texts.

errors < 0.1 %            the share of requests that fail
errors < 1x champion      the same, by that of the champion
p99 < 5 ms                99 of 100 requests take less; any percentile
agreement > 98 %          the share of rows to which both say the same, asked as a shadow
conversion > 0.9x champion, conversion > 2 %     the mean of values that are reported, from 0 to 1
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite, log
from typing import NamedTuple

from runtime.errors import BadCall
from runtime.rollout.evidence import against_at_least, against_at_most, lower, upper

ERRORS, AGREEMENT = "errors", "agreement"
#: What is asked of every challenger of which nothing is said about errors.
USUAL = "errors < 1x champion"
EXAMPLES = (
    "'errors < 0.1 %', 'errors < 1.5x champion', 'p99 < 5 ms', 'agreement > 98 %', "
    "'conversion > 2 %'"
)
_UNITS = {"%": 0.01, "s": 1.0, "ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "": 1.0}
_TEXT = re.compile(
    r"\s*(?P<name>[A-Za-z_][\w.]*)\s*(?P<sign><|>)\s*(?P<number>[0-9.]+(?:e-?[0-9]+)?)\s*"
    r"(?:(?P<times>x)\s*champion|(?P<unit>%|ms|us|\u00b5s|s)?)\s*"
)
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")


#: Of the false alarms, those spent on what the champion's mean may be: it has most of the requests.
_CHAMPIONS_SHARE = 0.1


class UnitSum(NamedTuple):
    """So many values from 0 to 1, and their sum."""

    total: float = 0.0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.total / self.number:.3g} over {self.number}" if self.number else "none yet"


_NONE = UnitSum()


class Criterion(NamedTuple):
    """A bound for a mean of values from 0 to 1, or for its ratio to the champion's.

    A percentile of latency is one for the share of requests that take `seconds` or more.
    """

    text: str
    name: str
    at_most: bool
    bound: float
    relative: bool
    seconds: float | None = None

    @property
    def metric(self) -> str:
        """The metric that is counted for it."""
        return self.name if self.seconds is None else f"{self.name} {self.seconds!r}"

    def is_broken(self, challenger: UnitSum, champion: UnitSum, alpha: float) -> bool:
        """True if the challenger clearly is not so.

        Where it is so, this ever becomes true with a probability of `alpha` at most, however often
        one asks while values come.
        """
        if not challenger.number or (self.relative and not champion.number):
            return False
        bound, level = self.bound, alpha
        if self.relative:
            spent = alpha * _CHAMPIONS_SHARE
            known = upper(*champion, spent) if self.at_most else lower(*champion, spent)
            bound, level = self.bound * known, alpha - spent
        against = against_at_most if self.at_most else against_at_least
        return against(*challenger, bound) >= -log(level)


def read_criteria(texts: Iterable[str]) -> tuple[Criterion, ...]:
    """The criteria in these texts, and the usual one of errors unless they have one."""
    found = [_read(text) for text in ([texts] if isinstance(texts, str) else texts)]
    if not any(each.name == ERRORS for each in found):
        found.append(_read(USUAL))
    if len({(each.metric, each.at_most) for each in found}) < len(found):
        raise BadCall(
            "two criteria are about the same", found="; ".join(each.text for each in found)
        )
    return tuple(found)


def _read(text: object) -> Criterion:
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None or not isinstance(text, str):
        raise BadCall("this is no criterion", found=repr(text)[:100], hint=EXAMPLES)
    name, at_most, relative = match["name"], match["sign"] == "<", match["times"] is not None
    unit = match["unit"] or ""
    try:
        number = float(match["number"]) * _UNITS[unit]
    except ValueError:
        number = -1.0
    percentile = _PERCENTILE.fullmatch(name)
    wrong = _trouble(name, number, unit, at_most=at_most, relative=relative, percentile=percentile)
    if wrong:
        where = text.strip()[:100]
        raise BadCall("this criterion cannot be", where=where, found=wrong, hint=EXAMPLES)
    if percentile is not None:
        share = 1.0 - float(percentile[1]) / 100.0
        return Criterion(text.strip(), name, True, share, False, number)
    return Criterion(text.strip(), name, at_most, number, relative)


def _trouble(  # noqa: PLR0911 (each is a reason of its own)
    name: str,
    number: float,
    unit: str,
    *,
    at_most: bool,
    relative: bool,
    percentile: re.Match[str] | None,
) -> str:
    """Why a criterion cannot be; empty where it can."""
    if not isfinite(number) or number <= 0:
        return "the bound is no positive number"
    if percentile is not None:
        if relative or unit not in {"s", "ms", "us", "\u00b5s"}:
            return "a percentile has a bound in s, ms or us"
        if not at_most or float(percentile[1]) == 0:
            return "a percentile is below a bound: p99 < 5 ms"
        return ""
    if unit in {"s", "ms", "us", "\u00b5s"}:
        return f"{name} is no time; percentiles are p50, p99 and so on"
    if not relative and number >= 1:
        return "a share is below 1, or 100 %"
    if name == ERRORS and not at_most:
        return "errors are below a bound"
    if name == AGREEMENT and (at_most or relative):
        return "agreement is above a bound: agreement > 98 %"
    return ""


def is_percentile(name: str) -> bool:
    """True if a metric is one of latency."""
    return _PERCENTILE.match(name) is not None


def counted(counts: Mapping[str, UnitSum], criterion: Criterion) -> UnitSum:
    """The counts of a criterion."""
    return counts.get(criterion.metric, _NONE)
