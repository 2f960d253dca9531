"""One version of an endpoint, in records by who writes them.

what          written by                    holds
(itself)      registration, once            name, inputs, outputs, digest, notes
entry         opening, and learning         what a call by the plan's entry reads
learned       the engines, from calls       what calls take, and what follows from it
residence     runtime.service.memory        the plan while it is in memory, its file, its pins
counts        every call                    calls by engine
shared        runtime.service.materialise   what it has in common with other versions
front         the front end                 what it has worked out for this version
watcher       runtime.watch                 what is shown batches
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter, thread_time
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from flour.core.errors import check_values, is_count, is_number
from flour.core.types import Pairs, Text, Tokens, Type
from flour.data.batch import Batch, Form
from oven import Plan
from oven.entry import nearby
from runtime.errors import BadRegistration
from runtime.service.entry import RARE, UNTIMED, Counter, InlineEntry, OutputsEntry
from runtime.service.private import private_columns, spelt
from scheduler import Settings, cores

if TYPE_CHECKING:
    from oven.entry.array_entry import Call
    from runtime.service.groups import SharedVersion
    from scheduler import Decision

#: Batches that make native code touch less than this take some 20 us at most and go to the entry
#: like single rows; so do those that were seen to take no longer than INLINE_SECONDS.
INLINE_BYTES = 1 << 20
#: Before a call has taken so long, helpers would gain nothing: they have to be asked first.
INLINE_SECONDS = min(
    Settings().instant, Settings().native_dispatch * cores() / max(cores() - 1, 1e-9)
)
#: Notes that are numbers, for front ends: seconds, and counts.
_NUMBERS = dict.fromkeys(("batch_wait", "batch_objective"), is_number)
_NUMBERS |= dict.fromkeys(("batch_rows", "cache_bytes"), is_count)
#: Calls by the entry that take longer than this are timed more often: a look at the clock, and at
#: what is due, is a fifth of such a call.
COARSE_SECONDS = 20e-6
#: Nothing is concluded from a call about one that is larger by more than this factor.
_FARTHER = 4
#: Choices of outputs that a version keeps calls for, each under its names in their order.
_MOST_PARTS = 64


class Compiling(NamedTuple):
    """The code of some versions that is still to be compiled."""

    versions: int
    seconds: float

    @classmethod
    def of(cls, versions: Iterable[ModelVersion]) -> Compiling:
        """The number of these that are not ready, and about how long they will take."""
        left = [each.seconds_left for each in versions if not each.ready]
        return cls(len(left), max(left, default=0.0))


class EngineCounts:
    """The number of calls each engine answered."""

    __slots__ = ("batch", "inline")

    def __init__(self) -> None:
        self.inline, self.batch = Counter(), Counter()


class Learned:
    """Knowledge about a version's calls."""

    __slots__ = (
        *("decided", "decision", "entry_work", "inline_ok", "native", "nonblocking", "row_work"),
    )

    def __init__(self) -> None:
        #: Bytes that a row makes the plan touch, and its entry; None where no code says so.
        self.row_work: int | None = None
        self.entry_work: int | None = None
        #: Whether single rows take little enough time, as measured, to go to the entry.
        self.inline_ok = True
        #: Whether threads share its blocks in native code; a guess until they have.
        self.native = False
        #: Whether they are over before they could be handed over, so that event loops may make
        #: them, too. Until one was measured, this is what the code says of itself.
        self.nonblocking = False
        #: By rows what a decision was about, the decision, and for how many calls alike it still
        #: stands; and the decision that a call followed.
        self.decided: dict[int, tuple[tuple[object, ...], Decision, int]] = {}
        self.decision: Decision | None = None


class Residence:
    """The place of a plan: memory or a file. The lock is held while it comes or goes."""

    __slots__ = ("booked", "lock", "opened", "path", "pins", "plan", "retired")

    def __init__(self, plan: Plan) -> None:
        self.lock = threading.RLock()
        self.plan: Plan | None = plan  # None while it is dropped for memory
        #: The entry of this plan, once it was opened.
        self.opened: Call | None = None
        #: The file that the plan can be loaded from again.
        self.path: Path | None = None
        #: Calls by executors that are on their way; their plan is not dropped.
        self.pins = 0
        #: Whether the version was unregistered.
        self.retired = False
        #: True if a memory budget counts it, and what calls have it make.
        self.booked = False


class Watcher(Protocol):
    """An observer of a version's batches."""

    def __call__(self, batch: Batch, weight: int, seconds: float) -> None:
        """See a batch that stands for `weight` like it, and how long it took, if that is known."""

    @property
    def rest(self) -> int:
        """The calls by the entry to look at: see InlineEntry."""

    def refused(self, data: object) -> None:
        """See a batch that the entry refuses, or data that cannot be read."""

    def close(self) -> None:
        """The runtime is closed: no more will come."""


