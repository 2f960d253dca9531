"""The choice of a call's engine and chunk size: a pure function of its arguments.

The request/response engine runs a call on the caller's thread: no hand-over, one core. The batch
engine hands chunks to executors: it costs a hand-over per chunk, uses all cores, and what it does
is bounded, ordered and fair. In words:

1. An engine that the caller names is used. A reservation is used for calls that are not over at
once and for calls that were never measured; a caller that can wait goes on with 4, among executors
of its own.
2. A call that was never measured and has few rows runs inline, to be measured.
3. For a caller that must not be blocked (an event loop), only calls that are over at once run
inline.
4. A caller that can wait computes on its own thread, and others help it (`helpers`) where cores are
left: executors, or where all is native code threads that wait in it (`native`), which take less
time to come. They are as many as there are cores without a caller, none while other jobs wait for
executors, and none where the call is over before a helper would have begun, or where helping was
seen to gain nothing. So callers who fill the cores by themselves all run inline.
5. If only one of the two keeps the deadline, it is that one. If neither does, the decision says
so (`late`), and the caller may refuse at once instead of working in vain.

What a call takes is read from the curve of measured times. So is the size of chunks: of the sizes
that cost at most 3 % more than the best one (15 % by executors alone), it is the largest that takes
no longer than `target`, as other jobs wait for a chunk, or else the best. A curve knows only sizes
that were tried, so some calls (`explore`) take a size that was not measured for long.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from math import ceil, inf
from typing import NamedTuple

from scheduler.costs import Curve


class Engine(enum.Enum):
    """The engine of a call."""

    INLINE = "inline"
    BATCH = "batch"


class Load(NamedTuple):
    """The load of the executors that would serve a call."""

    executors: int
    idle: int
    queued_jobs: int = 0
    queued_rows: int = 0
    queued_seconds: float = 0.0


class Ask(NamedTuple):
    """The facts about a call that the policy looks at."""

    rows: int
    curve: Curve | None = None  # what calls take by their rows; None if that is unknown
    blocking: bool = True  # whether the caller waits for the answer anyway
    remaining: float = inf  # seconds to the deadline
    engine: Engine | None = None  # the caller's own choice
    reserved: bool = False
    inline_callers: int = 0  # others that compute on their own threads now
    whole: bool = False  # whether all rows have to stay together
    cores: int = 0  # of the machine; 0 is as many as executors
    native: bool = False  # whether helpers take ranges in native code
    gain: float = inf  # how many times faster calls were with helpers, as measured
    explore: float | None = None  # try what was last measured before this moment


class Settings(NamedTuple):
    """The figures of the policy, in seconds and rows."""

    dispatch: float = 100e-6  # to hand a job over, or to ask for help, and to get the answer
    per_chunk: float = 25e-6  # for every chunk that an executor is given
    per_range: float = 15e-6  # for every chunk that a caller or its helper takes
    native_dispatch: float = 80e-6  # to ask for help in native code, until it has come
    native_range: float = 1e-6  # for every range that is taken there
    native_least: float = 30e-6  # what a range takes there at least
    target: float = 1e-3  # a chunk should take no longer: others wait for it
    instant: float = 150e-6  # how long an event loop may be blocked: what a hand-over takes it
    unmeasured_rows: int = 64  # calls up to this size run inline before they were measured
    unmeasured_chunk: int = 256
    unmeasured_parts: int = 8  # what is left of such a chunk is divided no further


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
    least_rows: int = 1
    """The minimum rows of a chunk where threads share the remainder."""
    helpers: int = 0
    """The number of other threads that help a caller that computes itself."""
    explores: bool = False
    """True if the call tries what was not measured for long, so that it has to be measured."""

    @property
    def reason(self) -> str:
        """The reason with the times filled in: only when read, as most decisions are not."""
        return self.why.format(
            inline=_us(self.inline_seconds),
            batch=_us(self.batch_seconds),
            seconds=_us(self.seconds),
        )


DEFAULTS = Settings()
#: A size of chunks that costs up to this many times as much as the best is as good.
_AS_GOOD = 1.03
#: The same for jobs of executors only, where other jobs wait for a chunk.
_FOR_OTHERS = 1.15
#: By how much one of two cores is slower than the other, as machines are shared.
_UNLIKE = 0.05
#: A size that should cost more than this many times as much as the best is not tried.
_TOO_BAD = 2.5
#: Seconds up to which a call is tried undivided that was measured so once or never.
_AGAIN = 0.1
_TRIED = "here, where {inline} was measured once or is a guess"


def choose(ask: Ask, load: Load, settings: Settings = DEFAULTS) -> Decision:
    """Return the engine for a call, and why."""
    helpers, rows = _helpers(ask, load), max(ask.rows, 1)
    if ask.curve is None:
        chunk = rows if ask.whole else min(settings.unmeasured_chunk, rows)
        return _unmeasured(ask, chunk, helpers, settings)
    seconds = ask.curve.seconds(rows)
    inline = seconds * _stretch(1 + ask.inline_callers + load.executors - load.idle, ask, load)
    start = settings.native_dispatch if _is_native(ask) else settings.dispatch
    chunk, least, cost = rows, rows, seconds
    if inline > start:  # what is over before is not divided
        chunk, least, cost = _chunking(ask, load, helpers, settings)
    if _is_helped(ask):
        gain = min(1.0 + helpers, ask.gain) if helpers else 1.0
        # Equal where nothing is cut.
        batch = start * bool(helpers) + inline * (cost / max(seconds, 1e-12)) / gain
    else:
        # The queue ahead, the hand-over, and the measured time divided among the executors.
        executors = max(load.executors, 1)
        at_once = 1 if ask.whole else min(load.idle or executors, max(ask.rows, 1))
        busy = 0.0 if load.idle else settings.target / 2  # half a chunk on average
        stretch = _stretch(ask.inline_callers + at_once, ask, load)
        waiting = settings.dispatch + busy + load.queued_seconds / executors
        batch = waiting + settings.per_chunk + cost / at_once * stretch
    late = min(inline, batch) > ask.remaining
    forced = _forced(ask, settings)
    explores = ask.explore is not None
    again = explores and inline <= _AGAIN and ask.curve.is_doubtful(rows)
    engine, reason = forced or _measured(ask, inline, batch, settings, again=again)
    if forced is not None:
        late = (inline if engine is Engine.INLINE else batch) > ask.remaining
    times = (inline, batch, late, seconds)
    return Decision(engine, reason, chunk, *times, least, helpers, explores)


def _is_helped(ask: Ask) -> bool:
    """True if executors only help a caller that computes itself."""
    return ask.blocking and ask.engine is None


def _is_native(ask: Ask) -> bool:
    """True if helpers take ranges in native code, where they cost next to nothing."""
    return ask.native and _is_helped(ask)


def _chunking(ask: Ask, load: Load, helpers: int, settings: Settings) -> tuple[int, int, float]:
    """The wanted and minimum rows of a chunk, and the time of all of them on one thread."""
    rows, curve = max(ask.rows, 1), ask.curve
    assert curve is not None, "what was never measured is divided without figures"
    if ask.whole:
        return rows, rows, curve.seconds(rows)
    if _is_helped(ask):
        at_once = 1 + helpers
        extra = settings.native_range if _is_native(ask) else settings.per_range
    else:
        at_once, extra = load.idle or 1, settings.per_chunk
    shortest = settings.native_least if _is_native(ask) else 2 * extra
    whole, elapsed = dict[int, float](), dict[int, float]()
    for chunks in _chunk_counts(rows, max(at_once, load.executors)):
        size = ceil(rows / chunks)
        each = curve.seconds(size) + extra
        whole[size], elapsed[size] = chunks * each, ceil(chunks / at_once) * each
        if each < shortest:
            break
    size = _chunk_rows(ask, curve, elapsed, settings.target)
    if _is_native(ask):  # the last range makes the others wait for some of it, or cores differ

        def taken(each: int) -> float:
            alike, last = whole[each] / at_once, whole[each] * each / rows
            return alike + min(last / 4, settings.native_dispatch / 2 + alike * _UNLIKE)

        least = min(whole, key=taken)
    else:
        least = min(each for each in whole if whole[each] <= _AS_GOOD * whole[size])
    return size, min(least, size), whole[size]


def _chunk_rows(ask: Ask, curve: Curve, elapsed: dict[int, float], target: float) -> int:
    """The best of these sizes, by the time that the call takes with each."""
    least, since = min(elapsed.values()), ask.explore
    old = [size for size in elapsed if since and curve.measured(size) < since]
    tried = [size for size in old if elapsed[size] <= _TOO_BAD * least]
    if tried:
        return min(tried, key=elapsed.__getitem__)
    most = _AS_GOOD if _is_helped(ask) else _FOR_OTHERS
    good = [size for size, seconds in elapsed.items() if seconds <= most * least]
    short = [size for size in good if curve.seconds(size) <= target]
    return max(short) if short else min(good, key=elapsed.__getitem__)


def _chunk_counts(rows: int, executors: int) -> Iterator[int]:
    """Numbers of chunks: one, and multiples of the executors, so that all finish together."""
    yield 1
    chunks = executors if executors > 1 else 2
    while chunks <= rows:
        yield chunks
        chunks *= 2


def _helpers(ask: Ask, load: Load) -> int:
    """The number of executors with a core left to help a caller that computes on its own thread."""
    if ask.whole or load.queued_jobs or not ask.blocking or ask.gain < _AS_GOOD:
        return 0
    free = _cores(ask, load) - 1 - ask.inline_callers
    if ask.native:  # helpers are threads of their own: executors that compute have cores, too
        free -= load.executors - load.idle
    return max(0, min(free, load.executors, ask.rows - 1))


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
    if ask.curve is not None and (ask.blocking or ask.curve.seconds(ask.rows) <= settings.instant):
        return None
    return Engine.BATCH, "the plan has executors reserved for itself"


def _unmeasured(ask: Ask, chunk: int, helpers: int, settings: Settings) -> Decision:
    forced = _forced(ask, settings)
    if forced is not None:
        return Decision(*forced, chunk, helpers=helpers)
    if ask.rows <= settings.unmeasured_rows and ask.blocking:
        reason = f"never measured, and {ask.rows} rows are few: run here to learn the cost"
        return Decision(Engine.INLINE, reason, chunk)
    if ask.blocking and not helpers:
        return Decision(Engine.INLINE, "never measured, and no core is left for a helper", chunk)
    what = f"{ask.rows} rows are many" if ask.blocking else "the caller must not be held up"
    least = ceil(chunk / settings.unmeasured_parts)
    reason = f"never measured, and {what}"
    return Decision(Engine.BATCH, reason, chunk, least_rows=least, helpers=helpers)


def _measured(
    ask: Ask, inline: float, batch: float, settings: Settings, *, again: bool
) -> tuple[Engine, str]:
    if not ask.blocking:
        if inline <= settings.instant:
            return Engine.INLINE, "over in {inline}, sooner than it could be handed over"
        return Engine.BATCH, "{inline} would hold up a caller that must not be"
    in_time, other = inline <= ask.remaining, batch <= ask.remaining
    if in_time != other:
        if in_time:
            return Engine.INLINE, "{inline} keeps the deadline, {batch} would not"
        return Engine.BATCH, "{batch} keeps the deadline, {inline} would not"
    if inline <= batch or again:
        return Engine.INLINE, _TRIED if again else "here {inline}, in chunks {batch}"
    return Engine.BATCH, "in chunks {batch}, here {inline}"


def _us(seconds: float | None) -> str:
    return "an unknown time" if seconds is None else f"{seconds * 1e6:,.0f} us"
