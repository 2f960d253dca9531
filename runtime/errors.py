"""Errors between a caller and a plan.

    FlourError (flour.core.errors)
    ├── UnknownEndpoint   nothing is registered under this name or version (also a LookupError)
    ├── AlreadyTaken      this name and version is registered (also a ValueError)
    ├── InService         this version answers the endpoint's requests and cannot be taken out
    │   └── InUse         a graph or a route names it
    ├── BadRegistration   what was to be registered cannot be (also a TypeError)
    │   └── NotWritten    the disk does not take what has to be written down first
    ├── BadCall           a call asks for something that cannot be (also a ValueError)
    │   └── EditedFile    a file that was edited, and is not followed, would be written over
    ├── LostPlan          a plan that was dropped for memory cannot be brought back
    ├── RuntimeClosed     the runtime was closed before this call
    ├── NodeFailed        a node of a graph has no answer, and nothing to go on with
    ├── NotOffered        the program has no such output (also an AttributeError)
    ├── BadRecipe         a recipe of a training cannot be run as it is written
    ├── TrainingFailed    a training has no model to serve, or one of its processes has ended
    ├── ClusterError      a network of nodes, or a group of coded requests, that cannot be
    │   └── RefusedRows   a replica does not answer these rows, nor would another (an InputError)
    ├── WorkersError      something is wrong with the processes that serve a port
    │   ├── ChannelClosed     the other process has ended
    │   ├── NotInStep         not every worker has followed a change in time
    │   ├── Overtaken         another worker changed the same route first
    │   ├── Rejected          a worker could not load what it was told to
    │   └── NoWorker          no worker comes up
    ├── Unfaithful        a served program does not answer as the original does
    ├── OutputInUse       another process is writing this file of answers
    └── InputError
        └── UnreadableFile     a file of rows is damaged, or not in the format that it should be

What the engines say is in scheduler.errors: Overloaded, DeadlineExceeded, ExecutorDied.
"""

from __future__ import annotations

from collections.abc import Sequence

from flour.core.errors import FlourError, InputError


class UnknownEndpoint(FlourError, LookupError):
    """Nothing is registered under this name or version."""


class AlreadyTaken(FlourError, ValueError):
    """This name and version is registered already."""


class InService(FlourError):
    """This version answers the endpoint's requests, so it cannot be taken out."""


class BadRegistration(FlourError, TypeError):
    """Raised for an object that is no program, plan or file of one, and for an invalid name."""


class BadCall(FlourError, ValueError):
    """A call asks for an engine, an output or a time that cannot be."""


class NotWritten(BadRegistration):
    """A change does not count, as the disk does not take what has to be written down first."""


class EditedFile(BadCall):
    """A change would be written over a file that was edited and is not followed."""


class LostPlan(FlourError):
    """A plan that was dropped for memory cannot be brought back."""


class BadRecipe(FlourError):
    """A recipe of a training cannot be run as it is written, or with these settings."""


class TrainingFailed(FlourError):
    """A training has no model to serve, or one of its processes has ended."""


class RuntimeClosed(FlourError):
    """The runtime was closed before this call."""


class NodeFailed(FlourError):
    """A node of a graph has no answer; `late` where it did not answer in time."""

    late: bool = False


class InUse(InService):
    """A graph or a route names this version, so it cannot be taken out."""


def in_use(owner: str, users: Sequence[str]) -> InUse:
    """The error for a version that these graphs use."""
    return InUse(
        "graphs use this version",
        where=owner,
        found=", ".join(users[:8]),
        hint="unregister them first, or switch the endpoint so that they follow",
    )


class NotOffered(FlourError, AttributeError):
    """The program has no such output."""


class ClusterError(FlourError, ValueError):
    """A network of nodes, or a group of coded requests, that cannot be."""


class RefusedRows(ClusterError, InputError):
    """A replica has read rows and does not answer them; another one would not, either."""


class Unfaithful(FlourError):
    """A served program does not answer as the original does, on rows the user gave."""


class OutputInUse(FlourError):
    """Another process is writing this file of answers."""


class UnreadableFile(InputError):
    """A file of rows is damaged, or not in the format that it should be in."""


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
