"""Tells events to an address: JSON by POST, in their order, on a thread of its own."""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from queue import Full, Queue
from typing import Any

log = logging.getLogger("pretzel.rollout")

SECONDS, TRIES, WAITING = 5.0, 3, 1000


class Webhook:
    """Posts what it is told; a receiver that fails is asked again, and never waited for."""

    def __init__(self, address: str, sleep: Callable[[float], object] = time.sleep) -> None:
        self._address, self._sleep = address, sleep
        self._events: Queue[bytes | None] = Queue(WAITING)
        self.lost, self._closed = 0, False
        threading.Thread(target=self._run, name="pretzel-webhook", daemon=True).start()

    def tell(self, event: Mapping[str, Any]) -> None:
        """Post an event soon; it is lost where too many wait."""
        self._put(json.dumps(event).encode())

    def close(self) -> None:
        """Post what is left, and end; this does not wait for it."""
        self._closed = True
        self._put(None)

    def _put(self, body: bytes | None) -> None:
        try:
            self._events.put_nowait(body)
        except Full:
            self.lost += 1

    def _run(self) -> None:
        while (body := self._events.get()) is not None:
            for number in range(TRIES):
                if self._post(body):
                    break
                self._sleep(2.0**number)
            else:
                self.lost += 1
                log.warning("an event of a rollout was not taken by %s", self._address)
            if self._closed and self._events.empty():  # there was no room to say that it ends
                return

    def _post(self, body: bytes) -> bool:
        headers = {"Content-Type": "application/json"}
        try:
            asked = urllib.request.Request(self._address, body, headers)  # noqa: S310 (Terms: http)
            with urllib.request.urlopen(asked, timeout=SECONDS):  # noqa: S310 (as above)
                return True
        except (OSError, ValueError):
            return False
