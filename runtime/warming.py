"""Compile ahead of time what plans need, for several processors: packs of machine code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from oven import Plan
from oven.entry.builtin import ONE, compiled
from oven.entry.generator import entry_code
from oven.entry.zipmap import zipped
from oven.plans import ahead
from oven.plans.string_views import VIEWS
from runtime.http.service import READERS
from runtime.onnx.native_session_run import STYLE, session_gate
from runtime.runtime import Runtime


class Warmed(NamedTuple):
    """A pack that was written."""

    level: str
    path: Path
    functions: int
    size: int


def warm(
    plans: Sequence[Path],
    names: Sequence[str],
    into: Path,
    told: Callable[[str, int], object] = lambda _level, _done: None,
) -> list[Warmed]:
    """Write a pack for each level, with all code that the plans need; `told` how many are done."""
    return [_warm(plans, name, into / f"{name}.pack", told) for name in names]


def _warm(
    plans: Sequence[Path], name: str, path: Path, told: Callable[[str, int], object]
) -> Warmed:
    pack = ahead.write_pack(plans, name, path, lambda done: told(name, done))
    return Warmed(name, path, len(pack), path.stat().st_size)


def use(plans: Sequence[Plan]) -> None:
    """Compile what serving these plans needs beyond their own code.

    It is called where code is compiled ahead of time: see oven.plans.ahead.
    """
    with Runtime(executors=1) as runtime:
        for number, plan in enumerate(plans):
            runtime.register(f"plan{number}", plan)
    for entry, style in ((zipped, ONE), (session_gate, STYLE)):
        code = entry_code(entry)
        if code is not None:
            compiled(code, style)
    for reader in (*READERS, VIEWS):
        reader.compiled()
