"""Errors between a supervisor and its workers.

FlourError (flour.core.errors)
└── WorkersError         something is wrong with the processes that serve a port
    ├── ChannelClosed        the other process has ended
    ├── NotInStep            not every worker has followed a change in time
    ├── Overtaken            another worker changed the same route first
    ├── Rejected             a worker could not load what it was told to
    └── NoWorker             no worker comes up
"""

from __future__ import annotations

from flour.core.errors import FlourError


class WorkersError(FlourError):
    """Something is wrong with the processes that serve a port."""


class ChannelClosed(WorkersError):
    """The other process has ended, or closed its end."""


class NotInStep(WorkersError):
    """Not every worker has followed a change in time; they go on trying."""


class Overtaken(WorkersError):
    """Another worker changed the same route first."""


class Rejected(WorkersError):
    """A worker could not load a plan."""


class NoWorker(WorkersError):
    """No worker comes up."""
