"""The installation that plans are compiled and called in: interpreter, processor, code at hand."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NamedTuple

from objectstore import system
from oven.compiler import cache, levels, machine
from oven.entry.interpreter import object_layout


class CodeCache(NamedTuple):
    """The folder of compiled code."""

    folder: Path
    doubt: str
    """The reason for which it is not used; empty if it is."""
    functions: int
    size: int


class Installation(NamedTuple):
    """The parts that decide how fast plans are here."""

    processor: str
    compiler: str
    """Empty if there is none."""
    entries: bool
    """True if machine code reads the interpreter's objects."""
    functions: int
    """The number of functions in packs for this processor."""
    warnings: tuple[str, ...]
    """Packs that are not used, with the reasons."""
    cache: CodeCache


def installation() -> Installation:
    """Examine this process's installation."""
    level = levels.best(machine.triple(), machine.features())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        functions = sum(map(len, cache.at_hand()))
    folder = cache.directory()
    doubt = system.doubt_of(folder.stat()) if folder.is_dir() else ""
    if folder.exists() and not folder.is_dir():
        doubt = "it is no folder"
    return Installation(
        machine.cpu() if level is None else level.name,
        machine.version() if machine.is_there() else "",
        object_layout() is not None,
        functions,
        tuple(str(each.message) for each in told),
        CodeCache(folder, doubt, *cache.usage()),
    )


def compiled() -> int:
    """The number of functions that this process has compiled so far."""
    return cache.counters.compiled
