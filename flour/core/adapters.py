"""Which estimator becomes which program: a table by dotted name, so nothing is imported to fill it.

    @adapts("sklearn.preprocessing.MaxAbsScaler")
    def _max_abs(fit, x, to):
        return to.floats(x).divide(fit.scale_)

The function gets the fitted estimator, the flow that reaches it and the importer (for children
and common conversions). A transformer returns its features; a predictor returns a dict of named
outputs (label, probabilities, scores, value, distances).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from flour.language.flow import Flow
    from flour.sklearn.importer import Importer

Adapted = "Flow | dict[str, Flow]"
Adapter = Callable[[Any, "Flow", "Importer"], Any]
ADAPTERS: dict[str, Adapter] = {}
#: Dotted name -> why it is not native yet ("planned: ...") or never will be ("refused: ...").
NOT_NATIVE: dict[str, str] = {}
_registered = [0]
_F = TypeVar("_F", bound=Adapter)


def adapts(*names: str) -> Callable[[_F], _F]:
    """Register an adapter for classes by their public dotted names."""

    def register(adapter: _F) -> _F:
        for name in names:
            ADAPTERS[name] = adapter
            _registered[0] += 1
        return adapter

    return register


def registered() -> int:
    """How often an adapter was registered: with others, estimators become other programs."""
    return _registered[0]


def declines(reason: str, *names: str) -> None:
    """Say why classes have no adapter; `reason` starts with "planned" or "refused"."""
    for name in names:
        NOT_NATIVE[name] = reason


def public_name(cls: type) -> str:
    """The dotted name a class is imported by: its module down to the first private part."""
    parts = takewhile(lambda part: not part.startswith("_"), cls.__module__.split("."))
    return ".".join([*parts, cls.__qualname__])
