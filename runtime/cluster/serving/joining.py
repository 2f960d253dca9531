"""The connection of a process that joins a cluster, at the controller's end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flour.core.errors import FlourError
from runtime.workers.channel import Channel

if TYPE_CHECKING:
    from runtime.cluster.serving.controller import Controller
    from runtime.cluster.serving.membership import Seat


def fields(body: object) -> dict[str, Any]:
    """A message that has fields; one that has none is empty."""
    return body if isinstance(body, dict) else {}


class Joining:
    """One connection of a process: what it asks."""

    channel: Channel

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._seat: Seat | None = None

    def asked(self, kind: str, body: object) -> object:
        """Answer a question."""
        if kind == "hello":
            self._seat = self._controller.joined(self.channel, fields(body))
            return self._seat is not None
        if self._seat is None:
            raise FlourError("a process asks something before it says who it is", found=kind)
        if kind == "beat":
            return self._controller.beat(self._seat, self.channel, fields(body))
        if kind == "ended":
            self._controller.ended(self._seat)
            return None
        return self._controller.asked(self._seat, kind, body)

    def gone(self) -> None:
        """The connection has ended."""
        if self._seat is not None:
            self._controller.lost(self._seat, self.channel)
