"""A cache of the operators that nodes became in earlier models, while some program has them.

Models of one family often share their first nodes: the vocabulary is the same, the classifier is
not. The cache key is a node's bytes, so an equal node with an equal input becomes the same
operators: its lists are not read, nor its parameters built and hashed, a second time.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from flour.core.op import Op
from flour.language.flow import Flow

#: The most entries; an entry that no program uses any more takes a few hundred bytes.
MOST = 256
_remembered: dict[str, tuple[weakref.ref[Op], ...]] = {}
_lock = threading.Lock()


def steps(key: str, source: Flow, make: Callable[[], Flow]) -> Flow:
    """The result of `make`: a chain of operators on `source`.

    `key` identifies everything that `make` depends on besides the source; the operators of an
    earlier call with the same key are used again if they still exist.
    """
    stored = [reference() for reference in _remembered.get(key, ())]
    if stored and None not in stored:
        flow = source
        for op in stored:
            assert op is not None
            flow = op(flow)
        return flow
    flow = make()
    ops = _between(flow, source)
    if ops:
        with _lock:
            _remembered.pop(key, None)
            _remembered[key] = tuple(map(weakref.ref, ops))
            while len(_remembered) > MOST:
                del _remembered[next(iter(_remembered))]
    return flow


def _between(flow: Flow, source: Flow) -> list[Op]:
    """The operators from the source to the flow; none if they are no chain."""
    ops: list[Op] = []
    item = flow.node
    while item is not source.node:
        if len(item.inputs) != 1:
            return []
        ops.append(item.op)
        (item,) = item.inputs
    return ops[::-1]
