"""Topics of Kafka, by confluent-kafka: whole batches are consumed, produced and committed.

Offsets are committed when all answers have arrived. Where partitions have gone to another consumer
meanwhile, the commit is refused, and what they had is answered again by that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import confluent_kafka as kafka

from runtime.streams.messages import (
    BadStream,
    MessageSink,
    MessageSource,
    StreamLost,
    StreamMessage,
)
from runtime.streams.places import StreamPlace

#: Seconds for a broker to take or give something.
_SECONDS = 30.0
_STARTS = {"first": kafka.OFFSET_BEGINNING, "last": kafka.OFFSET_END}
#: Errors of a commit by a consumer that has lost its partitions.
_TAKEN = ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "_ASSIGNMENT_LOST")
_TAKEN_CODES = [getattr(kafka.KafkaError, name) for name in _TAKEN]


_OPTIONS = ("security", "mechanism", "session")


def _settings(place: StreamPlace) -> dict[str, Any]:
    given = {"bootstrap.servers": f"{place.host}:{place.port}", "log_level": 3}
    if place.user:
        given |= {"sasl.username": place.user, "sasl.password": place.password}
        given["sasl.mechanism"] = place.options.get("mechanism", "PLAIN")
    usual = "sasl_ssl" if place.user else "plaintext"
    return given | {"security.protocol": place.options.get("security", usual)}


class KafkaSource(MessageSource):
    """The messages of a topic for one consumer of a group, in the order of each partition."""

    def __init__(self, url: str, group: str, consumer: str, start: str) -> None:
        self._place = place = StreamPlace(url, _OPTIONS, 9092)
        self.name, self.address, self._stopped = str(place), place.address, False
        self._settings = _settings(place) | {
            "group.id": group,
            "client.id": consumer,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": int(place.number("session", 10.0) * 1000),
        }
        if start and start not in _STARTS and not start.isdecimal():
            hint = "first, last, or an offset"
            raise BadStream("Kafka has no such start", where=self.name, found=start[:40], hint=hint)
        self._start = int(_STARTS.get(start, start)) if start else None
        self._group = group
        self._consumer: kafka.Consumer | None = None

    def _opened(self) -> kafka.Consumer:
        if self._consumer is None:
            self._consumer = kafka.Consumer(self._settings)
            self._consumer.subscribe([self._place.name], on_assign=self._assigned)
        return self._consumer

    def _assigned(self, consumer: kafka.Consumer, partitions: list[kafka.TopicPartition]) -> None:
        if self._start is not None:
            try:
                known = [each.offset for each in consumer.committed(partitions, _SECONDS)]
            except kafka.KafkaException as problem:
                found = str(problem)[:200]
                raise StreamLost("Kafka has no offsets", where=self.name, found=found) from None
            for each, place in zip(partitions, known, strict=True):
                each.offset = self._start if place < 0 else place
            consumer.assign(partitions)
            if max(known, default=-1) >= 0:
                self.say_begun(self._group)

    def poll(self, limit: int, seconds: float) -> list[StreamMessage] | None:
        """The next messages of all partitions."""
        if self._stopped:
            return None
        messages = self._opened().consume(limit, seconds)
        for each in messages:
            if (problem := each.error()) is not None:
                raise StreamLost("Kafka gives no messages", where=self.name, found=str(problem))
        return [
            StreamMessage(each.value(), each.key(), b"%d:%d" % (each.partition(), each.offset()))
            for each in messages
        ]

    def acknowledge(self, taken: Sequence[StreamMessage]) -> None:
        """Commit the offset behind the last message of each partition."""
        last = dict(each.position.split(b":") for each in taken)
        name = self._place.name
        offsets = [kafka.TopicPartition(name, int(at), int(last[at]) + 1) for at in last]
        try:
            if offsets:
                self._opened().commit(offsets=offsets, asynchronous=False)
                self._start = None
        except kafka.KafkaException as problem:
            if problem.args[0].code() not in _TAKEN_CODES:
                found = str(problem)[:200]
                raise StreamLost("Kafka takes no offsets", where=self.name, found=found) from None

    def lag(self) -> int | None:
        """Messages of our partitions behind those that were polled, as the broker said last."""
        if (consumer := self._consumer) is None:
            return None
        found = 0
        for each in consumer.position(consumer.assignment()):
            low, high = consumer.get_watermark_offsets(each, cached=True)
            found += max(high - (each.offset if each.offset >= 0 else max(low, 0)), 0)
        return found

    def stop(self) -> None:
        """Consume nothing more."""
        self._stopped = True

    def close(self) -> None:
        """Leave the group; what was not committed is consumed again."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None


class KafkaSink(MessageSink):
    """Produces to a topic; keys choose the partitions."""

    def __init__(self, url: str) -> None:
        self._place = place = StreamPlace(url, _OPTIONS, 9092)
        self.name, self.address = str(place), place.address
        timeout = {"linger.ms": 2, "message.timeout.ms": int(_SECONDS * 1000)}
        self._producer = kafka.Producer(_settings(place) | timeout)
        self._failed: list[kafka.KafkaError] = []

    def write(self, messages: Sequence[StreamMessage]) -> None:
        """Produce all, and wait until all have arrived."""
        for each in messages:
            reason = [("reason", each.reason.encode())] if each.reason else []
            self._produce(each, [("of", each.position), *reason])
        left = self._producer.flush(_SECONDS)
        if left or self._failed:
            found = str(self._failed[0]) if self._failed else f"{left} messages have not arrived"
            self._producer.purge()
            self._producer.poll(0)
            self._failed.clear()
            raise StreamLost("Kafka takes no messages", where=str(self._place), found=found)

    def _produce(self, each: StreamMessage, headers: list[tuple[str, bytes]]) -> None:
        place, options = self._place.name, {"headers": headers, "on_delivery": self._delivered}
        try:
            self._producer.produce(place, each.value, each.key, **options)
        except BufferError:  # more than the queue of the library takes
            self._producer.flush(_SECONDS)
            self._producer.produce(place, each.value, each.key, **options)

    def _delivered(self, problem: kafka.KafkaError | None, _: object) -> None:
        if problem is not None:
            self._failed.append(problem)


SOURCE, SINK = KafkaSource, KafkaSink
