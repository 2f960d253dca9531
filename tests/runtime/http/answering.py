"""Answerers for servers under test."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from runtime import Runtime
from runtime.service.answerers import InferCall
from runtime.service.entry import Outputs


class Passing:
    """Answers as the runtime does; tests change some of it."""

    quick: Callable[..., Outputs | None]

    def __init__(self, runtime: Runtime) -> None:
        self._direct = runtime.direct
        self.quick = runtime.direct.quick

    def answer(self, call: InferCall) -> Future[dict[str, Any]]:
        """The runtime's future."""
        return self._direct.answer(call)
