"""Streams of files that grow, of standard input, and of models in a server's folder."""

from __future__ import annotations

import base64
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import pytest

import oven
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.repository.errors import BadConfig
from runtime.repository.notes_file import read
from runtime.service.stream_counts import STREAMS
from runtime.streams import Stream, open_sink, open_source
from runtime.streams.messages import BadStream, StreamLost
from tests.house import ROOT, ended, run_python, until
from tests.runtime.streams.world import times


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        made.register("m", times(2.0), background=False)
        yield made


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def rows(*numbers: int) -> str:
    return "".join(f'{{"x": {number}}}\n' for number in numbers)


def found(path: Path) -> list[float]:
    return [json.loads(line)["value"] for line in path.read_text().splitlines()]


def test_files_are_followed_while_they_grow(runtime: Runtime, inbox: Path, tmp_path: Path) -> None:
    out, dead = tmp_path / "out.jsonl", tmp_path / "dead.jsonl"
    (inbox / "b.jsonl").write_text(rows(3))
    (inbox / "a.jsonl").write_text(rows(1) + "\n \n" + rows(2) + '{"x": 4')
    with Stream(
        *(runtime, "m", open_source(str(inbox)), open_sink(str(out))), dead=open_sink(str(dead))
    ) as stream:
        stream.step()
        assert found(out) == [2.0, 4.0, 6.0], "in the order of names, without the unfinished line"
        with (inbox / "a.jsonl").open("a") as file:
            file.write('}\n{"y": 5}\n' + rows(6))
        stream.step()
        assert found(out) == [2.0, 4.0, 6.0, 8.0, 12.0]
        (letter,) = map(json.loads, dead.read_text().splitlines())
        assert letter["message"] == '{"y": 5}'
        assert letter["of"].startswith(str(inbox / "a.jsonl"))
        assert "no column 'x'" in letter["reason"]


def test_a_killed_process_goes_on_where_it_was(inbox: Path, tmp_path: Path) -> None:
    (inbox / "a.jsonl").write_text(rows(*range(100)))
    plan, out = tmp_path / "plan.pretzel", tmp_path / "out.jsonl"
    oven.bake(times(2.0)).save(plan)
    code = """
import os, signal, sys
from runtime import Runtime
from runtime.streams import Stream, open_sink, open_source

with Runtime() as runtime:
    runtime.register("m", sys.argv[1])
    made = Stream(runtime, "m", open_source(sys.argv[2]), open_sink(sys.argv[3]), rows=10)
    for _ in range(3):
        made.step()
    print(made.counts.messages, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    words = [sys.executable, "-c", code, str(plan), str(inbox), str(out)]
    for _ in range(2):
        done = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"30\n"), done.stderr
    assert found(out) == [2.0 * number for number in range(60)]


def test_files_are_read_from_a_start(
    runtime: Runtime, inbox: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out.jsonl"
    (inbox / "a.jsonl").write_text(rows(1, 2))
    for group, start, expected in (
        ("a", "last", []),
        ("a", "", []),
        ("a", "first", []),
        ("b", "first", [2.0, 4.0]),
        ("b", "", [2.0, 4.0]),
    ):
        source = open_source(str(inbox), start=start, group=group)
        with Stream(runtime, "m", source, open_sink(str(out)), rows=10) as stream:
            stream.step()
        assert (found(out) if out.exists() else []) == expected
    (record,) = caplog.records
    assert "the group 'a' has begun, and goes on where it was" in record.getMessage()
    with pytest.raises(BadStream, match="no such start"):
        open_source(str(inbox), start="17")


def test_one_process_of_a_group_reads_files(inbox: Path) -> None:
    (inbox / "a.jsonl").write_text(rows(1))
    first, second, other = (open_source(str(inbox), group=group) for group in ("a", "a", "b"))
    assert first.poll(1, 0.0)
    assert other.poll(1, 0.0)
    with pytest.raises(StreamLost, match=r"another process[\s\S]*answers all of them once more"):
        second.poll(1, 0.0)
    first.close()
    assert second.poll(1, 0.0), "what the first one has not acknowledged"
    second.close()
    other.close()


def test_a_file_that_was_written_anew_is_read_from_its_beginning(
    runtime: Runtime, inbox: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a file that is copied and truncated; others go on, also in another process."""
    out = tmp_path / "out.jsonl"
    for a, b, expected in (
        (rows(1, 2, 3), rows(4), [2.0, 4.0, 6.0, 8.0]),
        (rows(5), rows(4, 6), [10.0, 12.0]),
        (rows(5, 7), rows(4, 6), [14.0]),
        (rows(8, 9, 10), rows(4, 6), [16.0, 18.0, 20.0]),
        (rows(8, 2, 10), rows(4, 6), [16.0, 4.0, 20.0]),
    ):
        (inbox / "a.jsonl").write_text(a)
        (inbox / "b.jsonl").write_text(b)
        out.unlink(missing_ok=True)
        with Stream(runtime, "m", open_source(str(inbox)), open_sink(str(out))) as stream:
            stream.step()
        assert found(out) == expected
    assert caplog.text.count("a.jsonl was written anew: it is read from its beginning") == 3


