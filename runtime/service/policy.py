"""The choice of where a batch runs: by the plan's entry, inline, or on executors.

`Policy.choose` is the one place that is asked. What of it needs figures (inline or by executors, in
chunks of how many rows) is decided by scheduler/policy.py, where it is written down in words; the
figures are measured: one call in 64 by the entry, one in eight others, and every chunk.
"""

from __future__ import annotations

import enum
from math import inf
from typing import NamedTuple

import numpy as np

from flour.data.batch import DOCUMENT, Batch, Form
from runtime.service.call import BETWEEN_SECONDS, PLAIN, Call
from runtime.service.costs import Costs
from runtime.service.engines import CORES, Engines
from runtime.service.version import ModelVersion
from scheduler import Ask, Decision, Engine, Settings, choose

#: A single row that takes longer than this is worth a look at the queue and the deadline.
DIRECT_SECONDS = 500e-6
#: Documents up to this length take some 50 us at most.
SHORT_CHARACTERS = 1 << 12
#: So many calls that are alike follow the decision for the one before them: what is measured
#: changes little from one to the next, and deciding takes as long as computing some hundred rows.
ALIKE = 32
#: Sizes of calls whose decisions are kept.
SIZES = 16
NOT_HERE = "its code or its parameters are not here yet, and the caller must not be held up"


class Way(enum.Enum):
    """The way a batch is answered."""

    ENTRY = "by the plan's entry, on the caller's thread"
    INLINE = "by the plan, on the caller's thread"
    SHARED = "by the plan, on the caller's thread and by executors that help"
    CHUNKS = "by executors, in chunks"
    WHOLE = "by an executor in one piece, which may wait for a file or a compiler"


class Choice(NamedTuple):
    """The engine of a batch, and the policy's reasons."""

    way: Way
    decision: Decision


_ROW = Form.ROW
#: The choices that need no figures.
BY_ENTRY = Choice(
    Way.ENTRY, Decision(Engine.INLINE, "a single row, or few, go to the plan's entry", 1)
)
UNDIVIDED = Choice(
    Way.INLINE, Decision(Engine.INLINE, "executors gain nothing from what is not divided", 1)
)


