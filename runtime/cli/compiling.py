"""How far compiling in the background is: a line on a terminal that is redrawn, and one at its end.

Elsewhere than on a terminal there is only the line at the end, in the log of events.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runtime.cli.output import Output
from runtime.cli.progress import Progress

if TYPE_CHECKING:
    from oven import Plan
    from runtime import Runtime
    from runtime.service.version import ModelVersion

EVERY = 0.2


def follow(runtime: Runtime, out: Output) -> threading.Thread:
    """Tell from a thread of its own, until all code is there."""
    every = [each for each in runtime.versions().values() if not each.ready]
    made = threading.Thread(target=_tell, args=(every, out), name="pretzel-tells", daemon=True)
    made.start()
    return made


def _tell(every: Sequence[ModelVersion], out: Output) -> None:
    start = time.monotonic()
    if not every:
        return
    with Progress("compiling", hidden=out.as_json) as progress:
        while waiting := [each for each in every if not each.ready]:
            left = max(each.seconds_left for each in waiting)
            progress.step(progress_text(len(every) - len(waiting) + 1, len(every), left))
            time.sleep(EVERY)
    seconds = time.monotonic() - start
    out.note(f"compiled the code of {_plans(len(every))} in {seconds:.1f} s")
    if out.as_json:
        event = {"kind": "compiled", "name": "", "version": "", "where": "", "seconds": seconds}
        sys.stderr.write(json.dumps({**event, "reason": _plans(len(every))}) + "\n")
        sys.stderr.flush()


def progress_text(number: int, count: int, left: float) -> str:
    """How far it is, in words."""
    return f"{number} of {_plans(count)}, about {max(1, round(left))} s left"


def _plans(count: int) -> str:
    return f"{count:,} plan" if count == 1 else f"{count:,} plans"


def tier_facts(plan: Plan) -> dict[str, object]:
    """What answers for a plan that was loaded without compiling, and what is to be compiled."""
    return {"tier": plan.tier, "compile_seconds": round(plan.seconds_left, 2)}


def tier_text(tier: object, seconds: object) -> str:
    """The same in words."""
    answers = "native code" if tier else "definitions, until native code is there"
    return f"{tier}: {answers}{f', about {seconds} s to compile' if seconds else ''}"
