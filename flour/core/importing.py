"""Modules that are imported when they are first needed."""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType


def imported(name: str) -> ModuleType:
    """A module of ours, imported while the garbage collector pauses.

    What importing makes stays. In a process with large libraries, looking at all objects for
    garbage takes longer than all our modules do, which make enough objects to set it off.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if paused:
            gc.enable()
