"""A place for messages in memory whose users may be killed, and small models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import flour
from runtime.streams import MessageSink, MessageSource, StreamMessage


class Killed(BaseException):
    """The process has ended here."""


class Log:
    """A broker in memory: messages, answers, dead letters, and the place of the group."""

    def __init__(self, values: Sequence[object]) -> None:
        texts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in values]
        self.messages = [
            StreamMessage(text, b"%d" % (at % 7), b"%d" % at) for at, text in enumerate(texts)
        ]
        self.answers: list[StreamMessage] = []
        self.letters: list[StreamMessage] = []
        self.committed = 0
        #: The point to be killed at, and after how many passes of it.
        self.kill: tuple[str, int] | None = None
        self.passed: list[str] = []

    def point(self, name: str) -> None:
        self.passed.append(name)
        if self.kill and self.kill[0] == name and self.passed.count(name) > self.kill[1]:
            self.kill = None
            raise Killed


class LogSource(MessageSource):
    def __init__(self, log: Log) -> None:
        self.name, self.log = "log", log
        self.at, self.stopped, self.resets = log.committed, False, 0
        self.polls: list[tuple[int, float]] = []
        self.problems: list[Exception] = []

    def poll(self, limit: int, seconds: float) -> list[StreamMessage] | None:
        self.polls.append((limit, seconds))
        if self.problems:
            raise self.problems.pop()
        if self.stopped or self.at >= len(self.log.messages):
            return None
        found = self.log.messages[self.at : self.at + limit]
        self.at += len(found)
        self.log.point("polled")
        return found

    def acknowledge(self, taken: Sequence[StreamMessage]) -> None:
        self.log.point("before acknowledging")
        self.log.committed = max(self.log.committed, *(int(each.position) + 1 for each in taken))
        self.log.point("acknowledged")

    def close(self) -> None:
        self.resets += 1
        self.at = self.log.committed

    def lag(self) -> int | None:
        return len(self.log.messages) - self.log.committed

    def stop(self) -> None:
        self.stopped = True


class LogSink(MessageSink):
    def __init__(self, log: Log, *, dead: bool = False) -> None:
        self.log, self.to = log, log.letters if dead else log.answers
        self.problems: list[Exception] = []

    def write(self, messages: Sequence[StreamMessage]) -> None:
        self.log.point("before writing")
        if self.problems:
            raise self.problems.pop()
        self.to.extend(messages)
        self.log.point("written")


def times(factor: float) -> flour.Flow:
    """x * factor: whoever sees an answer knows which version gave it."""
    return flour.outputs(value=flour.record("row", x=float)["x"] * factor)


def values(messages: Sequence[StreamMessage]) -> list[Any]:
    """The answers' values, or a list of them for an answer to several rows."""
    found = [json.loads(each.value or b"") for each in messages]
    return [
        [row["value"] for row in each] if isinstance(each, list) else each["value"]
        for each in found
    ]
