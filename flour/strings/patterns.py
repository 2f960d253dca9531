"""Regular expressions as automata that find what Python's `re` finds, or not at all.

Python tries the ways to match in a fixed order and takes the first that succeeds. A state of the
automaton is the list of its possible positions in the pattern, in that same order; once a match is
in the list, the positions behind it are dropped. So alternatives and lazy repeats match as in
Python. Patterns that automata cannot match, or would match slightly differently, have none:
looks behind or at several characters, references to groups, possessive repeats, patterns that match
the empty string.

The class of a character (word, space, letter of either case) is found by matching `re` itself on
each character, with the pattern's own flags.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.strings import unicode
from objectstore import Blob

_MOST_STATES = 2000
_MOST_STEPS = 4000
_MOST_KINDS = 250


class Automaton(NamedTuple):
    """A compiled pattern, as oven.compiler.intrinsics.patterns.text_tokens reads it.

    A token is the match without its first `before` characters, cut to `inside` characters or, where
    `inside` is negative, without its last `behind`.
    """

    characters: unicode.Kinds
    moves: Blob
    after: Blob
    #: The states that have a match ahead (see flour.strings.patterns).
    hopes: Blob
    kinds: int
    shortest: int
    #: If not 0, matches are the runs of at least this many characters of kind 1.
    run: int = 0
    before: int = 0
    inside: int = -1
    behind: int = 0

    @property
    def tables(self) -> tuple[Blob, ...]:
        """The tables whose addresses native code takes, in its order."""
        return (*self.characters, self.moves, self.after, self.hopes)

    @property
    def trims(self) -> bool:
        """True if a token is shorter than its match."""
        return (self.before, self.inside, self.behind) != (0, -1, 0)


class _Unlike(Exception):
    """No automaton matches as this pattern does."""


@lru_cache(maxsize=64)
def automaton(pattern: str) -> Automaton | None:
    """The automaton of a pattern, or None where it has none."""
    try:
        return _Compiler(pattern).automaton()
    except (_Unlike, ImportError, AttributeError, re.error, RecursionError):
        return None


@lru_cache(maxsize=64)
def first_is_longest(pattern: str) -> bool:
    """True if the match that Python takes, which comes first, is always the longest there."""
    try:
        first, longest = _Compiler(pattern).both()
    except (_Unlike, ImportError, AttributeError, re.error, RecursionError):
        return False
    pairs = set(zip(first[1].tolist(), longest[1].tolist(), strict=True))
    waiting = list(pairs)
    while waiting:
        left, right = waiting.pop()
        for one, other in zip(first[0][left].tolist(), longest[0][right].tolist(), strict=True):
            if (one ^ other) & 1:
                return False
            pair = (one >> 1, other >> 1)
            if pair not in pairs:
                pairs.add(pair)
                waiting.append(pair)
    return True


# One step of a pattern: what it is (a character of a set, a boundary, a fork, the end), its set
# or kind, and where it leads.
_CHARACTER, _BOUNDARY, _FORK, _END, _AHEAD = range(5)
#: The kinds of items that match one character.
_SINGLE = ("LITERAL", "NOT_LITERAL", "IN", "ANY")
_Step = tuple[int, Any, int, int]
# Where a pattern is between two characters: its steps, the likeliest first, and whether the
# character before was one of a word.
_State = tuple[tuple[int, ...], bool]
_Tables = tuple[NDArray[np.int32], NDArray[np.int32]]


def _of_python(part: str) -> Any:
    """A part of Python's own engine: private, so it may be gone; to 3.10 it had another name."""
    later = {"parse": "parser", "compile": "compiler"}.get(part, part)
    return import_module(f"re._{later}" if sys.version_info >= (3, 11) else f"sre_{part}")


