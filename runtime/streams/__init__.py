"""Streams: an endpoint answers messages as they arrive, and its answers become messages.

from runtime.streams import Stream, open_sink, open_source

source = open_source("redis://localhost/payments", group="fraud")
Stream(runtime, "fraud", source, open_sink("redis://localhost/answers")).run()
"""

from __future__ import annotations

from flour.core.provenance import belongs_to_us
from runtime.service.stream_counts import StreamCounts
from runtime.streams.messages import MessageSink, MessageSource, StreamMessage
from runtime.streams.places import open_sink, open_source
from runtime.streams.stream import Stream

__all__ = [
    "MessageSink",
    "MessageSource",
    "Stream",
    "StreamCounts",
    "StreamMessage",
    "open_sink",
    "open_source",
]

belongs_to_us(__file__)
