"""The loop of a stream: poll, answer, write, acknowledge.

    with Stream(runtime, "fraud", source, sink, dead=letters) as stream:
        stream.run()

A micro-batch ends at `rows` messages, or `wait` seconds after the first one. It is acknowledged
when its answers are written, so each message is answered at least once, in the order of the source.
Where a broker is lost, all that is not acknowledged is forgotten and polled again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from runtime.errors import NodeFailed
from runtime.runtime import Runtime
from runtime.service.stream_counts import STREAMS, StreamCounts
from runtime.streams.messages import (
    BadStream,
    MessageSink,
    MessageSource,
    RefusedMessage,
    StreamLost,
    StreamMessage,
)
from runtime.streams.places import open_sink, open_source
from runtime.streams.rows import MessageRows
from scheduler import DeadlineExceeded, Overloaded

log = logging.getLogger("pretzel.streams")
#: The longest wait for a first message, after which `stop` is noticed.
_IDLE_SECONDS = 0.25
#: Seconds between looks at the lag.
_LAG_SECONDS = 1.0
#: Seconds for the last batch of a thread.
_END_SECONDS = 60.0
#: The first and the longest pause before another attempt; each is twice the one before.
_PAUSES = 0.01, 5.0


class _AnsweredBatch(NamedTuple):
    """Messages, their answers, refused ones, and the error to raise when all is written."""

    taken: list[StreamMessage]
    answers: list[StreamMessage]
    letters: list[StreamMessage]
    problem: RefusedMessage | None


class Stream:
    """Messages from a source through an endpoint to a sink, in the thread that runs it."""

    def __init__(  # noqa: PLR0913 (each has a default)
        self,
        runtime: Runtime,
        endpoint: str,
        source: MessageSource,
        sink: MessageSink | None = None,
        *,
        dead: MessageSink | None = None,
        rows: int = 512,
        wait: float = 0.005,
        keep: Sequence[str] = (),
        priority: int | None = None,
        patience: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """`keep` names columns to copy into the answers; `dead` gets refused messages.

        Without `dead`, a refused message ends the stream. After `patience` seconds without a broker
        or without room in the endpoint's queue, the error is raised; nothing is lost by that.
        """
        runtime.endpoints.find(endpoint)
        for to in (sink, dead):
            if to is not None and source.reads(to):
                what, hint = "what is written here would be read as rows", "choose another place"
                raise BadStream(what, where=to.name, found=f"from {source.name}", hint=hint)
        self.counts = StreamCounts(endpoint, source.name)
        STREAMS.setdefault(runtime, {})[endpoint, source.name] = self.counts
        self._rows_of = MessageRows(runtime, self.counts, keep, priority)
        self._source, self._sink, self._dead = source, sink, dead
        self._limit, self._wait, self._patience = rows, wait, patience
        self._ended = threading.Event()
        self._clock, self._pause = clock, pause or self._ended.wait
        self._lag_at, self._lost_at, self._losses = clock(), 0.0, 0
        self._thread: threading.Thread | None = None
        #: The error that has ended the stream on its thread.
        self.problem: BaseException | None = None

    @classmethod
    def of_notes(
        cls, runtime: Runtime, endpoint: str, notes: Mapping[str, Any], number: int
    ) -> Stream:
        """The stream of a server's worker, as the notes of a model ask; its patience has no end."""
        if "from" not in notes or "to" not in notes:
            raise BadStream("a stream has a place to read `from`, and one to write `to`")
        consumer = f"{notes.get('consumer', socket.gethostname())}-{number}"
        source = open_source(notes["from"], group=notes.get("group", endpoint), consumer=consumer)
        return cls(
            *(runtime, endpoint, source, open_sink(notes["to"])),
            dead=open_sink(notes["dead"]) if "dead" in notes else None,
            rows=notes.get("rows", 512),
            wait=notes.get("wait_ms", 5.0) / 1000,
            keep=notes.get("keep", ()),
            patience=math.inf,
        )

    def run(self) -> None:
        """Answer messages until `stop` is called or the source ends."""
        while self.step():
            pass

    def step(self) -> bool:
        """Answer one micro-batch; False if there will be no other one."""
        taken: Sequence[StreamMessage] | None = ()
        try:
            taken = self._gather()
            if taken:
                self._finish(self._answered(taken))
        except StreamLost as problem:
            self._lose(problem)
        return taken is not None

    async def __aiter__(self) -> AsyncIterator[list[StreamMessage]]:
        """The answers in batches, each acknowledged when the next one is asked for."""
        taken: Sequence[StreamMessage] | None = ()
        while taken is not None:
            try:
                taken = await asyncio.to_thread(self._gather)
                if taken:
                    batch = await asyncio.to_thread(self._answered, taken)
                    yield batch.answers
                    await asyncio.to_thread(self._finish, batch)
            except StreamLost as problem:
                await asyncio.to_thread(self._lose, problem)

    def start(self, then: Callable[[], object] = int) -> Stream:
        """Run on a thread of its own, which ends with a call of `then`."""
        work = threading.Thread(target=self._work, args=(then,), name="pretzel-stream", daemon=True)
        self._thread = work
        work.start()
        return self

    def _work(self, then: Callable[[], object]) -> None:
        try:
            self.run()
        except BaseException as problem:  # noqa: BLE001 (it is this object's, and in the log)
            self.problem = problem
            log.error("%s: the stream has ended: %s", self.counts.endpoint, problem)  # noqa: TRY400
        finally:
            then()

    def stop(self) -> None:
        """End `run` once what was polled is answered and acknowledged; from any thread."""
        self._source.stop()
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def close(self) -> None:
        """Stop the stream's thread, if it has one, and close the source and the sinks."""
        if self._thread is not None:
            self.stop()
        self._disconnect()

    def _disconnect(self) -> None:
        for place in (self._source, self._sink, self._dead):
            if place is not None:
                place.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- one micro-batch ---------------------------------------------------------------------

    def _gather(self) -> list[StreamMessage] | None:
        limit = 1 if self._rows_of.mixes_rows else self._limit
        taken = self._source.poll(limit, _IDLE_SECONDS)
        if self._clock() >= self._lag_at:
            self._lag_at = self._clock() + _LAG_SECONDS
            self.counts.lag = self._source.lag()
        if not taken:
            self._losses = 0
            return taken
        end = self._clock() + self._wait
        while len(taken) < limit and (left := end - self._clock()) > 0:
            more = self._source.poll(limit - len(taken), left)
            if more is None:
                break
            taken += more
        return taken

    def _answered(self, taken: list[StreamMessage]) -> _AnsweredBatch:
        """The answers; without a place for dead letters, those before the first refused message."""
        answers, letters = self._rows_of.answered(taken, self._patiently)
        if not letters or self._dead is not None:
            return _AnsweredBatch(taken, answers, letters, None)
        first = letters[0]
        refused = RefusedMessage(
            "this message is refused",
            where=first.position.decode(errors="replace"),
            found=first.reason,
            hint="with a place for dead letters (--dead), the stream goes on",
        )
        place = [each.position for each in taken].index(first.position)
        return _AnsweredBatch(taken[:place], answers[:place], [], refused)

    def _finish(self, batch: _AnsweredBatch) -> None:
        """Write, acknowledge and count; dead letters first, as nothing else has their reason."""
        pairs = (self._dead, batch.letters), (self._sink, batch.answers)
        self._source.settle(batch.taken, [(sink, each) for sink, each in pairs if sink and each])
        self.counts.messages += len(batch.taken)
        self.counts.refused += len(batch.letters)
        self._losses = 0
        if batch.problem is not None:
            raise batch.problem

    def _patiently(self, answer: Callable[[], list[bytes]], tries: int) -> list[bytes]:
        """Answer rows, again and again where the endpoint's queue is full: the source waits."""
        end, (delay, most), failures = self._clock() + self._patience, _PAUSES, 0
        while True:
            try:
                return answer()
            except (Overloaded, DeadlineExceeded, NodeFailed) as problem:
                failures += isinstance(problem, NodeFailed)
                if self._clock() >= end or failures >= tries:
                    raise
                self.counts.retries += 1
                self._pause(min(max(delay, getattr(problem, "retry_after", 0.0)), most))
                delay *= 2

    # --- brokers that are lost -----------------------------------------------------------------

    def _lose(self, problem: StreamLost) -> None:
        """Connect again after a pause, until the patience is over."""
        now, (first, most) = self._clock(), _PAUSES
        self._lost_at = self._lost_at if self._losses else now
        if now - self._lost_at > self._patience or (self._losses and self._ended.is_set()):
            raise problem
        pause = min(first * 2 ** min(self._losses, 16), most)
        self._losses += 1
        self.counts.reconnects += 1
        if self._losses == 1:
            log.warning("%s: connecting again: %s", self.counts.endpoint, problem)
        self._pause(pause * random.uniform(0.5, 1.0))  # noqa: S311 (it spreads the attempts)
        self._disconnect()
