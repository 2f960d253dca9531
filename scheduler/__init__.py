"""Pure concurrency: engines, queues and back-pressure; knows callables, never models.

Two engines run stages over chunks of rows: `InlineEngine` on the caller's thread, `Pool` on
executors that serve two queues. `choose` says which one a call should go to, and why.
"""

from __future__ import annotations

from scheduler.buffers import BufferPool, BufferStats, size_class
from scheduler.clock import Clock, RealClock, SimulatedClock
from scheduler.costs import CostModel, Curve
from scheduler.errors import (
    BadJob,
    DeadlineExceeded,
    ExecutorDied,
    NoThread,
    Overloaded,
    SchedulerClosed,
    SchedulerError,
    WaitsForItself,
)
from scheduler.inline import InlineEngine, InlineStats
from scheduler.job import Job, Stage, Stages, State, split
from scheduler.policy import Ask, Decision, Engine, Load, Settings, choose
from scheduler.pool import Pool, PoolStats, QueueStats, cores
from scheduler.queues import QueueRules
from scheduler.stats import Histogram, Latency
from scheduler.ticket import Awaited, Ticket, Timing, is_executor

__all__ = [
    "Ask",
    "Awaited",
    "BadJob",
    "BufferPool",
    "BufferStats",
    "Clock",
    "CostModel",
    "Curve",
    "DeadlineExceeded",
    "Decision",
    "Engine",
    "ExecutorDied",
    "Histogram",
    "InlineEngine",
    "InlineStats",
    "Job",
    "Latency",
    "Load",
    "NoThread",
    "Overloaded",
    "Pool",
    "PoolStats",
    "QueueRules",
    "QueueStats",
    "RealClock",
    "SchedulerClosed",
    "SchedulerError",
    "Settings",
    "SimulatedClock",
    "Stage",
    "Stages",
    "State",
    "Ticket",
    "Timing",
    "WaitsForItself",
    "choose",
    "cores",
    "is_executor",
    "size_class",
    "split",
]
