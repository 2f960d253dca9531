"""An end waits a while for threads, disks, pipes and other processes, and then ends alone."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from flour.core.errors import ParameterError
from runtime import Runtime
from runtime.http.answer import noted
from runtime.http.answer.noted import NoteFollower
from runtime.http.watch import access_log
from runtime.http.watch.access_log import AccessLog
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.problems import HttpError
from runtime.provenance import keeping
from runtime.workers import mirror
from tests.runtime.plans import shift

SOON = 0.2
#: A file that a thread may still write to is left open.
GIVEN_UP = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def took(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


@pytest.fixture
def stuck() -> Any:
    """Something that is waited for until the test ends."""
    never = Event()
    yield never
    never.set()


@GIVEN_UP
def test_an_access_log_that_nobody_reads_keeps_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "_END_SECONDS", SOON)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ParameterError, match="the access log cannot be written"):
        AccessLog(str(pipe))  # nobody reads it at all
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        log = AccessLog(str(pipe))
        request = Request("GET", f"/{'x' * 400}", "", {}, b"")
        for _ in range(1000):  # a pipe holds 64 KiB
            log(request, Response(b""), 0.001)
        time.sleep(0.4)
        assert took(log.close) < 10 * SOON
    finally:
        os.close(reader)
        del log
    forgotten()


def forgotten() -> None:
    """Have files that were left open warn here, and not in the next test."""
    time.sleep(0.1)
    gc.collect()


@GIVEN_UP
def test_answers_that_the_disk_does_not_take_keep_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stuck: Event
) -> None:
    monkeypatch.setattr(keeping, "_END_SECONDS", SOON)
    monkeypatch.setattr(keeping.AnswerKeeper, "flush", lambda _: stuck.wait())
    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0), background=False)
        keeper = runtime.keep("m", tmp_path / "answers")
        time.sleep(0.4)
        assert took(keeper.close) < 10 * SOON
        del keeper
    stuck.set()
    forgotten()


def test_a_look_at_notes_that_takes_long_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch, stuck: Event
) -> None:
    monkeypatch.setattr(noted, "_END_SECONDS", SOON)
    monkeypatch.setattr(NoteFollower, "look", lambda _: stuck.wait())
    with Runtime(executors=1) as runtime:
        assert took(NoteFollower(runtime, "").close) < 10 * SOON


class Silent:
    """A channel to a process that was stopped."""

    def ask(self, _kind: str, _body: object = None) -> Future[Any]:
        return Future()


@pytest.mark.parametrize("what", ["load", "unload", "route", "judge", "settled"])
def test_a_supervisor_that_does_not_answer_is_an_error(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_CHANGE_SECONDS", SOON)
    silent: Any = Silent()
    one, peers = mirror.IndexMirror(silent, lambda state: state), mirror.WorkerPeers(silent, 0, 2)
    calls: dict[str, Callable[[], object]] = {
        "load": lambda: one.load("m"),
        "unload": lambda: one.unload("m"),
        "route": lambda: one.put_route("m", ""),
        "judge": lambda: asyncio.run(peers.judge("rollouts", {})),
        "settled": lambda: asyncio.run(peers.settled()),
    }

    def asked() -> None:
        with pytest.raises(HttpError, match="does not answer") as refused:
            calls[what]()
        assert refused.value.status == 503

    assert took(asked) < 10 * SOON
