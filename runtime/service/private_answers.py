"""Answers and errors of endpoints with private columns, as callers and those who watch see them."""

from __future__ import annotations

from dataclasses import replace

from runtime.routing.pairs import Answers, Pair, PairSink
from runtime.service.private import redacted, without
from runtime.service.version import ModelVersion


class WithoutPrivate:
    """Hands pairs on whose rows and errors have no values of private columns."""

    def __init__(self, inner: PairSink | None, version: ModelVersion) -> None:
        self._inner, self._version = inner, version

    def add(self, pair: Pair) -> None:
        """Take a pair in."""
        if self._inner is not None:
            self._inner.add(self.shown(pair))

    def shown(self, pair: Pair) -> Pair:
        """The pair without values of private columns."""
        expected, found = self._answers(pair.expected), self._answers(pair.found)
        refused = isinstance(expected, Exception) or isinstance(found, Exception)
        # A refused row may have any value anywhere.
        rows = None if refused else without(pair.rows, self._version)
        return replace(pair, rows=rows, expected=expected, found=found)

    def _answers(self, answers: Answers | Exception) -> Answers | Exception:
        return shown(answers, self._version) if isinstance(answers, Exception) else answers


def shown(problem: Exception, version: ModelVersion) -> Exception:
    """The error as callers may see it: without values, where the endpoint has private columns."""
    if not version.private:
        return problem
    found = redacted(problem, version.inputs, version.outputs)
    assert isinstance(found, Exception), "an error stays one"
    return found
