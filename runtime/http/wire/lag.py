"""The lag of the event loop behind its clients: the time requests may have lain unread.

A server with more to do than it can do has its queue in the sockets: requests wait there until the
loop comes to read them. The loop works in rounds: it asks the system which connections have
something to read, and then reads all of them. What is read in a round was not there when the round
before began, or it would have been read then; so it may have waited since. Requests count from that
moment, unless the loop had nothing to do in between: then they have come just now.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter

#: Seconds between two looks at the loop's lag.
EVERY = 0.1
#: The loop is behind when a round takes so many seconds.
BEHIND_SECONDS = 0.005
#: Between two rounds of a loop that has more to do there are fewer seconds than this, or, as the
#: system may have given the processor to others, than this part of the round, up to so many.
_PAUSE_SECONDS, _PAUSE_PART, _PAUSE_MOST = 0.0005, 0.01, 0.002
#: How many looks the published figures are the worst of: ten seconds.
_LOOKS = 100


class Lag:
    """The rounds of one event loop, and the waits of what it has read."""

    def __init__(self) -> None:
        #: True if rounds are watched, as one of the last ones was long.
        self.behind = False
        #: When what is read now may have come, at the earliest.
        self._since = 0.0
        #: When the loop last had nothing to do, as far as is known.
        self.idle = 0.0
        #: When the round began; 0 between two rounds.
        self.began = 0.0
        self._ended = 0.0  # when the last round had ended
        self._pause = _PAUSE_SECONDS  # more than this after it, the loop has had nothing to do
        self._longest = self._oldest = 0.0
        self._looks: deque[tuple[float, float]] = deque(maxlen=_LOOKS)

    def since(self, now: float, loop: asyncio.AbstractEventLoop) -> float:
        """The earliest moment at which the bytes may have come that are read now."""
        if not self.began:
            if now - self._ended > self._pause:
                self._since = self.idle = now
            self.began = now
            loop.call_soon(self._over)
        return self._since

    def _over(self) -> None:
        """The round has ended: the next one begins at once, or when there is something to do."""
        self._ended = perf_counter()
        pause = _PAUSE_PART * (self._ended - self.began)
        self._pause = min(max(_PAUSE_SECONDS, pause), _PAUSE_MOST)
        self._longest = max(self._longest, self._ended - self.began)
        self._since, self.began = self.began, 0.0

    def read(self, waited: float) -> None:
        """Note for how long a request had waited when it was read."""
        self._oldest = max(self._oldest, waited)

    def look(self, late: float) -> None:
        """Note how late the loop has come to this call, which is due each `EVERY` seconds."""
        self.behind = max(late, self._longest) > BEHIND_SECONDS
        if late > BEHIND_SECONDS and not self.began:  # something else took long
            self._ended = perf_counter()
            self._since = self._ended - late
            # It may have been stopped: what comes later has not waited.
            self._pause = _PAUSE_SECONDS
        self._looks.append((max(late, self._longest), self._oldest))
        self._longest = self._oldest = 0.0

    def worst(self) -> tuple[float, float]:
        """The longest lag of the loop and wait of an unread request lately; from any thread."""
        looks = [*tuple(self._looks), (self._longest, self._oldest)]
        return max(late for late, _ in looks), max(oldest for _, oldest in looks)
