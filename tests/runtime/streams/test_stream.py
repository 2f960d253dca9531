"""The loop of streams over a place in memory: nothing is lost, wherever the process ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

import flour
from runtime import Runtime
from runtime.errors import UnknownEndpoint
from runtime.streams import Stream, StreamMessage
from runtime.streams.messages import RefusedMessage, StreamLost
from scheduler import Overloaded
from tests.runtime.streams.world import Killed, Log, LogSink, LogSource, times, values

ROWS = [{"x": float(number)} for number in range(40)]


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        made.register("m", times(2.0), background=False)
        yield made


class Clock:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def stream(runtime: Runtime, log: Log, **options: object) -> Stream:
    options = {"rows": 8, "wait": 0.0, "dead": LogSink(log, dead=True), **options}
    return Stream(runtime, "m", LogSource(log), LogSink(log), **options)  # type: ignore[arg-type]


def test_every_message_is_answered_in_order(runtime: Runtime) -> None:
    log = Log(ROWS)
    made = stream(runtime, log)
    made.run()
    assert values(log.answers) == [2.0 * number for number in range(40)]
    assert [(each.key, each.position) for each in log.answers] == [
        (each.key, each.position) for each in log.messages
    ]
    assert log.committed == 40
    assert log.passed.count("acknowledged") == 5
    assert str(made.counts) == (
        "40 messages, 40 rows, 0 refused, 0 retries, 0 reconnects, 40 waiting"
    )


@pytest.mark.parametrize(
    "point", ["polled", "before writing", "written", "before acknowledging", "acknowledged"]
)
@pytest.mark.parametrize("after", [0, 2])
def test_a_killed_process_loses_nothing(runtime: Runtime, point: str, after: int) -> None:
    log = Log(ROWS)
    log.kill = point, after
    with pytest.raises(Killed):
        stream(runtime, log).run()
    stream(runtime, log).run()
    found = [int(each.position) for each in log.answers]
    twice = 8 if point in {"written", "before acknowledging"} else 0
    assert sorted(set(found)) == list(range(40))
    assert len(found) - 40 == twice, "what was written and not acknowledged, and nothing else"
    for key in {each.key for each in log.messages}:
        places = [int(each.position) for each in log.answers if each.key == key]
        assert list(dict.fromkeys(places)) == sorted(set(places))


def test_a_message_may_have_several_rows(runtime: Runtime) -> None:
    log = Log([[{"x": 1}, {"x": 2}], {"x": 3}, [], [{"x": 4}]])
    stream(runtime, log).run()
    assert values(log.answers) == [[2.0, 4.0], 6.0, [8.0]]
    assert [each.value for each in log.letters] == [b"[]"]  # a row without its column


def test_refused_messages_are_dead_letters_and_the_others_go_on(runtime: Runtime) -> None:
    log = Log(
        [*ROWS[:3], b"{", {"y": 1}, {"x": "one"}, b"null", [{"x": 1}, {"x": "two"}], {"x": 9}]
    )
    made = stream(runtime, log)
    made.run()
    assert values(log.answers) == [0.0, 2.0, 4.0, 18.0]
    assert [each.position for each in log.letters] == [b"3", b"4", b"5", b"6", b"7"]
    assert [each.value for each in log.letters] == [each.value for each in log.messages[3:8]]
    assert log.letters[0].reason.startswith("this is not JSON")
    assert "'x'" in log.letters[1].reason or "x" in log.letters[1].reason
    assert log.committed == 9
    assert made.counts.refused == 5


def test_messages_that_are_no_json_alone_are_not_put_together(runtime: Runtime) -> None:
    log = Log([b'{"x": 1', b'"x": 2}', b'{"x": 1},{"x": 2}', b'{"x": 4}'])
    stream(runtime, log).run()
    assert values(log.answers) == [8.0]
    assert len(log.letters) == 3


def test_without_dead_letters_a_refused_message_ends_the_stream(runtime: Runtime) -> None:
    log = Log([*ROWS[:3], {"y": 1}, *ROWS[3:]])
    with pytest.raises(RefusedMessage, match="this message is refused"):
        stream(runtime, log, dead=None).run()
    assert values(log.answers) == [0.0, 2.0, 4.0]
    assert log.committed == 3, "those before it are settled, it is not"


def test_the_endpoint_may_be_switched_under_the_stream(runtime: Runtime) -> None:
    log = Log(ROWS[:24])
    made = stream(runtime, log)
    made.step()
    runtime.register("m", times(10.0), background=False)
    made.step()
    runtime.route("m", "m@1", split={"m@2": 50}, by="x")
    made.run()
    first, second, third = (values(log.answers)[at : at + 8] for at in (0, 8, 16))
    assert first == [2.0 * number for number in range(8)]
    assert second == [10.0 * number for number in range(8, 16)]
    assert {value / number for number, value in enumerate(third, 16)} == {2.0, 10.0}


def test_a_batch_ends_at_its_rows_or_its_deadline(runtime: Runtime) -> None:
    class Slow(LogSource):
        def poll(self, limit: int, seconds: float) -> list[StreamMessage] | None:
            clock.now += 0.004
            return super().poll(min(limit, 3), seconds)

    clock, log = Clock(), Log(ROWS)
    source = Slow(log)
    made = Stream(runtime, "m", source, LogSink(log), rows=8, wait=0.01, clock=clock)
    made.step()
    assert log.committed == 8
    assert [limit for limit, _ in source.polls] == [3, 3, 2]
    made = Stream(runtime, "m", source, LogSink(log), rows=100, wait=0.01, clock=clock)
    made.step()
    assert log.committed == 8 + 4 * 3, "one poll, and as many as begin within the deadline"


def test_the_source_waits_while_the_endpoint_has_no_room(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, full = runtime.direct.answer, [Overloaded("full", retry_after=0.5)] * 3

    def refuse(call: object) -> object:
        if full:
            raise full.pop()
        return answer(call)  # type: ignore[arg-type]

    monkeypatch.setattr(runtime.direct, "answer", refuse)
    clock, log = Clock(), Log(ROWS)
    made = stream(runtime, log, clock=clock, pause=clock.pause)
    made.run()
    assert clock.pauses == [0.5] * 3
    assert made.counts.retries == 3
    assert values(log.answers) == [2.0 * number for number in range(40)]


def test_the_patience_with_a_full_queue_is_bounded(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> object:
        raise Overloaded("full")

    monkeypatch.setattr(runtime.direct, "answer", refuse)
    clock, log = Clock(), Log(ROWS)
    with pytest.raises(Overloaded):
        stream(runtime, log, clock=clock, pause=clock.pause, patience=10.0).run()
    assert 10.0 <= clock.now <= 20.0
    assert log.committed == 0


@pytest.mark.parametrize("place", ["source", "sink"])
def test_a_lost_broker_is_connected_again(runtime: Runtime, place: str) -> None:
    clock, log = Clock(), Log(ROWS)
    source, sink = LogSource(log), LogSink(log)
    lost: list[Exception] = [StreamLost("gone") for _ in range(3)]
    (source if place == "source" else sink).problems = lost
    made = Stream(runtime, "m", source, sink, rows=8, wait=0, clock=clock, pause=clock.pause)
    made.run()
    assert values(log.answers) == [2.0 * number for number in range(40)]
    assert source.resets == made.counts.reconnects == len(clock.pauses) == 3
    assert clock.pauses == sorted(clock.pauses), "each pause is longer than the one before"


def test_the_patience_with_a_lost_broker_is_bounded(runtime: Runtime) -> None:
    clock, log = Clock(), Log(ROWS)
    source = LogSource(log)
    source.problems = [StreamLost("gone") for _ in range(1000)]
    made = Stream(runtime, "m", source, clock=clock, pause=clock.pause, patience=60.0)
    with pytest.raises(StreamLost):
        made.run()
    assert 60.0 <= clock.now <= 70.0


def test_a_stop_answers_what_was_polled(runtime: Runtime) -> None:
    log = Log(ROWS)
    made = stream(runtime, log)
    log.point = lambda name: made.stop() if name == "polled" else None  # type: ignore[method-assign]
    made.run()
    assert log.committed == 8
    assert len(log.answers) == 8


def test_columns_are_copied_into_the_answers(runtime: Runtime) -> None:
    log = Log(
        [{"x": 1, "id": "a"}, [{"x": 2, "id": "b"}], {"x": 3, "ids": 1}, {"x": 4, "id": None}]
    )
    stream(runtime, log, keep=["id"]).run()
    assert [each.value for each in log.answers] == [
        b'{"id":"a","value":2.0}',
        b'[{"id":"b","value":4.0}]',
        b'{"id":null,"value":8.0}',
    ]
    (letter,) = log.letters
    assert letter.reason.startswith("a row has no column 'id' to keep")
    assert "did you mean 'ids'?" in letter.reason


def test_answers_come_to_an_event_loop(runtime: Runtime) -> None:
    log = Log(ROWS)

    async def first(count: int) -> list[float]:
        found: list[float] = []
        with suppress(RuntimeError):
            async for answers in Stream(runtime, "m", LogSource(log), rows=8, wait=0.0):
                found += values(answers)
                if len(found) >= count:
                    break
        return found

    assert asyncio.run(first(24)) == [2.0 * number for number in range(24)]
    assert log.committed == 16, "the last batch is acknowledged when the next one is asked for"
    assert asyncio.run(first(100)) == [2.0 * number for number in range(16, 40)]
    assert log.committed == 40


@pytest.mark.parametrize(
    ("program", "messages", "answers"),
    [
        (
            flour.outputs(value=flour.vector("v", 2).add([1.0, 1.0]).max()),
            [[1.0, 2.0], [[3.0, 4.0], [5.0, 6.0]]],
            [3.0, [5.0, 7.0]],
        ),
        (flour.outputs(value=flour.text("t").upper()), ["a", ["b", "c"]], ["A", ["B", "C"]]),
    ],
    ids=["numbers", "texts"],
)
def test_rows_of_every_kind(
    runtime: Runtime, program: flour.Flow, messages: list[object], answers: list[object]
) -> None:
    runtime.register("m", program, background=False)
    log = Log(messages)
    stream(runtime, log).run()
    assert values(log.answers) == answers
    assert log.letters == []


def test_an_endpoint_that_is_not_there_is_an_error_at_once(runtime: Runtime) -> None:
    with pytest.raises(UnknownEndpoint):
        Stream(runtime, "other", LogSource(Log([])))


def test_a_graph_that_waits_takes_whole_batches() -> None:
    async def load(x: float) -> float:
        return 2.0 * x

    row = flour.record("row", x=float)
    graph = flour.outputs(value=flour.fetch(load, row["x"], gives=float))
    log = Log([{"x": float(each)} for each in range(40)])
    with Runtime() as runtime:
        runtime.register("graph", graph, background=False)
        source = LogSource(log)
        with Stream(runtime, "graph", source, LogSink(log), rows=16) as stream:
            stream.run()
    assert source.polls[0][0] == 16
    assert values(log.answers) == [2.0 * each for each in range(40)]
