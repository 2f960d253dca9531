"""Settings of the front end; all limits are per connection."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from flour.core.errors import ParameterError, is_count, is_number


@cache
def server_version() -> str:
    """The version of the distribution."""
    try:
        return version("pretzel-runtime")
    except PackageNotFoundError:  # a checkout
        return "0"


def _absolute(path: str | PathLike[str]) -> str:
    """A file by its whole path, as workers may run elsewhere; "-" is standard error."""
    return str(path if str(path) in {"", "-"} else Path(path).absolute())


#: A name of a header (RFC 9110), but of none with secrets: tenants stand in metrics and on pages.
_HEADER = re.compile(r"(?i)(?!(proxy-)?authorization$|cookie$)[!#$%&'*+.^_`|~0-9a-z-]+")


def _same(value: object) -> object:
    return value


def _is_header(value: object) -> bool:
    return isinstance(value, str) and _HEADER.fullmatch(value) is not None


LOG_LEVELS: tuple[Literal["debug", "info", "warning", "error"], ...]
LOG_LEVELS = "debug", "info", "warning", "error"

#: Check, wording and stored type of a setting, by its name or its annotation.
_KINDS: dict[object, tuple[Callable[[Any], bool], str, Callable[[Any], object]]] = {
    "bool": (lambda value: isinstance(value, bool), "true or false", bool),
    "int": (is_count, "an integer", int),
    "float": (is_number, "a finite number", float),
    "str": (lambda value: isinstance(value, str) and bool(value), "a text that is not empty", str),
    "tenant_header": (_is_header, "the name of a header that holds no secret", str),
    "str | None": (
        lambda value: value is None or (isinstance(value, str) and bool(value)),
        "a text that is not empty, or None",
        _same,
    ),
    "unix_mode": (
        lambda value: isinstance(value, str) and re.fullmatch("[0-7]{3}", value) is not None,
        "three octal digits",
        str,
    ),
    "log_format": (lambda value: value in {None, "json", "text"}, "json, text or None", _same),
    "log_level": (
        lambda value: value is None or value in LOG_LEVELS,
        f"{', '.join(LOG_LEVELS)} or None",
        _same,
    ),
    "str | Path": (lambda value: isinstance(value, str | PathLike), "a path", _absolute),
    "str | Path | None": (
        lambda value: value is None or (isinstance(value, str | PathLike) and bool(str(value))),
        "a path that is not empty, or None",
        lambda value: value if value is None else _absolute(value),
    ),
}
#: Smallest and largest values of numbers; timers of the system overflow beyond some centuries.
_BOUNDS: dict[object, tuple[float, float]] = {"int": (0, 1 << 62), "float": (0, 1e9)}
_BOUNDS |= dict.fromkeys(("access_log_share", "trace_stages"), (0, 1))
_BOUNDS |= {"port": (0, 65535), "backlog": (1, 65535), "max_header": (128, 1 << 30)}
_SOME = ("max_connections", "max_body", "body_rate", "explain_rows", "batch_rows")
_WAITS = ("header_seconds", "body_seconds", "idle_seconds", "write_seconds")
_BOUNDS |= dict.fromkeys(_SOME, (1, 1 << 62)) | dict.fromkeys(_WAITS, (0.001, 1e9))


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The address of the server, its limits and its features. Times in seconds, sizes in bytes."""

    host: str = "127.0.0.1"
    """The address to listen on; "0.0.0.0" is every IPv4 address of the machine, and "unix:PATH" a
    socket in the file system."""
    port: int = 8000
    """0 lets the system choose one."""
    unix_mode: str = "600"
    """Permissions of a socket in the file system: who may connect."""
    tls_cert: str | Path | None = None
    """A PEM file with the server's certificate and those of its issuers: clients use https. Files
    of TLS are read again when they change, and on SIGHUP."""
    tls_key: str | Path | None = None
    """The key of the certificate, where it is not in the same file."""
    tls_client_ca: str | Path | None = None
    """A PEM file with the authorities that sign clients' certificates, which are asked for."""
    tls_client_required: bool = True
    """True if connections without such a certificate are refused."""
    reuse_port: bool = False
    """True if other processes may listen on the same port (SO_REUSEPORT)."""
    backlog: int = 1024
    """Connections that the system holds until the server accepts them."""
    max_connections: int = 10_000
    """Open connections; further ones are refused with 503."""

    max_header: int = 32 << 10
    """The request line and all headers together."""
    max_body: int = 64 << 20
    """Limit of a body as received, and again after decompression. Beyond 16 MiB, a compressed body
    may be 100 times as long as it was."""

    header_seconds: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_seconds: float = 30.0
    """For a body; plus one second for each `body_rate` bytes."""
    body_rate: int = 1 << 20
    """Bytes a second that clients are expected to send at least."""
    idle_seconds: float = 75.0
    """Between two requests."""
    write_seconds: float = 30.0
    """For a client that does not read its answers."""
    drain_delay: float = 0.0
    """Time for which `stop` goes on accepting connections, while readiness is 503 already."""
    drain_seconds: float = 30.0
    """Time that `stop` gives current requests."""

    compress_above: int = 16 << 10
    """Larger answers are compressed for clients that accept it."""

    cache_bytes: int = 0
    """Size of each endpoint's result cache, unless the model has its own `cache_bytes`."""
    batch_wait: float = 0.0
    """Longest time that a request waits to form a batch; 0 turns batching off."""
    batch_objective: float = 0.0
    """Target time for answers, which bounds the waiting for a batch; 0 for none."""
    batch_rows: int = 1024
    """A batch is sent when it has this many rows."""

    tokens: str | Path | None = None
    """A file with a line `name token rights models` for each client, the last two where it may not
    do everything. Tokens have 16 characters or more, or are `sha256:DIGEST` or `cert:NAME`."""
    tokens_required: bool = True
    """True if requests without a valid token are refused, if there is such a file."""
    anonymous_rate: float = 0.0
    """Requests a second of each address without a token; 0 is no limit."""
    known_rate: float = 0.0
    """Requests a second of each client with a token; 0 is no limit."""
    anonymous_at_once: int = 0
    """Requests of each address without a token that may be on their way; 0 is no limit."""
    known_at_once: int = 0
    """Requests of each client with a token that may be on their way; 0 is no limit."""
    rate_burst: float = 1.0
    """Seconds of its rate that an idle client may use at once."""
    explain_rate: float = 10.0
    """Requests a second, of all clients, that may ask for attribution; 0 refuses them."""
    explain_rows: int = 100
    """Rows of a request that asks for attribution."""
    new_bytes_a_day: int = 0
    """Bytes of bodies not sent before, for each client and day, so that models are not easily
    copied by asking; 0 is no limit."""
    answers: str | Path = ""
    """A folder for the answers of models whose notes say that they are kept."""
    tenant_header: str = "x-tenant"
    """The header that names the tenant of a request, for routes; clients are believed."""
    max_waiting: int = 0
    """Requests that may wait for their answers, over all connections; 0 is no limit."""

    max_unread: float = 0.25
    """Seconds that a request may wait unread while the event loop is busy; later it is refused
    unread. A deadline in a header replaces it: half of that. 0 is no limit."""

    default_model: str | None = None
    """The model that `/invocations` asks where several are loaded."""
    ready_needs_all: bool = False
    """True if a model whose files cannot be served, or a folder without any model, makes the
    server not ready."""
    metrics: bool = True
    """True if requests are counted and `/metrics` answers."""
    core_watts: float = 0.0
    """Watts of a busy core, for the energy of endpoints where the machine does not tell it."""
    carbon_grams: float = 0.0
    """Grams of carbon dioxide for each kilowatt-hour; 0 leaves that out of the metrics."""
    triton_metrics: bool = False
    """True if metrics also appear under Triton's names."""
    status_page: bool = True
    """True if `/` and `/explain` answer."""
    log_format: str | None = None
    """`json` or `text`: lines of the server's log on standard error, with the ids of requests. None
    leaves logging to the program."""
    log_level: str | None = None
    """The least level that is logged: `debug`, `info`, `warning` or `error`."""
    access_log: str | Path = ""
    """A file for a line of JSON for each request; "-" is standard error, empty is no log."""
    access_log_share: float = 1.0
    """Share of successful requests that are logged; failed ones always are."""
    audit_log: str | Path = ""
    """A file for a line of JSON for each request that would change something: who, what, when,
    from where, and the answer."""
    tracing: bool = False
    """True if requests become spans of OpenTelemetry."""
    trace_stages: float = 0.0
    """Share of traced requests that are computed stage by stage, with a span for each."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            fits, meaning, kept = _KINDS.get(each.name) or _KINDS[each.type]
            bounds = _BOUNDS.get(each.name) or _BOUNDS.get(each.type)
            if bounds:
                meaning += ", {} or more" if bounds[1] >= 1e9 else " from {} to {}"
                meaning = meaning.format(*bounds)
            if not fits(value) or (bounds and not bounds[0] <= value <= bounds[1]):
                what, where = f"{each.name} is {meaning}", f"ServerSettings.{each.name}"
                hint = f"the usual value is {each.default!r}"
                raise ParameterError(what, where=where, found=repr(value)[:80], hint=hint)
            object.__setattr__(self, each.name, kept(value))
        for name in ("tls_key", "tls_client_ca"):
            if getattr(self, name) and not self.tls_cert:
                what, where = f"{name} is of a server with tls_cert", f"ServerSettings.{name}"
                raise ParameterError(what, where=where, found="tls_cert=None")
