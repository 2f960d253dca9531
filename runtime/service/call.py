"""The options of a call: outputs, a deadline, a priority, an engine."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from runtime.errors import BadCall
from runtime.service.version import ModelVersion
from scheduler import Engine


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
        names, where = _outputs(version, outputs), _engine(engine)
        return cls(names, timeout, deadline, priority or 0, where, blocking)


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


def _outputs(version: ModelVersion, wanted: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if wanted is None:
        return None
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    for name in names:
        if name not in version.outputs:
            found = "outputs: " + ", ".join(version.outputs)
            raise BadCall(f"{version.owner} has no output {name!r}", found=found)
    return names