def test_a_file_that_another_one_replaces_is_read_from_its_beginning(inbox: Path) -> None:
    """Positions of former versions are numbers, and go on where they were."""
    path, journal = inbox / "a.jsonl", inbox / ".pretzel.positions"
    path.write_text(rows(1, 1))
    journal.write_text(json.dumps({str(path): len(rows(1))}))
    for content, more in ((rows(1, 1), 1), (rows(1, 1, 1), 3), (rows(1, 1, 1), 3)):
        (inbox / ".new").write_text(content)
        if more > 1:
            (inbox / ".new").replace(path)
        source = open_source(str(inbox))
        taken = source.poll(10, 0.0) or []
        assert len(taken) == more
        source.acknowledge(taken)
        source.close()


def test_a_line_without_an_end_is_parsed_when_it_has_grown(
    inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty lines before it, more than are polled at once, are read over."""
    looked = list[bytes]()

    def parse(text: bytes) -> object:
        looked.append(text)
        return json.loads(text)

    source = open_source(str(inbox / "a.jsonl"))
    (inbox / "a.jsonl").write_text("\n\n\n" + '[{"x": 1}')
    assert source.poll(1, 0.1) == []
    monkeypatch.setattr("runtime.streams.files.json", SimpleNamespace(loads=parse))
    (inbox / "a.jsonl").write_text("\n\n\n" + '[{"x": 1}, {"x": 2}')
    assert source.poll(1, 0.2) == []
    assert 1 <= len(looked) <= 2
    with (inbox / "a.jsonl").open("a") as file:
        file.write("]")
    assert [each.value for each in source.poll(1, 0.2) or ()] == [b'[{"x": 1}, {"x": 2}]']
    source.close()


@pytest.mark.parametrize(
    ("content", "more", "values"),
    [
        (b'{"x": 1}', b'\n{"x": 2}\n', [2.0, 4.0]),
        (b'[{"x": 1}] ', b'\r\n{"x": 2}', [[2.0], 4.0]),
        (b'\xef\xbb\xbf{"x": 1}\n', b'\n{"x": 2}\n', [2.0, 4.0]),
    ],
)
def test_a_last_line_that_is_whole_needs_no_end(
    runtime: Runtime, inbox: Path, tmp_path: Path, content: bytes, more: bytes, values: list[object]
) -> None:
    """A mark of the byte order is none of its content."""
    (inbox / "a.jsonl").write_bytes(content)
    out = tmp_path / "out.jsonl"
    with Stream(runtime, "m", open_source(str(inbox)), open_sink(str(out))) as stream:
        stream.step()
        assert len(out.read_text().splitlines()) == 1
        with (inbox / "a.jsonl").open("ab") as file:
            file.write(more)
        stream.step()
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert [[e["value"] for e in t] if isinstance(t, list) else t["value"] for t in told] == values


def test_what_is_not_read_is_said_once(
    inbox: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line without an end, and compressed files; the others are read."""
    monkeypatch.setattr("runtime.streams.files._STUCK_SECONDS", 0.02)
    (inbox / "a.jsonl").write_text('{"x": 1')
    (inbox / "b.jsonl.gz").write_bytes(b"\x1f\x8b\n")
    (inbox / "c.jsonl").write_text(rows(3))
    source = open_source(str(inbox))
    assert len(source.poll(10, 0.0) or ()) == 1
    for _ in range(3):
        assert source.poll(10, 0.1) == []
    source.close()
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"{inbox / 'a.jsonl'}: its last line has no end, and waits for it",
        f"{inbox / 'b.jsonl.gz'}: compressed files are not read",
    ]


def test_a_group_that_is_no_name_is_refused(inbox: Path) -> None:
    for group in ("../evil", "a/b", "/a", "a\0b", "a" * 300):
        with pytest.raises(BadStream, match="in a file of its name"):
            open_source(str(inbox), group=group)


def test_damaged_positions_are_those_of_a_new_group(inbox: Path) -> None:
    (inbox / "a.jsonl").write_text(rows(1, 2))
    (inbox / ".pretzel.positions").write_bytes(b"\0\0")
    source = open_source(str(inbox))
    assert len(source.poll(10, 0.0) or ()) == 2
    source.close()


