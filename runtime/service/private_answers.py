"""Answers and errors of endpoints with private columns, as callers and those who watch see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace

from runtime.routing.pairs import Answers, Pair, Pairs
from runtime.service.private import redacted, without
from runtime.service.version import ModelVersion


class WithoutPrivate:
    """Hands pairs on whose rows and errors have no values of private columns."""

    def __init__(self, inner: Pairs, version: ModelVersion) -> None:
        self._inner, self._version = inner, version

    def add(self, pair: Pair) -> None:
        """Take a pair in."""
        expected, found = self._answers(pair.expected), self._answers(pair.found)
        refused = isinstance(expected, Exception) or isinstance(found, Exception)
        # A refused row may have any value anywhere.
        rows = None if refused else without(pair.rows, self._version)
        self._inner.add(replace(pair, rows=rows, expected=expected, found=found))

    def _answers(self, answers: Answers | Exception) -> Answers | Exception:
        return shown(answers, self._version) if isinstance(answers, Exception) else answers


def shown(problem: Exception, version: ModelVersion) -> Exception:
    """The error as callers may see it: without values, where the endpoint has private columns."""
    if not version.private:
        return problem
    found = redacted(problem, version.inputs)
    assert isinstance(found, Exception), "an error stays one"
    return found


def chained(
    inner: Future[Answers],
    version: ModelVersion,
    note: Callable[[Answers, Mapping[str, str]], Answers] | None,
    headers: Mapping[str, str],
) -> Future[Answers]:
    """A future of what another gives, once it is kept; its errors have no private values."""
    outer: Future[Answers] = Future()

    def done(_: object) -> None:
        if inner.cancelled():
            outer.cancel()
        if not outer.set_running_or_notify_cancel():
            return
        problem = inner.exception()
        if isinstance(problem, Exception):
            outer.set_exception(shown(problem, version))
            return
        answers = inner.result()
        outer.set_result(answers if note is None else note(answers, headers))

    outer.add_done_callback(lambda _: outer.cancelled() and inner.cancel())
    inner.add_done_callback(done)
    return outer
