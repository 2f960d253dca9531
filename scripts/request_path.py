"""Which files and rooms a prediction passes through, measured on calls of `Runtime.predict`.

The calls are those that machine code does not answer alone: rows as lists, and columns by name.
What happens on the threads of executors is not seen.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 (the checkout comes first)

import flour  # noqa: E402 (as above)
from runtime import Runtime  # noqa: E402 (as above)

PACKAGES = ("flour", "objectstore", "oven", "runtime", "scheduler")
#: So many calls, and what is made by a version's first ones has been made.
WARM = 300


def request_path() -> dict[str, float]:
    """Return the gauges of a request: those of the call that passes through most files."""
    with Runtime(executors=1) as runtime:
        paths = [entered(call) for call in calls(runtime)]
    rooms = [{".".join(name.split(".")[:2]) for name in path} for path in paths]
    return {
        "request: files": max(len(set(path)) for path in paths),
        "request: rooms": max(map(len, rooms)),
        "request: most entries into a file": max(max(Counter(p).values()) for p in paths),
    }


def calls(runtime: Runtime) -> list[Callable[[], object]]:
    """Return calls of `predict`, all of them made often enough before."""
    runtime.register("rows", flour.vector("x", 4).linear([[1.0, 2.0, 3.0, 4.0]], [1.0]))
    runtime.register("columns", flour.scalar("a") + flour.scalar("b"))
    rows = np.ones((10, 4)).tolist()
    columns = {"a": np.ones(10), "b": np.ones(10)}
    for _ in range(WARM):
        runtime.predict("rows", rows)
        runtime.predict("columns", columns)
    return [lambda: runtime.predict("rows", rows), lambda: runtime.predict("columns", columns)]


def entered(call: Callable[[], object]) -> list[str]:
    """Return the modules of ours in which functions are called, in order, none twice in a row."""
    names: list[str] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            names.append(frame.f_globals.get("__name__", ""))

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    ours = [name for name in names if name.split(".")[0] in PACKAGES]
    return [name for name, _ in groupby(ours)]
