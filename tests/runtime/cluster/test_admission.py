"""Strangers at the door of a controller: they have two seconds, and keep nobody from anything."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from runtime.cluster.serving.autoscaling import Scale
from runtime.cluster.serving.controller import Controller
from runtime.cluster.serving.link import admitted
from runtime.cluster.serving.settings import ClusterSettings
from tests.house import until

SECRET = "ab" * 32


class Trickling:
    """A connection on which a byte comes every so often, on a clock of its own."""

    def __init__(self, said: bytes, every: float) -> None:
        self.said, self.every, self.now = said, every, 0.0
        self.timeout: float | None = None

    def settimeout(self, seconds: float | None) -> None:
        self.timeout = seconds

    def setsockopt(self, *_: object) -> None:
        """Nothing is sent."""

    def recv(self, _size: int) -> bytes:
        assert self.timeout is not None
        if self.every > self.timeout:
            self.now += self.timeout
            raise TimeoutError
        self.now += self.every
        part, self.said = self.said[:1], self.said[1:]
        return part


@pytest.mark.parametrize("every", [0.07, 0.5, 1.9, 100.0])
def test_a_stranger_has_two_seconds_in_all(every: float) -> None:
    coming: Any = Trickling(bytes.fromhex(SECRET), every)
    with suppress(TimeoutError):  # the caller closes it then
        assert not admitted(coming, SECRET, lambda: coming.now)
    assert coming.now <= 2.0 + every % 2.0


@pytest.mark.parametrize(
    ("said", "let_in"),
    [
        (bytes.fromhex(SECRET), True),
        (bytes.fromhex(SECRET)[:-1] + b"x", False),
        (bytes.fromhex(SECRET)[:-1], False),
        (b"", False),
    ],
)
def test_the_secret_decides(said: bytes, let_in: bool) -> None:  # noqa: FBT001 (a parameter of cases)
    coming: Any = Trickling(said, 0.05)
    assert admitted(coming, SECRET, lambda: coming.now) is let_in
    assert (coming.timeout is None) is let_in or not let_in


class Noted:
    """A launcher that starts nothing."""

    def __init__(self) -> None:
        self.launched: list[int] = []

    def launch(self, number: int) -> None:
        self.launched.append(number)

    def end(self, number: int) -> None:
        """Nothing was started."""

    def existing(self) -> list[int]:
        return []


def test_strangers_do_not_keep_a_controller_from_its_work(tmp_path: Path) -> None:
    launcher = Noted()
    (tmp_path / "models").mkdir()
    settings = ClusterSettings(
        str(tmp_path / "models"), str(tmp_path / "staging"), scale=Scale(1, 1), poll=0.0
    )
    controller = Controller(settings, launcher).start()
    try:
        host, port, _ = controller.address()
        with ExitStack() as stack:
            for _ in range(32):
                stranger = stack.enter_context(socket.create_connection((host, port), 5.0))
                stranger.sendall(b"x")
            time.sleep(0.1)
            controller.scale_to(4)
            until(lambda: len(launcher.launched) == 4, "strangers fill the pool", seconds=1.0)
    finally:
        controller.stop()
