"""Effects: the actions that the dispatcher, which acts on nothing itself, asks its caller for."""

from __future__ import annotations

from scheduler.queue_pair import Slot
from scheduler.running import RunningChunk, RunningJob


class Effects:
    """Actions that an event asks its caller for, in this order."""

    __slots__ = ("ended", "hires", "settled", "starts")

    def __init__(self) -> None:
        self.hires: list[Slot] = []  # give this slot a thread
        self.ended: list[
            RunningChunk
        ] = []  # take this chunk's buffer back, as the next may want it
        self.starts: list[Slot] = []  # wake this executor: it has a run, or is retired
        self.settled: list[RunningJob] = []  # tell the caller how the job ended

    def __bool__(self) -> bool:
        return bool(self.starts or self.settled or self.ended or self.hires)


NOTHING = Effects()  # shared by all events that ask for nothing
