"""Addresses of sources and sinks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime import Runtime
from runtime.streams import Stream, open_sink, open_source
from runtime.streams.messages import BadStream
from runtime.streams.places import StreamPlace
from tests.runtime.streams.world import Log, LogSink, LogSource, times


def test_the_parts_of_an_address(tmp_path: Path) -> None:
    place = StreamPlace("redis://me:a%40b@host:1/my%20key/x?db=2", ("db",), 6379)
    assert (place.scheme, place.host, place.port, place.name) == ("redis", "host", 1, "my key/x")
    assert (place.user, place.password, place.number("db", 0)) == ("me", "a@b", 2.0)
    assert str(place) == "redis://host:1/my key/x", "without what is secret"
    (tmp_path / "word").write_text("secret\n")
    place = StreamPlace(f"redis://host/x?password_file={tmp_path / 'word'}", (), 6379)
    assert (place.port, place.password) == (6379, "secret")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://host", "this address has no stream"),
        ("redis:///x", "this address has no stream"),
        ("redis://host:port/x", "this is not a URL"),
        ("redis://:secret@host/x?colour=red", "there is no option 'colour'"),
        ("redis://:secret@host/x?db=red", "this is not a number"),
    ],
)
def test_an_address_that_cannot_be(url: str, problem: str) -> None:
    with pytest.raises(BadStream, match=problem) as caught:
        StreamPlace(url, ("db",), 6379)
    assert "secret" not in str(caught.value)


def test_a_scheme_that_there_is_not() -> None:
    for opened in (open_source, open_sink):
        with pytest.raises(BadStream, match="no streams have this scheme"):
            opened("nats://host/x")


def test_files_that_are_read_are_not_written(tmp_path: Path) -> None:
    """Answers and dead letters go elsewhere than into the folder that they come from."""
    log, notes = Log([]), {"from": f"{tmp_path}/in", "to": f"{tmp_path}/a", "dead": f"{tmp_path}/b"}
    (tmp_path / "in").mkdir()
    with Runtime() as runtime:
        runtime.register("m", times(2.0), background=False)
        for option in ("to", "dead"):
            with pytest.raises(BadStream, match="would be read as rows"):
                Stream.of_notes(runtime, "m", notes | {option: f"{tmp_path}/in/c"}, 0)
        Stream.of_notes(runtime, "m", notes, 0).close()
        Stream(runtime, "m", LogSource(log), LogSink(log), dead=LogSink(log)).close()


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadStream, match="nothing can be written here"):
        open_sink(str(tmp_path / "none" / "out.jsonl"))
    assert not [*tmp_path.iterdir()]
    os.mkfifo(tmp_path / "pipe")
    for path, found in ((tmp_path, "a folder"), (tmp_path / "pipe", "a pipe")):
        with pytest.raises(BadStream, match=rf"no file to write to[\s\S]*{found}"):
            open_sink(str(path))
    open_sink(os.devnull).close()
