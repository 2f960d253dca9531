"""Streams of messages through an endpoint: from Redis, Kafka, files or a pipe, and back."""

from runtime.streams import Stream, StreamMessage, open_sink, open_source

__all__ = ["Stream", "StreamMessage", "open_sink", "open_source"]
