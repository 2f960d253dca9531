"""Which engine answers a call: a pure function, written down so that it can be read and tested.

The request/response engine runs a call on the caller's thread: no hand-over, one core. The batch
engine hands chunks to executors: it costs a hand-over per chunk, uses all cores, and what it does
is bounded, ordered and fair. In words:

1. An engine that the caller names is used. A reservation is used for calls that are not over at
once and for calls that were never measured; a caller that can wait goes on with 4, among executors
of its own.
2. A call that was never measured and has few rows runs inline, to be measured.
3. For a caller that must not be blocked (an event loop), only calls that are over at once run
inline.
4. A caller that can wait gets the engine that should be done first, in seconds: inline that is
   the measured time, batch the queue ahead, the hand-over, and the measured time divided among the
   executors. Both are stretched where more threads than cores compute, so work that is not cut
   runs here: an executor would have no more of the machine. Only where callers are twice as many
   as cores does the queue bring order, and is not stretched.
5. If only one of the two keeps the deadline, it is that one. If neither does, the decision says
   so (`late`), and the caller may refuse at once instead of working in vain.

Chunks are as large as `target` seconds (long against the hand-over, short against other jobs'
patience), fit the cache, and come in multiples of the executors, so that all finish together.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from scheduler.costs import Estimate


class Engine(enum.Enum):
    """Where a call runs."""

    INLINE = "inline"
    BATCH = "batch"


class Load(NamedTuple):
    """How busy the executors are that would serve a call."""

    executors: int
    idle: int
    queued_jobs: int = 0
    queued_rows: int = 0
    queued_seconds: float = 0.0


class Ask(NamedTuple):
    """The facts about a call that the policy looks at."""

    rows: int
    estimate: Estimate | None = None
    blocking: bool = True  # whether the caller waits for the answer anyway
    remaining: float = inf  # seconds to the deadline
    row_bytes: int = 0  # of input, output and buffers; 0 is unknown
    engine: Engine | None = None  # the caller's own choice
    reserved: bool = False
    inline_callers: int = 0  # others that compute on their own threads now
    whole: bool = False  # whether all rows have to stay together
    cores: int = 0  # of the machine; 0 is as many as executors


@dataclass(frozen=True, slots=True)
class Settings:
    """The figures of the policy, in seconds, rows and bytes."""

    dispatch: float = 30e-6  # to hand a job over and to get its answer back
    per_stage: float = 15e-6  # for every further chunk
    target: float = 1e-3  # a chunk should take this long
    instant: float = 150e-6  # how long an event loop may be blocked: what a hand-over takes it
    unmeasured_rows: int = 64  # calls up to this size run inline before they were measured
    unmeasured_chunk: int = 256
    cache_bytes: int = 512 << 10  # of one core


class Decision(NamedTuple):
    """The chosen engine, with the reason in words and the times behind it."""

    engine: Engine
    why: str
    chunk_rows: int
    inline_seconds: float | None = None
    batch_seconds: float | None = None
    late: bool = False
    seconds: float | None = None
    """Estimated time of the computation itself on an idle machine; None if never measured."""

    @property
    def reason(self) -> str:
        """The reason with the times filled in: only when read, as most decisions are not."""
        return self.why.format(
            inline=_us(self.inline_seconds),
            batch=_us(self.batch_seconds),
            seconds=_us(self.seconds),
        )


DEFAULTS = Settings()
#: From this many callers per core on, callers are better served in turn.
_CROWD = 2


def choose(ask: Ask, load: Load, settings: Settings = DEFAULTS) -> Decision:
    """Return the engine for a call, and why."""
    chunk = chunk_rows(ask, load, settings)
    if ask.estimate is None:
        return _unmeasured(ask, chunk, settings)
    inline = _inline_seconds(ask.estimate, ask, load)
    batch = _batch_seconds(ask.estimate, ask, chunk, load, settings)
    late = min(inline, batch) > ask.remaining
    engine, reason = _forced(ask, settings) or _measured(ask, inline, batch, settings)
    if ask.engine is not None or ask.reserved:
        late = (inline if engine is Engine.INLINE else batch) > ask.remaining
    return Decision(engine, reason, chunk, inline, batch, late, ask.estimate.seconds)


def chunk_rows(ask: Ask, load: Load, settings: Settings = DEFAULTS) -> int:
    """Return how many rows a chunk of this call should have."""
    rows = max(ask.rows, 1)
    if ask.whole:
        return rows
    if ask.estimate is None:
        most = float(settings.unmeasured_chunk)
    else:
        most = settings.target / max(ask.estimate.per_row, 1e-12)
    if ask.row_bytes:
        most = min(most, settings.cache_bytes / ask.row_bytes)
    if ask.estimate is not None:
        # Enough rows that the hand-over costs at most a tenth of the computation.
        most = max(most, 10 * settings.per_stage / max(ask.estimate.per_row, 1e-12))
    chunks = ceil(rows / max(most, 1.0))
    if chunks > 1:
        executors = max(load.executors, 1)
        chunks = ceil(chunks / executors) * executors
    elif _worth_splitting(ask, load, settings):
        chunks = load.idle
    return max(1, ceil(rows / max(chunks, 1)))


def _worth_splitting(ask: Ask, load: Load, settings: Settings) -> bool:
    """Return whether one chunk's worth of work is done sooner by several idle executors."""
    if ask.estimate is None or load.idle < 2 or ask.rows < load.idle:
        return False
    saved = ask.estimate.seconds * (1 - 1 / load.idle)
    return saved > 2 * (settings.dispatch + settings.per_stage * load.idle)


