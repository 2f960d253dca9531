"""A process that is asked to end does so, whichever of its threads the system tells."""

from __future__ import annotations

import signal
import threading

import pytest

from runtime.shutdown import Ending
from tests.house import run_python

_TOLD = """
import signal, threading, time

def tell():
    time.sleep(0.1)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(600)

teller = threading.Thread(target=tell, daemon=True)
"""
_COMMAND = """
from runtime.cli.serving import until_signal
with until_signal() as ended:
    teller.start()
    ended.wait()
"""
_WORKER = """
import socket
from runtime.workers.process import main
ours, theirs = socket.socketpair()
listener = socket.create_server(("127.0.0.1", 0))
teller.start()
main(theirs.detach(), listener.detach())
"""


@pytest.mark.parametrize("code", [_COMMAND, _WORKER], ids=["command", "worker"])
def test_a_signal_that_another_thread_gets_is_heard(code: str) -> None:
    """Handlers run in the main thread, which has to be woken for that."""
    assert run_python(f"{_TOLD}{code}print('ended')", timeout=120) == "ended\n"


def test_a_hangup_reads_again_or_ends() -> None:
    code = _TOLD.replace("SIGTERM", "SIGHUP")
    assert run_python(f"{code}{_COMMAND}print('ended')", timeout=120) == "ended\n"
    told = "until_signal(lambda: (print('again'), ended.set()))"
    again = _COMMAND.replace("until_signal()", told)
    assert run_python(f"{code}{again}print('ended')", timeout=120) == "again\nended\n"


def test_it_can_be_said_before_somebody_waits_and_after_nobody_does() -> None:
    ended = Ending()
    assert not ended.is_set()
    for _ in range(100_000):  # more than a socket takes
        ended.set()
    ended.wait()
    assert ended.is_set()
    ended.close()
    ended.set()


def test_threads_can_say_it() -> None:
    ended = Ending()
    thread = threading.Timer(0.05, ended.set)
    thread.start()
    ended.wait()
    thread.join()
    ended.close()


def test_what_woke_this_process_before_does_so_again() -> None:
    ended = Ending()
    before = ended.wake()
    try:
        assert signal.set_wakeup_fd(before) != before
    finally:
        signal.set_wakeup_fd(before)
        ended.close()
