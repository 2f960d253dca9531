"""Progress of compiling in the background: a redrawn line on a terminal, and one at the end.

Elsewhere than on a terminal there is only the line at the end, in the log of events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from runtime.cli.output import CommandOutput, TaskProgress

if TYPE_CHECKING:
    from oven import Plan
    from runtime.service.version import Compiling

EVERY = 0.2


def follow(look: Callable[[], Compiling | None], out: CommandOutput) -> threading.Thread:
    """Tell from a thread of its own, until all code is there; `look` may not know it now."""
    made = threading.Thread(target=_tell, args=(look, out), name="pretzel-tells", daemon=True)
    made.start()
    return made


def _tell(look: Callable[[], Compiling | None], out: CommandOutput) -> None:
    start, now = time.monotonic(), _looked(look)
    most = now.versions
    if not most:
        return
    with TaskProgress("compiling", hidden=out.structured) as progress:
        while now.versions:
            most = max(most, now.versions)
            progress.step(progress_text(most - now.versions + 1, most, now.seconds))
            time.sleep(EVERY)
            now = _looked(look)
    seconds = time.monotonic() - start
    event = {"kind": "compiled", "name": "", "version": "", "where": "", "seconds": seconds}
    event["reason"] = _plans(most)
    out.event(event, f"compiled the code of {_plans(most)} in {seconds:.1f} s")


def _looked(look: Callable[[], Compiling | None]) -> Compiling:
    while (now := look()) is None:
        time.sleep(EVERY)
    return now


def progress_text(number: int, count: int, left: float) -> str:
    """Progress in words."""
    return f"{number} of {_plans(count)}, about {max(1, round(left))} s left"


def _plans(count: int) -> str:
    return f"{count:,} plan" if count == 1 else f"{count:,} plans"


def tier_facts(plan: Plan) -> dict[str, object]:
    """State of a plan loaded without compiling: what answers, and what is to be compiled."""
    return {"tier": plan.code.tier, "compile_seconds": round(plan.code.seconds_left, 2)}


def tier_text(tier: object, seconds: object) -> str:
    """State of a plan in words."""
    if tier:
        return f"{tier}: native code"
    later = f"until native code is there, about {seconds} s to compile"
    return f"{tier}: definitions, {later if seconds else 'as no compiler is installed'}"