def _inline_seconds(estimate: Estimate, ask: Ask, load: Load) -> float:
    """The measured time, stretched when callers and executors share the cores."""
    computing = 1 + ask.inline_callers + load.executors - load.idle
    return estimate.seconds * _stretch(computing, ask, load)


def _batch_seconds(
    estimate: Estimate, ask: Ask, chunk: int, load: Load, settings: Settings
) -> float:
    """The queue ahead, the hand-over, and the rounds of chunks."""
    executors = max(load.executors, 1)
    chunks = ceil(max(ask.rows, 1) / chunk)
    # Executors that are busy are so for half a chunk on average.
    busy = 0.0 if load.idle else settings.target / 2
    at_once = load.idle or executors
    each = estimate.seconds / chunks
    if ask.inline_callers < _CROWD * _cores(ask, load):
        each *= _stretch(ask.inline_callers + min(chunks, at_once), ask, load)
    waiting = settings.dispatch + busy + load.queued_seconds / executors
    return waiting + ceil(chunks / at_once) * (each + settings.per_stage)


def _stretch(computing: int, ask: Ask, load: Load) -> float:
    """The factor by which a call takes longer when this many threads compute."""
    return max(1.0, computing / _cores(ask, load))


def _cores(ask: Ask, load: Load) -> int:
    return ask.cores or max(load.executors, 1)


def _forced(ask: Ask, settings: Settings) -> tuple[Engine, str] | None:
    if ask.engine is not None:
        return ask.engine, "the caller asked for it"
    if not ask.reserved:
        return None
    # A key with executors of its own gets the same choice as others, where it can wait.
    if ask.estimate is not None and (ask.blocking or ask.estimate.seconds <= settings.instant):
        return None
    return Engine.BATCH, "the plan has executors reserved for itself"


def _unmeasured(ask: Ask, chunk: int, settings: Settings) -> Decision:
    forced = _forced(ask, settings)
    if forced is not None:
        return Decision(*forced, chunk)
    if ask.rows <= settings.unmeasured_rows and ask.blocking:
        reason = f"never measured, and {ask.rows} rows are few: run here to learn the cost"
        return Decision(Engine.INLINE, reason, chunk)
    what = f"{ask.rows} rows are many" if ask.blocking else "the caller must not be held up"
    return Decision(Engine.BATCH, f"never measured, and {what}", chunk)


def _measured(ask: Ask, inline: float, batch: float, settings: Settings) -> tuple[Engine, str]:
    if not ask.blocking:
        if inline <= settings.instant:
            return Engine.INLINE, "over in {inline}, sooner than it could be handed over"
        return Engine.BATCH, "{inline} would hold up a caller that must not be"
    in_time, other = inline <= ask.remaining, batch <= ask.remaining
    if in_time != other:
        if in_time:
            return Engine.INLINE, "{inline} keeps the deadline, {batch} would not"
        return Engine.BATCH, "{batch} keeps the deadline, {inline} would not"
    if inline <= batch:
        return Engine.INLINE, "here {inline}, by executors {batch}"
    return Engine.BATCH, "by executors {batch}, here {inline}"


def _us(seconds: float | None) -> str:
    return "an unknown time" if seconds is None else f"{seconds * 1e6:,.0f} us"
