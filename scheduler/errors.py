"""Every error the scheduler raises itself, as one tree.

    SchedulerError
    ├── Overloaded          the queue is full: nothing was accepted, try later or elsewhere
    ├── DeadlineExceeded    the job's deadline passed before it was done (also a TimeoutError)
    ├── ExecutorDied        the thread that ran the job was torn down by what it ran
    ├── WaitsForItself      a thread would wait for work that may be waiting for it
    ├── SchedulerClosed     the pool was shut down before this call
    ├── NoThread            the system has no more threads for this process
    └── BadJob              a job or a setting that cannot mean anything (also a ValueError)

What a stage raises is not wrapped: it reaches the caller as it is. Every message has four parts,
always in this order: what went wrong, where, what was found there, and a hint.
"""

from __future__ import annotations


class SchedulerError(Exception):
    """An error: what went wrong, where, what was found there and what to try next."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        found: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.what, self.where, self.found, self.hint = what, where, found, hint
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        for label, text in (("at", self.where), ("found", self.found), ("hint", self.hint)):
            if text:
                parts.append(f"  {label:<6} {text}")
        return "\n".join(parts)


class Overloaded(SchedulerError):
    """The queue is full; `retry_after` says in how many seconds it should have drained."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        found: str | None = None,
        hint: str | None = None,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(what, where=where, found=found, hint=hint)
        self.retry_after = retry_after


class DeadlineExceeded(SchedulerError, TimeoutError):
    """The job's deadline passed before it was done."""


class ExecutorDied(SchedulerError):
    """The job ended the thread that ran it; the thread has been replaced."""


class WaitsForItself(SchedulerError):
    """A thread would wait for work that may be waiting for it."""


class SchedulerClosed(SchedulerError):
    """The pool was shut down before the call."""


class NoThread(SchedulerError):
    """The system has no more threads for this process."""


class BadJob(SchedulerError, ValueError):
    """A job or a setting without a possible meaning."""
