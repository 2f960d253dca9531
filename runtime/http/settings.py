"""Every knob of the front end, in one place; all limits hold for each connection."""

from __future__ import annotations

from dataclasses import dataclass

from flour.core.errors import ParameterError


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens and what it puts up with. Times are in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 lets the system choose one."""
    reuse_port: bool = False
    """Whether other processes may listen on the same port (SO_REUSEPORT)."""
    backlog: int = 1024
    max_connections: int = 10_000

    max_header: int = 32 << 10
    """The request line and all headers together."""
    max_body: int = 64 << 20
    """As it arrives, and again after it was unpacked."""
    max_pipelined: int = 64
    """So many requests may wait for the one before them on a connection."""

    header_seconds: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_seconds: float = 30.0
    """For a body; one second more for each `body_rate` bytes of it."""
    body_rate: int = 1 << 20
    idle_seconds: float = 75.0
    """Between two requests."""
    write_seconds: float = 30.0
    """For a client that does not read its answers."""
    drain_seconds: float = 30.0
    """What `stop` gives requests on their way."""

    compress_above: int = 16 << 10
    """Answers of this size are packed for clients that accept it; smaller ones never."""
    default_priority: int = 8
    """What a request without `priority` counts as: 1 goes first, larger numbers later."""

    cache_bytes: int = 0
    """What each endpoint keeps of its answers; a model's own `cache_bytes` goes first."""
    batch_wait: float = 0.0
    """So long may a request wait for others to go with it; 0 turns it off."""
    batch_objective: float = 0.0
    """Within this time an answer should be there, so nothing waits that long; 0 sets none."""
    batch_rows: int = 1024
    """Requests that came together go as soon as they have so many rows."""

    tokens: str = ""
    """A file with a line `name token` for each client that is known."""
    tokens_required: bool = True
    """Whether those who are not known stay outside, where there is such a file."""
    anonymous_rate: float = 0.0
    """Requests a second of each address without a token; 0 is no limit."""
    known_rate: float = 0.0
    """Requests a second of each client with a token; 0 is no limit."""
    rate_burst: float = 1.0
    """Who was quiet may catch up on so many seconds at once."""
    max_waiting: int = 0
    """So many requests may wait for their answers at once, over all connections; 0 is no limit."""

    metrics: bool = True
    """Whether requests are counted and `/metrics` answers."""
    triton_metrics: bool = False
    """Whether the same figures have Triton's names too."""
    status_page: bool = True
    """Whether `/` and `/explain` answer."""
    access_log: str = ""
    """A file for a line of JSON for each request; "-" is standard error, nothing is no log."""
    access_log_share: float = 1.0
    """So much of the requests that went well is logged; those that did not are, always."""
    tracing: bool = False
    """Whether requests become spans of OpenTelemetry."""
    trace_stages: float = 0.0
    """So much of the traced requests is computed stage by stage, with a span for each."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not value >= 0:
                raise ParameterError(
                    f"{name} cannot be negative", where="ServerSettings", found=repr(value)
                )
        for name in ("access_log_share", "trace_stages"):
            share = getattr(self, name)
            if not share <= 1:
                raise ParameterError(
                    f"{name} is a share, from 0 to 1", where="ServerSettings", found=repr(share)
                )
        if self.port > 65535:
            raise ParameterError(
                "there is no such port", where="ServerSettings.port", found=str(self.port)
            )