class _Compiler:
    """Turns one pattern into steps, and steps into states."""

    def __init__(self, pattern: str) -> None:
        # Private, so it may be gone; to Python 3.10 under another name.
        name = "re._parser" if sys.version_info >= (3, 11) else "sre_parse"
        parser: Any = import_module(name)
        self.parsed = parser.parse(pattern)
        self.flags: int = self.parsed.state.flags
        self.steps: list[_Step] = []
        self.sets: dict[str, int] = {}
        self.members: list[unicode.Runs] = []
        self.bounded = False

    def automaton(self) -> Automaton:
        """The whole pattern."""
        shortest = int(self.parsed.getwidth()[0])
        if shortest < 1 or self.flags & (re.LOCALE | re.DEBUG):
            raise _Unlike
        before, inside, behind = self._group()
        first = self._sequence(list(self.parsed), self._step(_END))
        kinds, members, words = self._kinds()
        moves, after = _states(self.steps, first, members, words)
        count = members.shape[1]
        run = shortest if count == 3 and self._is_run(list(self.parsed)) else 0
        ahead = NONE if run else hopes(moves)
        tables = (Blob.of(moves.reshape(-1)), Blob.of(after), ahead)
        return Automaton(kinds, *tables, count, shortest, run, before, inside, behind)

    def both(self) -> tuple[_Tables, _Tables]:
        """The moves that find the first way to match, and those that find the longest match."""
        first = self._sequence(list(self.parsed), self._step(_END))
        _, members, words = self._kinds()
        tables = [_states(self.steps, first, members, words, longest=how) for how in (False, True)]
        return tables[0], tables[1]

    def _is_run(self, items: list[Any]) -> bool:
        """True if the pattern matches whole runs of one kind of characters."""
        kinds = [(str(kind), what) for kind, what in items]
        if kinds[0] == kinds[-1] and str(kinds[0][1]) == "AT_BOUNDARY":
            # Boundaries are where runs of words end, but not those of anything else.
            if not np.array_equal(self._words(), self.members[0]):
                return False
            kinds = kinds[1:-1]
        greedy = kinds[-1][0] == "MAX_REPEAT" and str(kinds[-1][1][1]) == "MAXREPEAT"
        single = all(kind in (*_SINGLE, "MAX_REPEAT") for kind, _ in kinds)
        inner = [what[2] for kind, what in kinds if kind == "MAX_REPEAT"]
        plain = all(len(each) == 1 and str(each[0][0]) in _SINGLE for each in inner)
        return greedy and single and plain and len(self.members) == 1

    # --- what a match is cut down to ----------------------------------------------------------

    def _group(self) -> tuple[int, int, int]:
        """The sizes of the text before the group, of the group (-1: varies), and behind it."""
        if self.parsed.state.groups == 1:
            return 0, -1, 0
        items = list(self.parsed)
        groups = [
            i for i, (kind, what) in enumerate(items) if str(kind) == "SUBPATTERN" and what[0] == 1
        ]
        if self.parsed.state.groups != 2 or len(groups) != 1:
            raise _Unlike
        widths = [self._width(item) for item in items]
        index = groups[0]
        before, (least, most) = _fixed(widths[:index]), widths[index]
        if least == most:
            return before, least, 0
        return before, -1, _fixed(widths[index + 1 :])

    def _width(self, item: object) -> tuple[int, int]:
        bounds = self._pattern([item]).getwidth()
        return int(bounds[0]), int(bounds[1])

    def _pattern(self, items: list[Any]) -> Any:
        return type(self.parsed)(self.parsed.state, items)

    # --- from the parsed pattern to steps -----------------------------------------------------

    def _step(self, kind: int, what: object = None, one: int = -1, other: int = -1) -> int:
        if len(self.steps) >= _MOST_STEPS:
            raise _Unlike
        self.steps.append((kind, what, one, other))
        return len(self.steps) - 1

    def _sequence(self, items: Any, then: int) -> int:
        """The first step of items one after the other."""
        for item in reversed(list(items)):
            then = self._item(item, then)
        return then

    def _item(self, item: Any, then: int) -> int:
        kind, what = str(item[0]), item[1]
        match kind:
            case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY":
                return self._step(_CHARACTER, self._set(item), then)
            case "AT":
                return self._boundary(str(what), then)
            case "ASSERT" | "ASSERT_NOT" if what[0] == 1 and len(what[1]) == 1:
                if str(what[1][0][0]) not in _SINGLE:
                    raise _Unlike
                return self._step(_AHEAD, (self._set(what[1][0]), kind == "ASSERT"), then)
            case "SUBPATTERN":
                _, added, dropped, inner = what
                if added or dropped:
                    raise _Unlike
                return self._sequence(inner, then)
            case "BRANCH":
                firsts = [self._sequence(branch, then) for branch in what[1]]
                fork = firsts[-1]
                for first in reversed(firsts[:-1]):
                    fork = self._step(_FORK, None, first, fork)
                return fork
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(what, then, lazy=kind == "MIN_REPEAT")
        raise _Unlike

    def _boundary(self, what: str, then: int) -> int:
        if what not in ("AT_BOUNDARY", "AT_NON_BOUNDARY"):
            raise _Unlike
        self.bounded = True
        return self._step(_BOUNDARY, what == "AT_BOUNDARY", then)

    def _repeat(self, what: Any, then: int, *, lazy: bool) -> int:
        least, most, inner = what
        if inner.getwidth()[0] < 1:
            raise _Unlike  # the rules for empty rounds of a repeat are subtle
        least, endless = int(least), str(most) == "MAXREPEAT"
        if endless:
            fork = self._step(_FORK)
            body = self._sequence(inner, fork)
            self.steps[fork] = (_FORK, None, *((then, body) if lazy else (body, then)))
            then = fork
        end = then
        for _ in range(0 if endless else int(most) - least):
            body = self._sequence(inner, then)
            then = self._step(_FORK, None, *((end, body) if lazy else (body, end)))
        for _ in range(least):
            then = self._sequence(inner, then)
        return then

    # --- characters ---------------------------------------------------------------------------

    def _set(self, item: Sequence[Any]) -> int:
        """The number of the set of characters that an item matches."""
        name = repr(item)
        if name not in self.sets:
            self.sets[name] = len(self.members)
            self.members.append(self._matching(item))
        return self.sets[name]

    def _words(self) -> unicode.Runs:
        """The characters between which and others there is a boundary."""
        if self.flags & re.ASCII:
            return unicode.matched(re.compile(r"\w+", re.ASCII))
        return unicode.words()

    def _matching(self, item: Sequence[Any]) -> unicode.Runs:
        is_word = str(item) == "(IN, [(CATEGORY, CATEGORY_WORD)])"
        if is_word and not self.flags & (re.ASCII | re.IGNORECASE):
            return unicode.words()
        if not self.flags & re.IGNORECASE and (runs := _runs(item)) is not None:
            return runs
        constants = _of_python("constants")
        again = (constants.MAX_REPEAT, (1, constants.MAXREPEAT, self._pattern([item])))
        return unicode.matched(_of_python("compile").compile(self._pattern([again]), self.flags))

    def _kinds(self) -> tuple[unicode.Kinds, NDArray[np.bool_], NDArray[np.bool_]]:
        """Characters that are in the same sets are of one kind: (kind of each, sets, words).

        The last kind is the end of a document, which is in no set and no word.
        """
        every = list(self.members)
        if self.bounded:
            every.append(self._words())
        if len(every) > 60:
            raise _Unlike
        # Between two places where a run begins or ends, all characters are in the same sets.
        bounds = np.unique(np.concatenate([[0], *every]))
        bounds = bounds[bounds < unicode.CHARACTERS]
        marks = np.zeros(len(bounds), np.int64)
        for bit, member in enumerate(every):
            marks |= unicode.inside(member, bounds).astype(np.int64) << bit
        different, kind = np.unique(marks, return_inverse=True)
        if len(different) > _MOST_KINDS:
            raise _Unlike
        bits = (different[None, :] >> np.arange(len(every))[:, None]) & 1 == 1
        bits = np.concatenate([bits, np.zeros((len(every), 1), bool)], axis=1)
        words = bits[-1] if self.bounded else np.zeros(bits.shape[1], bool)
        return unicode.kinds_between(bounds, kind.reshape(-1)), bits, words


