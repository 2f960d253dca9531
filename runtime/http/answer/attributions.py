"""Attribution over HTTP: for requests that ask for it, at a limited rate, on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from time import monotonic
from typing import Any

from flour.core.errors import FlourError
from flour.data.batch import Batch
from oven import Plan
from runtime.http.wire.problems import HttpError
from runtime.service.version import ModelVersion


class Attributions:
    """A bucket of requests that may ask for attribution, filled at a rate; one second's at most."""

    def __init__(self, rate: float, rows: int, clock: Callable[[], float] = monotonic) -> None:
        self._rate, self._rows, self._clock = rate, rows, clock
        self._left, self._since = max(1.0, rate), clock()

    async def of(self, version: ModelVersion, batch: Batch, wanted: str) -> dict[str, Any]:
        """Contributions of each column to a batch's scores; `wanted` names the output, or none."""
        self._take()
        if batch.rows > self._rows:
            raise HttpError(
                f"{self._rows} rows can be explained at once",
                where="$.parameters.explain",
                found=f"{batch.rows} rows",
                hint="the setting is explain_rows",
            )
        plan = version.plan
        if plan is None:
            hint = "a call brings it back"
            raise HttpError("the plan is not in memory", 409, where=version.owner, hint=hint)
        if not isinstance(plan, Plan):
            raise HttpError("a graph is not explained as a whole", 409, hint="ask its models")
        try:
            # All of it on a thread: its modules are imported, words are looked at when it is told.
            return await asyncio.to_thread(_told, plan, batch, wanted or None, version.private)
        except FlourError as problem:
            hint = f"requests have no background; in Python: {problem.hint}"
            raise HttpError(
                problem.what,
                where=problem.where,
                found=problem.found,
                hint=hint if "background=" in (problem.hint or "") else problem.hint,
            ) from problem

    def _take(self) -> None:
        """Take one request out of the bucket, or refuse it."""
        if self._rate <= 0:
            raise HttpError("answers are not explained here", 403, hint="see explain_rate")
        now = self._clock()
        most = max(1.0, self._rate)
        self._left = min(most, self._left + (now - self._since) * self._rate)
        self._since = now
        if self._left < 1.0:
            wait = max(1, round((1.0 - self._left) / self._rate))
            raise HttpError(
                "too many requests ask for attribution",
                429,
                hint="the setting is explain_rate",
                headers={"Retry-After": str(wait)},
            )
        self._left -= 1.0


def _told(plan: Plan, batch: Batch, output: str | None, hides: Collection[str]) -> dict[str, Any]:
    from oven.explain import attribute

    return attribute(plan, batch.data, output=output).hiding(hides).to_dict()
