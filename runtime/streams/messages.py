"""Messages, and the interfaces of the places they come from and go to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from flour.core.errors import FlourError, InputError

log = logging.getLogger("pretzel.streams")


class BadStream(FlourError, ValueError):
    """An address or option of a stream that cannot be."""


class StreamLost(FlourError):
    """A broker is out of reach; the stream connects again and repeats what was lost."""


class RefusedMessage(InputError):
    """A message is no row of the model, and there is no place for such messages."""


class StreamMessage(NamedTuple):
    """A message: rows to answer, an answer, or a message that was refused."""

    value: bytes | None
    """JSON; None if the broker has none."""
    key: bytes | None = None
    position: bytes = b""
    """Where it is in the source, or the message that it answers."""
    reason: str = ""
    """Why it was refused."""


#: From a tuple of the four, which takes a third of the time.
message: Callable[[tuple[bytes | None, bytes | None, bytes, str]], StreamMessage]
message = partial(tuple.__new__, StreamMessage)


class MessageSink:
    """A place that messages are written to; a source of the same `address` would read them."""

    name: str = "messages"
    address: object = None

    def write(self, messages: Sequence[StreamMessage]) -> None:
        """Return when the messages will survive the end of this process."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of connections and files; `write` opens them again."""


class MessageSource:
    """A place that messages come from; what was not acknowledged comes again."""

    name: str = "messages"
    address: object = None

    def reads(self, sink: MessageSink) -> bool:
        """True if what the sink is given would come from here."""
        return self.address is not None and self.address == sink.address

    def say_begun(self, group: str) -> None:
        """Say that a start is for new groups, and this one has a place."""
        log.warning("%s: the group %r has begun, and goes on where it was", self.name, group)

    def poll(self, limit: int, seconds: float) -> list[StreamMessage] | None:
        """About `limit` messages at most, waiting for the first one; None if no more will come."""
        raise NotImplementedError

    def acknowledge(self, taken: Sequence[StreamMessage]) -> None:
        """Never give out these messages again: all that were polled since the last time."""
        raise NotImplementedError

    def settle(
        self,
        taken: Sequence[StreamMessage],
        writes: Sequence[tuple[MessageSink, Sequence[StreamMessage]]],
    ) -> None:
        """Write, then acknowledge; as one step where the place can do that."""
        for sink, messages in writes:
            sink.write(messages)
        self.acknowledge(taken)

    def lag(self) -> int | None:
        """The number of messages that wait; None if unknown."""
        return None

    def stop(self) -> None:
        """Take nothing more; `poll` gives what was taken before, then None."""

    def close(self) -> None:
        """Let go of connections and files; `poll` opens them, and gives what is not settled."""
