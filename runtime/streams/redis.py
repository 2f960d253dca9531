"""Streams of Redis, by a connection of our own over hiredis.

A group shares a stream: each message goes to one consumer, and stays its own until it is
acknowledged. After a loss, or a start, a consumer reads its own messages again before new ones. It
takes over those that another one has had for `claim` seconds.

Where source and sink are on one server, a script acknowledges each message and writes its answer or
dead letter, unless it was acknowledged before. Each message then has exactly one of these, also
where two consumers have answered it. While the next messages are there already, they are answered
before the script's reply is read: Redis and this process work at one time.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import hiredis

from runtime.streams.messages import (
    BadStream,
    MessageSink,
    MessageSource,
    StreamLost,
    StreamMessage,
    message,
)
from runtime.streams.places import StreamPlace

#: Seconds to connect, and for a reply.
_CONNECT, _REPLY = 5.0, 30.0
#: Errors of a server that is starting or failing over, or has lost our script or group.
_PASSING = ("LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "NOSCRIPT", "NOGROUP")
_START = re.compile(r"|\$|\d+(-\d+)?")
#: KEYS: source, answers, dead letters. ARGV: group, both lengths or nothing; then of each message
#: value, key, id and reason.
_SETTLE = b"""
local call, given, source, out, dead, group = redis.call, ARGV, KEYS[1], KEYS[2], KEYS[3], ARGV[1]
for i = 4, #given, 4 do
  local key, id, reason = given[i + 1], given[i + 2], given[i + 3]
  if call('XACK', source, group, id) == 1 then
    if reason == '' then
      call('XADD', out, '*', 'key', key, 'value', given[i], 'of', id)
    else
      call('XADD', dead, '*', 'key', key, 'value', given[i], 'of', id, 'reason', reason)
    end
  end
end
for at = 2, 3 do
  if given[at] ~= '' then call('XTRIM', KEYS[at], 'MAXLEN', '~', given[at]) end
end
"""


class RedisConnection:
    """A connection, opened with its first command; replies come in the order of commands."""

    def __init__(self, place: StreamPlace) -> None:
        self._place, self._reader = place, hiredis.Reader()
        self._socket: socket.socket | None = None

    def send(self, *commands: tuple[Any, ...]) -> None:
        """Send commands, whose replies are read later."""
        try:
            opened = self._socket or self._opened()
            opened.sendall(b"".join(map(hiredis.pack_command, commands)))
        except OSError as problem:
            raise self._lost(problem) from None

    def reply(self, seconds: float = 0.0) -> Any:
        """The next reply, to a command that may wait for so many seconds."""
        try:
            opened = self._socket or self._opened()
            opened.settimeout(seconds + _REPLY)
            while (found := self._reader.gets()) is False:
                data = opened.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("the connection was closed")
                self._reader.feed(data)
        except OSError as problem:
            raise self._lost(problem) from None
        if isinstance(found, hiredis.ReplyError):
            self.close()  # replies to other commands may be on their way
            kind = StreamLost if str(found).startswith(_PASSING) else BadStream
            where = str(self._place)
            raise kind("Redis refuses a command", where=where, found=str(found)[:200])
        return found

    def call(self, *command: object) -> Any:
        """The reply to a command."""
        self.send(command)
        return self.reply()

    def close(self) -> None:
        """End the connection; the next command opens another one."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._reader = None, hiredis.Reader()

    def _opened(self) -> socket.socket:
        place = self._place
        opened = socket.create_connection((place.host, place.port), _CONNECT)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if place.scheme == "rediss":
            context = ssl.create_default_context()
            opened = context.wrap_socket(opened, server_hostname=place.host)
        self._socket = opened
        if place.password:
            self.call("AUTH", *filter(None, (place.user, place.password)))
        if database := int(place.number("db", 0)):
            self.call("SELECT", database)
        return opened

    def _lost(self, problem: OSError) -> StreamLost:
        self.close()
        found = problem.strerror or str(problem) or type(problem).__name__
        return StreamLost("the connection to Redis is lost", where=str(self._place), found=found)


