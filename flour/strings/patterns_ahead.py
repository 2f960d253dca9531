"""A table of the states of an automaton from which a match is still to come.

Reading a document backwards gives, at each position, the set of states with a match ahead. Sets of
states are numbered in the order of their first use, which is the usual construction of an automaton
from sets of states, on the reversed document. A pattern that looks ahead by a bounded number of
characters may have very many such sets; it gets no table, and needs none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from objectstore import Blob

_MOST_SETS = 2000
_MOST_NUMBERS = 1_000_000

#: No table.
NONE = Blob.of(np.zeros(1, np.int32))


def hopes(moves: NDArray[np.int32]) -> Blob:
    """The table that oven.compiler.intrinsics.patterns.text_hopeful reads, of the moves of (state,
    kind).

    A state is hopeful ahead of a character if what was read before is a match, or if the character
    leads to a state that is hopeful behind it.
    """
    states, kinds = moves.shape
    matched, onward = moves & 1 == 1, moves >> 1
    sets: list[NDArray[np.bool_]] = [np.zeros(states, bool)]
    ways: list[list[int]] = []
    numbers = {sets[0].tobytes(): 0}
    while len(ways) < len(sets):
        if len(sets) > _MOST_SETS or len(sets) * (kinds + states) > _MOST_NUMBERS:
            return NONE
        ahead = matched | sets[len(ways)][onward]
        if ways:
            ahead[:, -1] = False  # nothing follows the end
        ways.append([_number(np.ascontiguousarray(one), sets, numbers) for one in ahead.T])
    table = np.concatenate([np.array(ways, np.int32), np.array(sets, np.int32)], axis=1)
    return Blob.of(np.concatenate([[states], table.reshape(-1)]).astype(np.int32))


def _number(
    members: NDArray[np.bool_], sets: list[NDArray[np.bool_]], numbers: dict[bytes, int]
) -> int:
    """The number of a set, which may be a new one."""
    key = members.tobytes()
    if key not in numbers:
        numbers[key] = len(sets)
        sets.append(members)
    return numbers[key]
