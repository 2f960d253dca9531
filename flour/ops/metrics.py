"""The metrics of `Distances`: the term each column adds to a sum, and the distance from the
sums.

Every metric is written twice, for numpy and as the text of native code. The two stand side by side
because both must do the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Pair(NamedTuple):
    """A column of the row and of the point, its weight and the exponent: as numbers or as code."""

    x: Any
    y: Any
    w: Any
    p: Any


class Sums(NamedTuple):
    """The sums of a metric, the number of columns, and the exponent: as numbers or as code."""

    totals: tuple[Any, ...]
    columns: Any
    p: Any


class Metric(NamedTuple):
    """One way to measure distance, as sums over columns."""

    #: The term that a column adds to each sum, in numpy and as code.
    numbers: Callable[[Pair], tuple[Any, ...]]
    terms: Callable[[Pair], tuple[str, ...]]
    #: The distance from the sums, in numpy and as code.
    finish: Callable[[Sums], Any]
    code: Callable[[Sums], str]
    sums: int = 1
    #: The largest term is taken rather than the sum of all.
    largest: bool = False

    def step(self, sums: tuple[Any, ...], pair: Pair) -> tuple[Any, ...]:
        """The sums after one more column."""
        join: Callable[[Any, Any], Any] = np.maximum if self.largest else np.add
        pairs = zip(sums, self.numbers(pair), strict=True)
        return tuple(join(total, term) for total, term in pairs)


def _itself(s: Sums) -> Any:
    return s.totals[0]


def _square(a: Pair) -> Any:
    return (a.x - a.y) * (a.x - a.y)


def _apart(a: Pair) -> Any:
    return np.abs(a.x - a.y)


def _both(a: Pair) -> Any:
    return np.abs(a.x) + np.abs(a.y)


def _over(top: NDArray[Any], bottom: NDArray[Any]) -> Any:
    """top / bottom, zero where bottom is zero."""
    fine = bottom != 0
    return np.where(fine, top / np.where(fine, bottom, 1), 0.0)


def _text(template: str) -> Callable[[Pair], tuple[str, ...]]:
    """Terms as text, from a template over x, y, w and p; `;` parts the sums."""
    return lambda a: tuple(part.format(**a._asdict()) for part in template.split(";"))


_SQUARE = "({x} - {y}) * ({x} - {y})"
_APART = "abs({x} - {y})"
_BOTH = "(abs({x}) + abs({y}))"

METRICS: dict[str, Metric] = {
    "sqeuclidean": Metric(lambda a: (_square(a),), _text(_SQUARE), _itself, _itself),
    "euclidean": Metric(
        lambda a: (_square(a),),
        _text(_SQUARE),
        lambda s: np.sqrt(s.totals[0]),
        lambda s: f"sqrt({s.totals[0]})",
    ),
    "manhattan": Metric(lambda a: (_apart(a),), _text(_APART), _itself, _itself),
    "chebyshev": Metric(lambda a: (_apart(a),), _text(_APART), _itself, _itself, largest=True),
    "minkowski": Metric(
        lambda a: (a.w * _apart(a) ** a.p,),
        _text("{w} * " + _APART + " ** {p}"),
        lambda s: s.totals[0] ** (1 / s.p),
        lambda s: f"({s.totals[0]} ** (1.0 / {s.p}))",
    ),
    "seuclidean": Metric(
        lambda a: (_square(a) / a.w,),
        _text(_SQUARE + " / {w}"),
        lambda s: np.sqrt(s.totals[0]),
        lambda s: f"sqrt({s.totals[0]})",
    ),
    "canberra": Metric(
        lambda a: (_over(_apart(a), _both(a)),),
        _text(f"({_APART} / {_BOTH} if {_BOTH} != 0.0 else 0.0)"),
        _itself,
        _itself,
    ),
    "braycurtis": Metric(
        lambda a: (_apart(a), _both(a)),
        _text(f"{_APART};{_BOTH}"),
        lambda s: _over(s.totals[0], s.totals[1]),
        lambda s: f"({s.totals[0]} / {s.totals[1]} if {s.totals[1]} != 0.0 else 0.0)",
        sums=2,
    ),
    "hamming": Metric(
        lambda a: ((a.x != a.y) * 1.0,),
        _text("(1.0 if {x} != {y} else 0.0)"),
        lambda s: s.totals[0] / s.columns,
        lambda s: f"({s.totals[0]} / {s.columns})",
    ),
    # The distance behind the chi2 kernels, for histograms: squared differences over sums.
    "chi2": Metric(
        lambda a: (_over(_square(a), a.x + a.y),),
        _text(f"({_SQUARE} / ({{x}} + {{y}}) if ({{x}} + {{y}}) != 0.0 else 0.0)"),
        _itself,
        _itself,
    ),
}
