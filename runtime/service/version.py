"""One version of an endpoint: its plan, the way in, and what is counted of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter, thread_time
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from flour.core.types import Category, Pairs, Record, Scalar, Text, Tokens, Type, Vector
from oven import Plan
from runtime.service.inputs import refuse_extra

if TYPE_CHECKING:
    from oven.entry.array_entry import Call
    from runtime.service.materialise import Shared
    from scheduler import Decision

#: One call in so many by the shortest way is timed, and one in so many others; powers of two.
SAMPLE = 64
INLINE_SAMPLE = 8
#: Blocks that make native code touch less than this take some 20 us at most and go in like single
#: rows; so do those that were seen to take no longer than some time.
FEW_BYTES = 1 << 20
FEW_SECONDS = 50e-6
#: Documents up to this length take some 50 us at most.
SHORT_CHARACTERS = 1 << 12
#: What a document takes however short it is, in characters.
DOCUMENT = 32
#: From a call of some rows nothing is concluded about one of more than so many times as many.
_FARTHER = 4
#: What the first value of a row may be, for the shortest way; of a row that is a vector.
VALUES: frozenset[type] = frozenset(
    {float, int, str, bool, type(None), np.float64, np.float32, np.int64, np.bool_}
)
NUMBERS: frozenset[type] = frozenset({float, int})


class Counter:
    """Counts from any number of threads without a lock: `next` on it is one step of C code."""

    __slots__ = ("calls", "tick")

    def __init__(self) -> None:
        self.calls = count(1)
        self.tick = self.calls.__next__

    @property
    def value(self) -> int:
        """How often `tick` was called."""
        return int(repr(self.calls)[6:-1]) - 1  # "count(12)": looking must not count


class ModelVersion:
    """A registered version. Calls hold on to what they have taken from it, and take it once."""

    __slots__ = (
        *(
            "__weakref__",
            "batch",
            "call",
            "calls",
            "characters",
            "classes",
            "columns",
            "decision",
            "digest",
            "direct",
        ),
        *(
            "entry",
            "entry_work",
            "few",
            "first",
            "front",
            "grows",
            "inline",
            "inputs",
            "kinds",
            "lock",
            "name",
            "named",
            "outputs",
            "owner",
        ),
        *("mixes_rows", "notes", "path", "pins", "plan"),
        *("reserved", "retired", "row_work", "shared", "slow", "soon", "text", "tick", "vector"),
        "version",
    )

    def __init__(self, name: str, version: str, plan: Plan, *, reserved: int = 0) -> None:
        self.name, self.version = name, version
        #: The name parameters, costs and executors are accounted under.
        self.owner = f"{name}@{version}"
        self.inputs: dict[str, Type] = plan.inputs
        self.kinds: dict[str, Type] = plan.outputs
        self.outputs = tuple(self.kinds)
        #: What stands for each column of the probabilities, where the plan looks labels up.
        self.classes = plan.classes
        #: What a front end has worked out for this version; it goes when the version goes.
        self.front: object | None = None
        self.digest = plan.digest
        #: Whether answers depend on other rows, so that requests must not go together.
        self.mixes_rows = plan.mixes_rows
        #: Where the plan can be had again: the file it came from, or one it was written to.
        self.path: Path | None = None
        self.plan: Plan | None = plan  # None while it is dropped for memory
        self.entry: Call | None = None
        self.call: Call | None = None  # the entry, while single rows may take the shortest way
        self.reserved = reserved
        #: What whoever registered it wants front ends to know; see Runtime.register.
        self.notes: Mapping[str, object] = {}
        self.shared: Shared | None = None  # what it has in common with others, worth keeping
        #: Whether single rows may go in by the shortest way: measured, they are over at once.
        self.direct = True
        #: Whether they are over before they could be handed over: event loops may make them, too.
        #: Until one was measured, by what code says of itself.
        self.soon = False
        #: Whether calls by that way take long, next to a look at the clock.
        self.slow = True
        self.few = 0  # blocks of up to so many rows may, too
        self.characters = 0  # and blocks of documents of up to so many, with DOCUMENT for each
        self.row_work: int | None = None  # bytes that a row touches, where that is known
        self.entry_work: int | None = None  # the same of the entry, where that is machine code
        self.retired = False  # whether it was unregistered
        kinds = list(self.inputs.values())
        self.vector = len(kinds) == 1 and isinstance(kinds[0], Vector | Record)
        self.text = len(kinds) == 1 and isinstance(kinds[0], Text)
        #: Whether what a row takes depends on how long it is.
        self.grows = any(isinstance(kind, Text | Pairs | Tokens) for kind in kinds)
        #: The values of a row by name, of records and the like: one with these needs no look.
        self.columns = frozenset[str]()
        #: What the first value of a row that is a list may be.
        self.first: frozenset[type] = NUMBERS
        if len(kinds) == 1 and isinstance(kinds[0], Record):
            self.columns, self.first = frozenset(kinds[0].names), VALUES
        elif len(kinds) > 1 and all(isinstance(kind, Scalar | Category | Text) for kind in kinds):
            self.columns = frozenset(self.inputs)
        self.named = bool(self.columns)
        self.lock = threading.RLock()  # while the plan comes or goes, and for `pins`
        self.pins = 0  # calls by executors that are on their way
        self.inline, self.batch = Counter(), Counter()
        self.tick, self.calls = self.inline.tick, self.inline.calls
        self.decision: Decision | None = None  # the last one

    def clock(self) -> float:
        """Seconds to measure calls by: what native code works, what other code takes."""
        return thread_time() if self.row_work is not None else perf_counter()

    def open(self) -> None:
        """Let single rows in by the shortest way, where nothing speaks against it."""
        with self.lock:
            self._open(self.plan)

    def _open(self, plan: Plan | None) -> None:
        shared = self.shared
        sharing = shared is not None and shared.group.rows.mode != "off"
        if self._shares_blocks():
            self.characters = 0
        if plan is None or sharing or not self.direct or not plan.ready:
            self.call = None
            return
        if self.entry is None:
            self.entry, self.row_work = plan.entry(partial(_look, self.inputs)), plan.row_work
            native = isinstance(self.entry, BuiltinFunctionType)
            self.entry_work = plan.entry_work if native else None
            self.few = self._least()
            self.soon = self.entry_work is not None and self.entry_work < FEW_BYTES
        self.call = self.entry

    def _least(self) -> int:
        """How many rows are few, whatever they take."""
        if self.entry_work is None or not self.vector:
            return 0
        return FEW_BYTES // max(self.entry_work, 1)

    def took(self, rows: int, seconds: float) -> None:
        """Learn from a call how many rows are few: a row may touch little of what there is."""
        if self.vector and self.entry_work is not None and _FARTHER * rows >= self.few:
            self.few = max(self._least(), _soon(rows, seconds))

    def read(self, documents: Any, seconds: float) -> None:
        """Learn from a call how many characters are few: documents vary in length."""
        if not self.text or self.entry_work is None or self._shares_blocks():
            return
        size = characters([documents] if type(documents) is str else documents)
        if _FARTHER * size >= self.characters and size:
            self.characters = _soon(size, seconds)

    def _shares_blocks(self) -> bool:
        """Whether blocks go by a common first part, which the shortest way does not know."""
        return self.shared is not None and self.shared.group.blocks.mode != "off"

    def is_few(self, data: Any) -> bool:
        """Whether this is a list of documents, and not too many for the shortest way."""
        if not self.text or type(data) is not list or DOCUMENT * len(data) > self.characters:
            return False
        return 0 < characters(data) <= self.characters

    def drop(self) -> None:
        """Let the plan go; calls on their way keep what they have taken."""
        with self.lock:
            plan = self.plan
            self.call = self.entry = self.plan = None
        if plan is not None:
            plan.release()

    def pin(self) -> None:
        """A call needs the plan until it says otherwise."""
        with self.lock:
            self.pins += 1

    def unpin(self) -> None:
        """A call that pinned the plan is over."""
        with self.lock:
            self.pins -= 1

    def __repr__(self) -> str:
        return f"Served({self.owner})"


def characters(documents: Any) -> int:
    """How large a list of documents is, with DOCUMENT for each; 0 if it is none."""
    if type(documents) is not list or not all(type(each) is str for each in documents):
        return 0
    return DOCUMENT * len(documents) + sum(map(len, documents))


def _soon(size: int, seconds: float) -> int:
    """How much is few, if so much took so long."""
    return min(_FARTHER * size, int(size * FEW_SECONDS / max(seconds, 1e-9)))


def _look(inputs: dict[str, Type], data: object) -> None:
    """Refuse a row with a column too many, which only machine code has seen so far."""
    if type(data) is dict:
        refuse_extra(inputs, data)