def test_a_full_disk_loses_nothing(runtime: Runtime, inbox: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    (inbox / "a.jsonl").write_text(rows(*range(20)))
    source, sink = open_source(str(inbox)), open_sink(str(out))
    stream = Stream(runtime, "m", source, sink, rows=10)
    stream.step()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (out.stat().st_size, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            stream.step()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, former)
    stream.close()
    stream.step()
    stream.close()
    assert found(out) == [2.0 * number for number in range(20)]


def test_an_unfinished_answer_ends_its_line(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_bytes(b'{"value": 1}\n{"val')
    sink = open_sink(str(out))
    source = open_source(str(tmp_path / "out.jsonl"))
    sink.write(source.poll(1, 0.0) or ())
    first, unfinished, last = out.read_bytes().splitlines()
    assert (first, unfinished) == (b'{"value": 1}', b'{"val')
    assert json.loads(last) == {"value": 1, "of": f"{out}:13"}
    source.close()
    sink.close()


def test_a_dead_letter_has_all_bytes(runtime: Runtime, inbox: Path, tmp_path: Path) -> None:
    dead = tmp_path / "dead.jsonl"
    (inbox / "a.jsonl").write_bytes(b'{"x": "\xff\x00"}\n')
    source, sink = open_source(str(inbox)), open_sink(str(tmp_path / "out.jsonl"))
    with Stream(runtime, "m", source, sink, dead=open_sink(str(dead))) as stream:
        stream.step()
    assert base64.b64decode(json.loads(dead.read_text())["base64"]) == b'{"x": "\xff\x00"}'


def test_a_file_that_is_not_there_is_waited_for(
    inbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = open_source(str(inbox / "later.jsonl"))
    assert source.poll(1, 0.03) == source.poll(1, 0.0) == []
    (record,) = caplog.records
    assert "later.jsonl: no such file yet; waiting for it" in record.getMessage()
    (inbox / "later.jsonl").write_text(rows(1))
    assert source.poll(1, 0.0)
    source.close()


def command(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return ended(sys.executable, "-m", "runtime", "stream", *words, input=given)


def test_the_command_answers_standard_input(tmp_path: Path) -> None:
    plan = str(tmp_path / "plan.pretzel")
    oven.bake(times(2.0)).save(plan)
    given = '{"x": 1, "id": "a"}\n\n[{"x": 2, "id": "b"}]\n{"x": 3, "id": "c"}'
    done = command(plan, "--from", "-", "--to", "-", "--keep", "id", given=given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        '{"id":"a","value":2.0}',
        '[{"id":"b","value":4.0}]',
        '{"id":"c","value":6.0}',
    ]
    assert "3 messages, 3 rows, 0 refused" in done.stderr
    done = command(plan, "--from", "-", "--to", "-", given=rows(1) + "{\n")
    assert done.returncode == 1
    assert done.stdout == '{"value":2.0}\n'
    assert "this message is refused" in done.stderr
    folder = str(tmp_path)
    done = command(plan, "--from", folder, "--to", str(tmp_path / "out.jsonl"))
    assert done.returncode == 1
    assert "what is written here would be read as rows" in done.stderr


def test_a_broker_without_its_library_is_told() -> None:
    said = run_python(
        "import sys\n"
        "sys.modules['hiredis'] = None\n"
        "from runtime.cli import program\n"
        "from runtime.streams import open_source\n"
        "try:\n    open_source('redis://localhost/x')\n"
        "except ModuleNotFoundError as problem:\n    print(program.missing(problem), problem)\n"
    )
    assert said.count("pip install 'pretzel-runtime[streams]'") == 2


def test_a_server_answers_the_stream_of_a_model(inbox: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    (inbox / "a.jsonl").write_text(rows(1))
    with Runtime() as runtime:
        notes = {"stream": {"from": str(inbox), "to": str(out), "rows": 10, "wait_ms": 1.0}}
        runtime.register("m", times(2.0), notes=notes, background=False)
        with Server(runtime, ServerSettings(port=0)) as server:
            until(lambda: out.exists() and found(out) == [2.0])
            runtime.register("m", times(3.0), notes=notes, background=False)
            (inbox / "b.jsonl").write_text(rows(2))
            until(lambda: found(out) == [2.0, 6.0])
            until(lambda: STREAMS[runtime]["m", str(inbox)].messages == 2)
            metrics, page = (
                urlopen(f"{server.url}/{path}", timeout=60).read().decode()
                for path in ("metrics", "")
            )
    labels = f'{{model="m",source="{inbox}"}}'
    assert f"pretzel_stream_messages_total{labels} 2\n" in metrics
    assert f"pretzel_stream_refused_total{labels} 0\n" in metrics
    assert "pretzel_stream_lag{" not in metrics, "files are not counted ahead"
    assert page.index("Streams") < page.index(str(inbox))


def test_the_notes_of_a_stream_are_checked() -> None:
    notes = '[stream]\nfrom = "redis://localhost/a"\nto = "-"\nrows = 10\nwait_ms = 1.5\n'
    assert read(notes, "notes.toml")["stream"]["rows"] == 10
    with pytest.raises(BadConfig, match="there is no setting 'form'"):
        read('[stream]\nform = "x"\n', "notes.toml")
    with Runtime() as runtime:
        runtime.register("m", times(2.0), background=False)
        with pytest.raises(BadStream, match="a stream has a place to read"):
            Stream.of_notes(runtime, "m", {"from": "x"}, 0)
