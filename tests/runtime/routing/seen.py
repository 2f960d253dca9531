"""What observes an endpoint in tests: it remembers the pairs of answers that came."""

from __future__ import annotations

from runtime.routing import Pair
from tests.house import until


class Seen:
    """The pairs that came; it may raise at each."""

    def __init__(self, problem: type[Exception] | None = None) -> None:
        self.pairs: list[Pair] = []
        self.problem = problem

    def add(self, pair: Pair) -> None:
        self.pairs.append(pair)
        if self.problem is not None:
            raise self.problem("no room")

    def wait(self, count: int) -> list[Pair]:
        until(lambda: len(self.pairs) >= count)
        return self.pairs