def _runs(item: Sequence[Any]) -> unicode.Runs | None:
    """The characters of a set that is spelt out, without asking `re` for each; None: it is not."""
    parts = [(str(kind), what) for kind, what in item[1]] if str(item[0]) == "IN" else []
    kinds = {kind for kind, _ in parts}
    if not parts or not kinds <= {"RANGE", "LITERAL", "NEGATE"}:
        return None
    changes = np.zeros(unicode.CHARACTERS + 1, np.int32)
    for kind, what in parts:
        if kind != "NEGATE":
            first, last = what if kind == "RANGE" else (what, what)
            changes[first] += 1
            changes[last + 1] -= 1
    members = (np.cumsum(changes[:-1]) > 0) ^ ("NEGATE" in kinds)
    return np.flatnonzero(np.diff(members.astype(np.int8), prepend=0, append=0))


def _fixed(widths: list[tuple[int, int]]) -> int:
    """The fixed number of characters that these items match together."""
    if any(least != most for least, most in widths):
        raise _Unlike
    return sum(least for least, _ in widths)


# --- from steps to states -------------------------------------------------------------------------


def _states(
    steps: list[_Step],
    first: int,
    members: NDArray[np.bool_],
    words: NDArray[np.bool_],
    *,
    longest: bool = False,
) -> _Tables:
    """The moves of every state, and the start state behind each kind of character."""
    kinds = members.shape[1]
    starts: list[_State] = [((first,), bool(word)) for word in words]
    numbers: dict[_State, int] = {}
    waiting: list[_State] = []

    def number(state: _State) -> int:
        if not state[0]:
            return 0
        if state not in numbers:
            if len(numbers) >= _MOST_STATES:
                raise _Unlike
            numbers[state] = len(numbers) + 1
            waiting.append(state)
        return numbers[state]

    after = [number(state) for state in starts]
    rows = [[0] * kinds]
    while len(rows) <= len(numbers):
        threads, word = waiting[len(rows) - 1]
        row = []
        for kind in range(kinds):
            between = (word, bool(words[kind]))
            here, matched = _closure(steps, threads, between, members[:, kind], longest=longest)
            ahead = dict.fromkeys(steps[s][2] for s in here if members[steps[s][1], kind])
            row.append(2 * number((tuple(ahead), bool(words[kind]))) + matched)
        rows.append(row)
    return np.array(rows, np.int32), np.array(after, np.int32)


def _closure(
    steps: list[_Step],
    threads: tuple[int, ...],
    words: tuple[bool, bool],
    ahead: NDArray[np.bool_],
    *,
    longest: bool = False,
) -> tuple[list[int], bool]:
    """The steps that wait for a character, the likeliest first, up to the first that is the end.

    For the longest match, the steps behind the end are kept, too.
    """
    waiting: list[int] = []
    visited: set[int] = set()
    matched = False
    stack = list(reversed(threads))
    while stack:
        step = stack.pop()
        if step in visited:
            continue
        visited.add(step)
        kind, what, one, other = steps[step]
        if kind == _END:
            matched = True
            if not longest:
                break
        elif kind == _CHARACTER:
            waiting.append(step)
        elif kind == _FORK:
            stack += [other, one]
        elif kind == _AHEAD:
            stack += [one] * (bool(ahead[what[0]]) == what[1])
        elif (words[0] != words[1]) == what:
            stack.append(one)
    return waiting, matched


# --- states with a match ahead --------------------------------------------------------------------


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
