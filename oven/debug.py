"""The debug ladder: what a bake did, as much of it as PRETZEL_DEBUG asks for.

    PRETZEL_DEBUG=1   stages, cache hits, compile time
    PRETZEL_DEBUG=2   passes that changed something, with time
    PRETZEL_DEBUG=3   each rule firing: before, after, file and line
    PRETZEL_DEBUG=4   emitted source
    PRETZEL_DEBUG=5   LLVM IR and assembly

A level shows all below it. PRETZEL_DUMP=directory writes every one of these as files, one directory
for each plan and one file for each step, numbered in order, so that two runs can be compared.
Everything goes through one entry, `say`, to standard error.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flour.core.errors import ParameterError

DEEPEST = 5
_lock = threading.Lock()
#: Where texts go instead of standard error.
_sink: Callable[[str], object] | None = None


def level() -> int:
    """The amount to show: 0 is nothing."""
    asked = os.environ.get("PRETZEL_DEBUG", "0") or "0"
    if not asked.isdecimal():
        raise ParameterError(
            "PRETZEL_DEBUG is a level", found=repr(asked), hint=f"a number from 0 to {DEEPEST}"
        )
    return int(asked)


def say(at: int, text: str) -> None:
    """Show a text at this level and above."""
    if level() < at:
        return
    if _sink is not None:
        _sink(text)
        return
    with _lock:
        sys.stderr.write(text + "\n")


@contextmanager
def captured() -> Iterator[list[str]]:
    """Collect what is said meanwhile, instead of showing it."""
    global _sink  # noqa: PLW0603 (the one entry is a variable so that tests can stand behind it)
    said: list[str] = []
    before, _sink = _sink, said.append
    try:
        yield said
    finally:
        _sink = before


def asked() -> bool:
    """True if anybody wants to know anything."""
    return level() > 0 or bool(os.environ.get("PRETZEL_DUMP"))
