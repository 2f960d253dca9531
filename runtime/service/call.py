"""The options of a call: outputs, a deadline, a priority, an engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from flour.core.errors import nearest
from runtime.errors import BadCall
from runtime.service.version import ModelVersion
from scheduler import Engine

#: How long a call with a timeout computes between two looks at the clock.
BETWEEN_SECONDS = 5e-3


class Call(NamedTuple):
    """The options of a call."""

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
        version: ModelVersion,
        outputs: str | Iterable[str] | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        engine: str | None = None,
        *,
        blocking: bool = True,
    ) -> Call:
        """The options of a caller, checked."""
        if outputs is None and timeout is None and priority is None and engine is None:
            return PLAIN if blocking else NONBLOCKING
        if priority is not None and not hasattr(priority, "__index__"):
            raise BadCall("a priority is an integer", found=repr(priority)[:60])
        deadline = None if timeout is None else time.monotonic() + _seconds(timeout)
        names, where = named_outputs(outputs, version.outputs, version.owner), _engine(engine)
        if names == version.outputs:
            names = None
        return cls(names, timeout, deadline, priority or 0, where, blocking)

    @property
    def is_usual(self) -> bool:
        """True if it may go by the entry: no executor is asked for, no deadline is near."""
        near = self.timeout is not None and self.timeout < BETWEEN_SECONDS
        return self.engine is not Engine.BATCH and not near


#: A call without options, and one whose caller must not be held up.
PLAIN, NONBLOCKING = Call(), Call(blocking=False)


def _seconds(timeout: float) -> float:
    with suppress(TypeError, OverflowError):  # as of words and of huge integers
        if timeout >= 0:  # not NaN either
            return float(timeout)
    raise BadCall("a timeout is a number of seconds", found=repr(timeout)[:60])


def _engine(name: str | None) -> Engine | None:
    if name is None:
        return None
    engines = {each.value: each for each in Engine}
    if name not in engines:
        raise BadCall("there is no such engine", found=repr(name), hint=" or ".join(engines))
    return engines[name]


def named_outputs(wanted: object, known: Sequence[str], whose: str) -> tuple[str, ...] | None:
    """The outputs that a caller names: one by its name, or some, each once; None for all."""
    if wanted is None:
        return None
    given: Iterable[object] = (wanted,)
    if not isinstance(wanted, str | bytes) and isinstance(wanted, Iterable):
        given = wanted
    names: list[str] = []
    for name in given:
        if not isinstance(name, str) or name not in known:
            what, hint = f"{whose} has no output {name!r:.60}", nearest(name, known)
            raise BadCall(what, found=f"outputs: {', '.join(known)}", hint=hint)
        names.append(known[known.index(name)])  # its text, whatever `name` shows as
    if not names:
        hint, every = "name at least one, or leave `outputs` out for all of them", ", ".join(known)
        raise BadCall("no output is asked for", where=whose, found=f"outputs: {every}", hint=hint)
    if len(names) > 1 and len({*names}) < len(names):
        raise BadCall("an output is asked for twice", where=whose, found=", ".join(names)[:200])
    return tuple(names)
