"""Extension points: places in rooms above, "module:attribute", that Runtime's methods call."""

from __future__ import annotations

from typing import Any

from flour.core.modules import imported

_places: dict[str, str] = {}


def declare(point: str, place: str) -> None:
    """Say where to find what extends a point."""
    _places[point] = place


def extension(point: str) -> Any:
    """The function that extends a point, its module imported when it is first used."""
    module, _, name = _places[point].partition(":")
    return getattr(imported(module), name)
