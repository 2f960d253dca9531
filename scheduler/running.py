"""The records the dispatcher keeps: a job in progress, a chunk in progress, a stage to run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from scheduler.job import Job, Stages

if TYPE_CHECKING:
    from scheduler.buffers import BufferPool
    from scheduler.queues import QueuePair
    from scheduler.ticket import State

_OPEN = threading.Lock()


class RunningJob:
    """A job that was accepted, until it is over."""

    __slots__ = (
        "ahead",
        "answers",
        "arrival",
        "charge",
        "credit",
        "cursor",
        "end",
        "job",
        "left",
        "number",
        "open_chunks",
        "over",
        "pair",
        "share",
        "since",
        "started",
        "ticket",
        "turn",
        "value",
    )

    def __init__(self, job: Job, pair: QueuePair, number: int, ticket: object, now: float) -> None:
        count = len(job.chunks)
        self.job, self.pair, self.number, self.ticket = job, pair, number, ticket
        self.arrival = self.since = now  # `since`: the last time the queue served it
        self.share = job.cost / count  # the estimated cost of a chunk
        self.ahead = (
            0.0  # the estimated cost of the jobs of its key that were waiting when it arrived
        )
        self.charge = 0.0  # the charge to its key for each chunk
        self.credit = 0.0  # how much longer it keeps its place among the jobs of its key
        self.turn = 0  # that place
        self.cursor = 0  # the first chunk that has not started
        self.left = count  # chunks that have not ended
        self.answers: list[object] = [None] * count
        self.open_chunks: list[RunningChunk] = []
        self.started: float | None = None
        self.over: State | None = None
        self.end = 0.0
        self.value: object = None  # the answer, or the error


class RunningChunk:
    """A chunk that has started: it holds a buffer until its last stage has ended."""

    __slots__ = (
        "buffer",
        "data",
        "entry",
        "index",
        "left",
        "pool",
        "running",
        "running_job",
        "spent",
        "stages",
        "value",
        "waits",
    )

    def __init__(self, running: RunningJob, index: int, chunk: object, stages: Stages) -> None:
        self.running_job, self.index, self.data, self.stages = running, index, chunk, stages
        self.left = len(stages.calls)  # stages that have not ended
        self.running = 0  # stages that executors run now
        # How many stages each stage still waits for; in a chain it is always the next one.
        self.waits: list[int] = [] if stages.linear else list(stages.waits)
        self.value: object = None
        self.spent = 0.0
        # Several first stages may want the buffer at once; most have one and need no lock.
        self.entry = threading.Lock() if len(stages.first) > 1 else _OPEN
        self.buffer: object = None
        self.pool: BufferPool | None = None


class Run(NamedTuple):
    """One stage of one chunk."""

    chunk: RunningChunk
    stage: int