class RedisSource(MessageSource):
    """The messages of a stream for one consumer of a group."""

    def __init__(self, url: str, group: str, consumer: str, start: str) -> None:
        self.place = place = StreamPlace(url, ("db", "claim"), 6379)
        self.name, self.address = str(place), place.address
        self._key, self._group, self._consumer = place.name, group, consumer
        self._start = {"first": "0", "last": "$"}.get(start, start)
        if not _START.fullmatch(self._start):
            hint = "first, last, or a position, such as 1700000000000-0"
            raise BadStream("Redis has no such start", where=self.name, found=start[:40], hint=hint)
        self._claim, self._stopped = place.number("claim", 60.0), False
        self._reading, self._writing = RedisConnection(place), RedisConnection(place)
        #: True if the reply to the last batch's script was not read yet.
        self._unconfirmed = False
        self.close()

    def close(self) -> None:
        """End the connections; what was not acknowledged is read again."""
        with suppress(StreamLost, BadStream):
            self._confirm()
        self._reading.close()
        self._writing.close()
        #: The last of our own messages that was read again; None when all were.
        self._again: bytes | None = b"0"
        #: True if the next messages are on their way.
        self._ahead = False
        self._joined, self._script, self._unsettled = False, b"", 0
        self._claim_at = time.monotonic()

    def _join(self) -> None:
        """Make the group, and the stream, if they are not there."""
        group = self._key, self._group, self._start or "0"
        try:
            self._reading.call("XGROUP", "CREATE", *group, "MKSTREAM")
        except BadStream as problem:
            if not str(problem.found).startswith("BUSYGROUP"):
                raise
            if self._start:
                self.say_begun(self._group)
        self._joined, self._start = True, ""

    def poll(self, limit: int, seconds: float) -> list[StreamMessage] | None:
        """Messages to be read again, then those of consumers that are gone, then new ones."""
        if not self._ahead:
            self._confirm()
            if self._stopped:
                return None
        if not self._joined:
            self._join()
        found: list[Any] = []
        if self._again is not None:
            found = self._read(limit, self._again)
            self._again = found[-1][0] if found else None
        is_claim_due = time.monotonic() >= self._claim_at
        if is_claim_due and not (found or self._ahead or self._unsettled):
            found = self._claimed(limit)
        if not found:
            found = _entries(self._reading.reply()) if self._ahead else []
            self._ahead = False
            if not found and not self._stopped:
                found = self._read(limit, b">", math.ceil(seconds * 1000))
            if len(found) >= limit > 1 and not (self._stopped or is_claim_due):
                self._ask(limit, b">")  # while there are many, the next ones come ahead
                self._ahead = True
        self._unsettled += len(found)
        return [_message(number, fields) for number, fields in found]

    def _read(self, limit: int, begin: bytes, wait: int = 0) -> list[Any]:
        self._ask(limit, begin, *(("BLOCK", wait) if wait else ()))
        return _entries(self._reading.reply(wait / 1000))

    def _ask(self, limit: int, begin: bytes, *block: object) -> None:
        head = "XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", limit
        self._reading.send((*head, *block, "STREAMS", self._key, begin))

    def _claimed(self, limit: int) -> list[Any]:
        """Messages that another consumer has had for too long."""
        idle, names = int(self._claim * 1000), (self._key, self._group, self._consumer)
        reply = self._reading.call("XAUTOCLAIM", *names, idle, "0", "COUNT", limit)
        found: list[Any] = reply[1]
        if len(found) < limit:
            self._claim_at = time.monotonic() + self._claim / 4
        return found

    def acknowledge(self, taken: Sequence[StreamMessage]) -> None:
        """Take messages off the consumer's list."""
        if taken:
            ids = [each.position for each in taken]
            self._confirm()
            self._writing.call("XACK", self._key, self._group, *ids)
        self._unsettled = 0

    def settle(
        self,
        taken: Sequence[StreamMessage],
        writes: Sequence[tuple[MessageSink, Sequence[StreamMessage]]],
    ) -> None:
        """Write and acknowledge in one step, if all of it is on this server."""
        keys, lengths, rest = [self._key] * 3, ["", ""], list[Any]()
        for sink, messages in writes:
            if not isinstance(sink, RedisSink) or sink.place.server != self.place.server:
                break
            is_dead = bool(messages[0].reason)
            keys[1 + is_dead], lengths[is_dead] = sink.place.name, sink.most
            rest += chain.from_iterable(messages)
        if not taken or len(rest) < 4 * len(taken):
            super().settle(taken, writes)
            return
        self._confirm()
        if not self._script:
            self._script = self._writing.call("SCRIPT", "LOAD", _SETTLE)
        rest = [each or b"" for each in rest] if None in rest else rest
        self._writing.send(("EVALSHA", self._script, 3, *keys, self._group, *lengths, *rest))
        self._unsettled, self._unconfirmed = 0, True
        if not self._ahead:
            self._confirm()

    def _confirm(self) -> None:
        """Read the reply to the last batch's script, if there is one to come."""
        waits, self._unconfirmed = self._unconfirmed, False
        if waits:
            self._writing.reply()

    def lag(self) -> int | None:
        """Messages that no consumer has, and those that consumers have not acknowledged.

        Redis does not know it where messages were deleted, or the group was set to some position.
        """
        self._confirm()
        for each in self._writing.call("XINFO", "GROUPS", self._key) if self._joined else ():
            group = dict(zip(each[::2], each[1::2], strict=True))
            if group[b"name"] == self._group.encode() and group.get(b"lag") is not None:
                return int(group[b"lag"]) + int(group[b"pending"])
        return None

    def stop(self) -> None:
        """Ask for no more."""
        self._stopped = True


class RedisSink(MessageSink):
    """Appends to a stream, which has about `maxlen` messages at most."""

    def __init__(self, url: str) -> None:
        self.place = StreamPlace(url, ("db", "maxlen"), 6379)
        self.name, self.address = str(self.place), self.place.address
        self.most = str(int(self.place.number("maxlen", 0)) or "")
        self._connection = RedisConnection(self.place)

    def write(self, messages: Sequence[StreamMessage]) -> None:
        """Append all, in one package."""
        bound = ("MAXLEN", "~", self.most) if self.most else ()
        head, commands = ("XADD", self.place.name, *bound, "*"), []
        for each in messages:
            reason = ("reason", each.reason) if each.reason else ()
            fields = "key", each.key or b"", "value", each.value or b"", "of", each.position
            commands.append((*head, *fields, *reason))
        self._connection.send(*commands)
        for _ in commands:
            self._connection.reply()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


SOURCE, SINK = RedisSource, RedisSink


def _entries(reply: list[Any] | None) -> list[Any]:
    """The entries of the one stream that was read."""
    return list(reply[0][1]) if reply else []


def _message(number: bytes, fields: list[bytes] | None) -> StreamMessage:
    """The message of an entry: the fields `key` and `value`, or one field of any name."""
    if fields and len(fields) == 4 and fields[0] == b"key" and fields[2] == b"value":
        return message((fields[3], fields[1], number, ""))
    named = dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}
    value = named.get(b"value") if len(named) != 1 else next(iter(named.values()))
    return StreamMessage(value, named.get(b"key"), number)
