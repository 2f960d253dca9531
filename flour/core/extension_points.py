"""Extension points: what a lower room calls without naming the room above that has it.

    declare("native_plan", "oven:bake")             in one list: flour/__init__.py
    extension("native_plan")(flow, exact=False)     where it is called, in flour/language/flow.py

A place is "module:attribute". Its module is imported when the point is first used, so that a
process pays only for what it does, and the import linter sees arrows that point one way.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

#: Called with plans whose code is compiled ahead of time, to compile what serving them needs beyond
#: it. Another process imports these functions by their names.
code_users: list[Callable[[Sequence[Any]], object]] = []

_places: dict[str, list[str]] = {}
_found: dict[str, tuple[Any, ...]] = {}


def declare(point: str, *places: str) -> None:
    """Say where to find what extends a point; a place that was declared before stays one."""
    known = _places.setdefault(point, [])
    known.extend(place for place in places if place not in known)
    _found.pop(point, None)


def declared() -> dict[str, tuple[str, ...]]:
    """The places of every point."""
    return {point: tuple(places) for point, places in _places.items()}


def extensions(point: str) -> tuple[Any, ...]:
    """Everything that extends a point, in the order in which it was declared."""
    found = _found.get(point)
    if found is None:
        found = _found[point] = tuple(map(_resolve, _places.get(point, ())))
    return found


def extension(point: str) -> Any:
    """The one thing that extends a point; the last one declared, where there are several."""
    found = extensions(point)
    if not found:
        raise LookupError(f"nothing extends {point!r}: flour/__init__.py declares what does")
    return found[-1]


def _resolve(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(imported(module), name)


@contextmanager
def paused_collector() -> Iterator[None]:
    """Inside, nothing looks for garbage.

    Importing modules and baking make objects that stay. They are enough to set off a look at all
    objects of the process, which takes longer than both where large libraries are loaded.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def imported(name: str) -> ModuleType:
    """A module of ours, imported while the collector pauses."""
    with paused_collector():
        return import_module(name)