class Policy:
    """Chooses where batches run, by what was measured and how busy the engines are."""

    def __init__(self, engines: Engines, costs: Costs, settings: Settings | None = None) -> None:
        self._engines, self._costs = engines, costs
        self.settings = settings or Settings()

    def choose(self, batch: Batch, version: ModelVersion, call: Call) -> Choice:
        """The engine of a batch; Overloaded if it would only be refused later."""
        if call is PLAIN or call.is_usual:
            entry = version.entry
            takes = entry.function is not None and (batch.kind is _ROW or entry.takes(batch))
            if takes and (call.blocking or self._is_over_at_once(batch, version)):
                return BY_ENTRY
        version.seen(batch)
        if call is PLAIN and self._is_undivided(batch, version):
            return UNDIVIDED
        return self.weigh(batch, version, call)

    def weigh(self, batch: Batch, version: ModelVersion, call: Call) -> Choice:
        """Inline or by executors, by the figures; also for a batch that the entry has refused."""
        if call.engine is Engine.BATCH:
            self._engines.check_room(version, call.priority)
        elif not call.blocking:
            self._check_room_early(batch, version, call)
        decision = _in_time(self._decided(version, call, batch.rows), call, batch.rows)
        is_inline = decision.engine is Engine.INLINE
        learned = version.learned
        if not call.blocking and call.engine is None and (is_inline or batch.single):
            learned.nonblocking = is_inline  # a row is over no later than a block of them
        way = Way.INLINE if is_inline else Way.CHUNKS
        waits = call.blocking and call.engine is None and not self._engines.limited
        if not is_inline and waits:
            way = Way.SHARED
        if not (call.blocking or is_compiled_for(version, batch)):
            way = Way.WHOLE
            if is_inline:
                decision = decision._replace(engine=Engine.BATCH, why=NOT_HERE)
        learned.decision = decision
        return Choice(way, decision)

    def decide(
        self, version: ModelVersion, call: Call, rows: int, explore: float | None = None
    ) -> Decision:
        """The engine for a call of this many rows, and why."""
        ask = Ask(
            rows=rows,
            curve=self._costs.curve(version, rows),
            blocking=call.blocking,
            remaining=inf if call.timeout is None else call.timeout,
            engine=call.engine,
            reserved=bool(version.reserved),
            inline_callers=self._engines.inline_callers,
            whole=version.mixes_rows,
            cores=CORES,
            native=version.learned.native,
            gain=self._costs.gain(version),
            explore=explore,
        )
        return choose(ask, self._engines.load(version.owner), self.settings)

    def _decided(self, version: ModelVersion, call: Call, rows: int) -> Decision:
        """The decision for a call; that for the last one of its size if alike, a few times."""
        explore = self._costs.explore(version)
        facts = (rows, call, self._engines.inline_callers, self._engines.load(version.owner))
        learned = version.learned
        last = learned.decided.get(rows)
        if last is not None and explore is None and last[0] == facts and last[2] > 0:
            learned.decided[rows] = (facts, last[1], last[2] - 1)
            return last[1]
        decision = self.decide(version, call, rows, explore)
        learned.decided.pop(rows, None)
        if explore is None and decision.seconds is not None:
            if len(learned.decided) >= SIZES:
                learned.decided.clear()
            learned.decided[rows] = (facts, decision, ALIKE)
        return decision

    def learn(self, version: ModelVersion, batch: Batch, seconds: float) -> None:
        """Learn from the time of a call on its caller's thread."""
        self._costs.observe(version, batch.rows or 1, seconds)
        version.learn(batch, seconds)
        if batch.rows == 1:
            version.learned.inline_ok = seconds < DIRECT_SECONDS
            version.learned.nonblocking = seconds <= self.settings.instant

    # --- without figures ---------------------------------------------------------------------

    def _is_over_at_once(self, batch: Batch, version: ModelVersion) -> bool:
        """True if the entry answers without a wait: the batch is short, and its code is there."""
        if not version.learned.nonblocking:
            return False
        reader, data = version.reader, batch.data
        if type(data) is np.ndarray and data.dtype is reader.dtype:
            return True
        if reader.text and batch.rows == 1:
            return batch.characters <= DOCUMENT + SHORT_CHARACTERS
        plan = version.residence.plan
        return not batch.has_dtype or (plan is not None and plan.variants.ready_for(data))

    def _is_undivided(self, batch: Batch, version: ModelVersion) -> bool:
        """True if there is nothing to decide: executors divide neither a row nor such a block."""
        if version.entry.function is None and not (version.shared and version.learned.inline_ok):
            return False
        return batch.single or (version.mixes_rows and self._engines.calm)

    def _check_room_early(self, batch: Batch, version: ModelVersion, call: Call) -> None:
        """Refuse what takes longer than such a caller may be held up, before its data is read."""
        if not batch.is_block or not self._engines.is_full(version, call.priority):
            return
        seconds = self._costs.seconds(version, batch.rows) if batch.rows else None
        if seconds is not None and seconds > self.settings.instant:
            self._engines.check_room(version, call.priority)


def _in_time(decision: Decision, call: Call, rows: int) -> Decision:
    """The decision, with chunks between which a call can be given up before it is very late."""
    if call.deadline is None or not decision.seconds:
        return decision
    most = max(1, int(rows * BETWEEN_SECONDS / decision.seconds))
    chunk = most if decision.engine is Engine.INLINE else min(most, decision.chunk_rows)
    return decision._replace(chunk_rows=chunk, least_rows=min(most, decision.least_rows))


def is_compiled_for(version: ModelVersion, batch: Batch) -> bool:
    """True if the batch can be answered without waiting for a file or a compiler."""
    plan = version.plan
    return plan is not None and plan.variants.ready_for(batch.block)
