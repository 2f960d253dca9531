"""Which engine answers a call: what is known of the call and the plan, put to the policy.

The policy itself is scheduler/policy.py, where it is written down in words. What it needs of a
plan is measured: one call in sixteen by the shortest way, and every chunk of an executor.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from flour.core.types import Category, Record, Scalar, Type, Vector
from runtime.errors import BadCall
from runtime.service.version import ModelVersion
from scheduler import Ask, Decision, Engine, Estimate, Load, Settings, choose, cores

#: Of this machine: callers and executors share them, however many executors there are.
CORES = cores()
#: A single row that takes longer than this is worth a look at the queue and the deadline.
DIRECT_SECONDS = 500e-6


class Call(NamedTuple):
    """What a caller asks for, besides the data."""

    outputs: tuple[str, ...] | None = None
    timeout: float | None = None
    #: When that is over, by `time.monotonic`; it runs from the call, not from the queue.
    deadline: float | None = None
    priority: int = 0
    engine: Engine | None = None
    blocking: bool = True

    @classmethod
    def of(
        cls,
        served: ModelVersion,
        outputs: str | Iterable[str] | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        engine: str | None = None,
        *,
        blocking: bool = True,
    ) -> Call:
        """The wishes of a caller, checked."""
        if outputs is None and timeout is None and priority is None and engine is None:
            return ANY if blocking else LOOSE
        if timeout is not None and not timeout >= 0:  # not NaN either
            raise BadCall("a timeout is a number of seconds", found=repr(timeout))
        deadline = None if timeout is None else time.monotonic() + timeout
        wanted, where = _outputs(served, outputs), _engine(engine)
        return cls(wanted, timeout, deadline, priority or 0, where, blocking)


#: A caller without wishes, and one that must not be held up.
ANY, LOOSE = Call(), Call(blocking=False)


def _engine(name: str | None) -> Engine | None:
    if name is None:
        return None
    known = {each.value: each for each in Engine}
    if name not in known:
        raise BadCall("there is no such engine", found=repr(name), hint=" or ".join(known))
    return known[name]


def _outputs(served: ModelVersion, wanted: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if wanted is None:
        return None
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    for name in names:
        if name not in served.outputs:
            found = "outputs: " + ", ".join(served.outputs)
            raise BadCall(f"{served.owner} has no output {name!r}", found=found)
    return names


def decide(
    served: ModelVersion,
    call: Call,
    rows: int,
    load: Load,
    *,
    estimate: Estimate | None,
    inline_callers: int,
    settings: Settings,
) -> Decision:
    """The engine for a call, and why."""
    ask = Ask(
        rows=rows,
        estimate=estimate,
        blocking=call.blocking,
        remaining=inf if call.timeout is None else call.timeout,
        row_bytes=row_bytes(served),
        engine=call.engine,
        reserved=bool(served.reserved),
        inline_callers=inline_callers,
        whole=served.mixes_rows,
        cores=CORES,
    )
    return choose(ask, load, settings)


def row_bytes(served: ModelVersion) -> int:
    """About how many bytes a row takes; 0 for native code, which cuts tiles itself."""
    if served.row_work is not None:
        return 0
    return sum(_bytes(kind) for kind in served.inputs.values())


def _bytes(kind: Type) -> int:
    match kind:
        case Vector(width=width):
            return 8 * width
        case Record(fields):
            return sum(_bytes(sub) for _, sub in fields)
        case Scalar() | Category():
            return 8
    return 0  # texts are as long as they are
