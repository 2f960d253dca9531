"""What a node became in an earlier model: its operators, as long as some program has them.

Models of one family often share what comes first: the vocabulary is the same, the classifier is
not. A node is known by its bytes, so an equal one with an equal input becomes the same operators,
and neither its lists are read nor the parameters made and named by their content once more.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from flour.core.op import Op
from flour.language.flow import Flow

#: Nodes that are remembered; of those that no program has any more, a few hundred bytes stay.
MOST = 256
_known: dict[str, tuple[weakref.ref[Op], ...]] = {}
_lock = threading.Lock()


def steps(key: str, source: Flow, make: Callable[[], Flow]) -> Flow:
    """What `make` makes of `source`, one operator upon the other.

    `key` names all that `make` depends on besides the source; an earlier answer for it stands if
    its operators are still there.
    """
    known = [found() for found in _known.get(key, ())]
    if known and None not in known:
        made = source
        for op in known:
            assert op is not None
            made = op(made)
        return made
    made = make()
    ops = _between(made, source)
    if ops:
        with _lock:
            _known.pop(key, None)
            _known[key] = tuple(map(weakref.ref, ops))
            while len(_known) > MOST:
                del _known[next(iter(_known))]
    return made


def _between(made: Flow, source: Flow) -> list[Op]:
    """The operators from the source to what was made; none where they are no chain."""
    found: list[Op] = []
    item = made.node
    while item is not source.node:
        if len(item.inputs) != 1:
            return []
        found.append(item.op)
        (item,) = item.inputs
    return found[::-1]
