"""The settings of a cluster, and who starts its processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from flour.core.errors import check_values, is_count, is_number
from runtime.cluster.serving.autoscaling import Scale
from runtime.errors import ClusterError
from runtime.http.wire.settings import ServerSettings
from runtime.workers.options import WorkerOptions


class Launcher(Protocol):
    """Starts the processes of replicas and ends them; a process that dies it starts again."""

    def launch(self, number: int) -> None:
        """Start a process that joins with this number; nothing if it is there."""

    def end(self, number: int) -> None:
        """End the process with this number, and start it no more."""

    def existing(self) -> list[int]:
        """The numbers of processes that were started before."""


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of a cluster."""

    folder: str
    staging: str
    """The directory of imported plans, which every machine has to see under this name."""
    host: str = "127.0.0.1"
    """The address of the controller for replicas, and of the front."""
    port: int = 0
    """Port of the front; 0 lets the system choose one."""
    scale: Scale = field(default_factory=Scale)
    standby: int = 0
    """Processes without models that become replicas in milliseconds."""
    options: WorkerOptions = field(default_factory=WorkerOptions)
    """Settings of each replica."""
    lease: float = 5.0
    """Seconds for which a replica may answer until it has asked again whether it may."""
    poll: float = 2.0
    """Seconds between two looks at the folder."""
    trust_pickle: bool = False
    plans: str = ""
    """A folder on object storage for plans, where not every machine sees `staging`."""
    identity: str = "cluster"
    """Names the state of this cluster in `staging`, where other clusters may have theirs."""

    @property
    def trusted(self) -> dict[str, Any]:
        """Code that may run, as a repository is told it."""
        own = self.options
        code = {"trust_code": own.trust_code, "allow_python": own.allow_python}
        return {"trust_pickle": self.trust_pickle, **code}

    def __post_init__(self) -> None:
        http, usual = self.options.settings, ServerSettings()
        address = http.host, http.port, http.reuse_port
        free = address in {(usual.host, port, False) for port in (0, usual.port)}
        options = (
            ("lease", self.lease, is_number(self.lease) and self.lease, "seconds, more than 0"),
            ("poll", self.poll, is_number(self.poll), "seconds; 0 is never"),
            ("standby", self.standby, is_count(self.standby), "a number of processes"),
            ("options.settings", address, free, "a replica listens at a free port of `host`"),
        )
        check_values(options, "a cluster cannot have such settings", None, ClusterError)
