"""The counts of streams that a runtime answers, for metrics and pages; see runtime.streams."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary


@dataclass(slots=True)
class StreamCounts:
    """The work of one stream; only its own thread counts."""

    endpoint: str
    source: str
    messages: int = 0
    """Answered or refused, and acknowledged."""
    rows: int = 0
    refused: int = 0
    """Written to the dead letters."""
    retries: int = 0
    """Batches that were put to the endpoint again, as it had no room."""
    reconnects: int = 0
    lag: int | None = None
    """Messages that waited when the stream looked last."""

    def __str__(self) -> str:
        """One line about the work so far."""
        lag = "" if self.lag is None else f", {self.lag:,} waiting"
        return (
            f"{self.messages:,} messages, {self.rows:,} rows, {self.refused:,} refused, "
            f"{self.retries:,} retries, {self.reconnects:,} reconnects{lag}"
        )


#: By runtime, then by endpoint and source: a stream that is started again replaces its former one.
STREAMS: WeakKeyDictionary[object, dict[tuple[str, str], StreamCounts]] = WeakKeyDictionary()
