"""Several processes that serve one port, with the same models in the same versions.

Supervisor     holds the port and the folder of models, starts workers, replaces those that end
Fleet          what all of them should have registered: a runtime to the folder's repository
WorkerOptions  what all workers have in common
"""

from __future__ import annotations

from runtime.workers.fleet import Fleet
from runtime.workers.options import WorkerOptions
from runtime.workers.slot import WorkerEvent
from runtime.workers.supervisor import Supervisor

__all__ = ["Fleet", "Supervisor", "WorkerEvent", "WorkerOptions"]