class ModelVersion:
    """A registered version. Calls hold on to what they have taken from it, and take it once."""

    __slots__ = (
        *("__weakref__", "classes", "close_by", "counts", "digest", "entry", "front", "grows"),
        *("hides", "inputs", "kinds", "learned", "mixes_rows", "name", "notes", "outputs", "owner"),
        *("private", "reader", "reserved", "residence", "settled", "shared", "version", "waits"),
        "watcher",
    )

    def __init__(
        self,
        name: str,
        version: str,
        plan: Plan,
        *,
        reserved: int = 0,
        notes: Mapping[str, object] | None = None,
    ) -> None:
        self.name, self.version = name, version
        #: The name parameters, costs and executors are accounted under.
        self.owner = f"{name}@{version}"
        self.inputs: dict[str, Type] = plan.inputs
        #: The types of the outputs, by name.
        self.kinds: dict[str, Type] = plan.outputs
        self.outputs = tuple(self.kinds)
        #: The label for each column of the probabilities, where the plan looks labels up.
        self.classes = plan.classes
        self.digest = plan.digest
        #: Whether answers depend on other rows, so that requests must not go together.
        self.mixes_rows = plan.mixes_rows
        #: Whether requests may have to wait for something else than a processor.
        self.waits = plan.waits
        #: Whether the time of a row depends on how long it is.
        self.grows = any(isinstance(kind, Text | Pairs | Tokens) for kind in self.inputs.values())
        fits = isinstance(reserved, bool) or is_count(reserved)
        option = [("reserve", reserved, fits, "executors, or True for one")]
        check_values(option, "a version cannot have such an option", self.owner, BadRegistration)
        self.reserved = int(reserved)
        #: For front ends; see Runtime.register.
        self.notes: Mapping[str, object] = dict(notes or {})
        numbers = [(name, self.notes[name]) for name in _NUMBERS if name in self.notes]
        told = ((n, v, _NUMBERS[n](v), "0 or more, and whole if it counts") for n, v in numbers)
        check_values(told, "a note is not of its type", self.owner, BadRegistration)
        #: Columns whose values are not to be seen, by its own notes and by those of all versions
        #: that are registered under its name; see runtime.service.private.
        self.hides = private_columns(self.notes, self.inputs, self.owner)
        self.private = spelt(self.hides, self.inputs)
        #: Makes the batch of a call's data.
        self.reader = plan.reader
        self.counts, self.learned, self.residence = EngineCounts(), Learned(), Residence(plan)
        self.entry = InlineEntry(self.reader, self.outputs, self.counts.inline)
        #: The addresses of what a call by the entry reads: see runtime.service.native_predict.
        self.close_by = b""
        self.shared: SharedVersion | None = None
        self.front: object | None = None
        #: Is shown all batches that take no entry or are refused by it, and some others that take
        #: it, with the calls that each stands for; None where nothing watches: see runtime.watch.
        self.watcher: Watcher | None = None
        #: Set once its code is there, and what calls go through is opened; or there can be none.
        self.settled = threading.Event()

    @property
    def ready(self) -> bool:
        """True if the usual calls compile nothing, as all their code is there."""
        return self.settled.is_set()

    @property
    def seconds_left(self) -> float:
        """About how long it will take until it is ready."""
        plan = self.plan
        return 0.0 if self.ready or plan is None else plan.code.seconds_left

    @property
    def plan(self) -> Plan | None:
        """The plan; None while it is dropped for memory."""
        return self.residence.plan

    @property
    def training(self) -> Mapping[str, Any]:
        """Facts about the training, from the plan's file and from the notes."""
        plan, noted = self.plan, self.notes.get("training")
        known = plan.training() if isinstance(plan, Plan) else {}
        return {**known, **noted} if isinstance(noted, Mapping) else known

    def clock(self) -> float:
        """Seconds to measure calls by: processor time of native code, wall time of other code."""
        return thread_time() if self.learned.row_work is not None else perf_counter()

    # --- the entry ---------------------------------------------------------------------------

    def open(self) -> None:
        """Let single rows in by the entry, unless they share results or take too long for it."""
        with self.residence.lock:
            plan, shared = self.residence.plan, self.shared
            sharing = shared is not None and shared.group.rows.mode != "off"
            if self._shares_blocks():
                self.entry.inline_characters = 0
            closed = self.waits or not self.learned.inline_ok
            if plan is None or sharing or closed or not plan.ready:
                self.entry.function = None
                return
            if self.residence.opened is None:
                self._open(plan)
            self.entry.function = self.residence.opened

    def _open(self, plan: Plan) -> None:
        """Open the plan's entry, and learn what the code says of itself."""
        opened = plan.entry()
        work = plan.code.entry_work if isinstance(opened, BuiltinFunctionType) else None
        self.residence.opened, learned = opened, self.learned
        whole = OutputsEntry(opened, self.outputs, self.outputs)
        self.entry.parts[self.outputs] = whole
        if len(self.outputs) == 1:
            self.entry.parts[self.outputs[0]] = whole
        learned.row_work, learned.entry_work = plan.code.row_work, work
        learned.native = work is not None
        learned.nonblocking = work is not None and work < INLINE_BYTES
        if self.watcher is None:  # how long texts take, code does not say
            brief = learned.nonblocking and not (self.grows or self.residence.booked)
            self.entry.rest = RARE - 1 if brief else UNTIMED
        self.entry.inline_rows = self._least_rows()
        self.close_by = nearby.lines(opened, self.entry, self.entry.calls, self.entry.places)

    def part(self, names: tuple[str, ...]) -> OutputsEntry:
        """The call for these outputs: of a plan of their own, or the whole until that is there."""
        found = self.entry.parts.get(names)
        if found is not None:
            return found
        with self.residence.lock:
            plan, opened = self.residence.plan, self.entry.function
            alone = None if plan is None else plan.variants.of_outputs(names)
            if alone is None:
                found = OutputsEntry(opened, names, self.outputs)
            else:
                found = OutputsEntry(alone.entry(), names, [*alone.outputs])
            stays = opened is not None and plan is not None and plan.variants.is_settled(names)
            if stays and len(self.entry.parts) < _MOST_PARTS:
                self.entry.parts[names] = found
                if len(names) == 1:  # without a list, too
                    self.entry.parts[names[0]] = found
        return found

    def unpin(self) -> None:
        """End a call that pinned the plan; until then, the call keeps the version, too."""
        with self.residence.lock:
            self.residence.pins -= 1

    def close_watcher(self) -> None:
        """Let what watches write what is left."""
        if self.watcher is not None:
            self.watcher.close()

    def drop(self) -> None:
        """Let the plan go; calls on their way keep what they have taken."""
        residence = self.residence
        with residence.lock:
            plan = residence.plan
            self.entry.function = residence.opened = residence.plan = None
            self.entry.parts.clear()
        if plan is not None:
            self.reader.nulls.learn()
            plan.program.release()

    # --- learning ----------------------------------------------------------------------------

    def learn(self, batch: Batch, seconds: float) -> None:
        """Learn from a call how many rows, and characters of documents, may take the entry."""
        if self.learned.entry_work is None:
            return
        rows = max(batch.rows, 1)
        is_read = batch.kind is not Form.ROWS  # making numbers of objects says nothing of arrays
        if is_read and self._has_columns and _FARTHER * rows >= self.entry.inline_rows:
            # A row may touch little of the plan's parameters, so what was measured counts as well.
            self.entry.inline_rows = max(self._least_rows(), _size_within(rows, seconds))
        if self.reader.text and not self._shares_blocks():
            size = batch.characters  # documents vary in length
            if size and _FARTHER * size >= self.entry.inline_characters:
                self.entry.inline_characters = _size_within(size, seconds)

    def timed(self, batch: Batch, seconds: float) -> None:
        """A call by the entry was timed: show it to what watches; how often to time is learned."""
        watcher, rest = self.watcher, UNTIMED if seconds > COARSE_SECONDS else RARE - 1
        if watcher is not None:
            watcher(batch, 1 + (self.entry.rest & UNTIMED), seconds)
            rest = watcher.rest
        self.entry.rest = rest

    def seen(self, batch: Batch) -> None:
        """A batch is answered without the entry: show it to what watches."""
        if self.watcher is not None:
            self.watcher(batch, 1, 0.0)

    def read(self, data: object) -> Batch:
        """The batch of a call's data; what watches is told of data that cannot be read."""
        try:
            return self.reader.read(data)
        except Exception:
            self.refused(data)
            raise

    def refused(self, data: object) -> None:
        """A batch, or data that cannot be read, is not answered: tell what watches."""
        if self.watcher is not None:
            self.watcher.refused(data)

    def _least_rows(self) -> int:
        """The number of rows that may take the entry, whatever time they need."""
        work = self.learned.entry_work
        return INLINE_BYTES // max(work, 1) if work is not None and self._has_columns else 0

    @property
    def _has_columns(self) -> bool:
        """True if blocks come in arrays whose rows all take about as long."""
        return self.reader.vector or self.reader.by_column

    def _shares_blocks(self) -> bool:
        """True if blocks go by a common first part, which the entry does not know."""
        return self.shared is not None and self.shared.group.blocks.mode != "off"

    def __repr__(self) -> str:
        return f"ModelVersion({self.owner})"


def _size_within(size: int, seconds: float) -> int:
    """The size that takes INLINE_SECONDS, if this one took these seconds."""
    return min(_FARTHER * size, int(size * INLINE_SECONDS / max(seconds, 1e-9)))
