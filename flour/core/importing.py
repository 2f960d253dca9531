"""Modules that are imported when they are first needed; the collector pauses meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


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
