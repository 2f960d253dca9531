"""Attribution and minimal changes over HTTP: at a limited rate, on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from time import monotonic
from typing import Any

from flour.core.errors import FlourError
from flour.data.batch import Batch
from oven import Plan
from runtime.http.answer.plain_json import batch_of
from runtime.http.codec.bodies import CounterfactualRequest, body_of, json
from runtime.http.routes import HandlerContext
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.problems import HttpError
from runtime.service.private import spelt
from runtime.service.version import ModelVersion

#: Time in which a minimal change is looked for.
SECONDS = 1.0


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
        # All of it on a thread: its modules are imported, words are looked at when it is told.
        told = partial(_told, _plan(version), batch, wanted or None, version.private)
        return await _on_thread(told)

    async def change(
        self, version: ModelVersion, batch: Batch, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The smallest change of a row that changes its answer.

        Private columns do not change, and are not shown.
        """
        self._take()
        hides = spelt(version.private, version.inputs)
        for where in ("free", "within"):
            named = sorted(hides.intersection(options[where] or ()))
            if named:
                hint = "private columns stay as they are"
                raise HttpError(f"{named[0]!r} is private", where=f"$.{where}", hint=hint)
        return await _on_thread(partial(_changed, _plan(version), batch, hides, options))

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
                "too many requests ask for explanations",
                429,
                hint="the setting is explain_rate",
                headers={"Retry-After": str(wait)},
            )
        self._left -= 1.0


def _plan(version: ModelVersion) -> Plan:
    """The one plan of a version, which can be explained."""
    plan = version.plan
    if plan is None:
        hint = "a call brings it back"
        raise HttpError("the plan is not in memory", 409, where=version.owner, hint=hint)
    if not isinstance(plan, Plan):
        raise HttpError("a graph is not explained as a whole", 409, hint="ask its models")
    return plan


async def _on_thread(told: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return await asyncio.to_thread(told)
    except FlourError as problem:
        hint = f"requests have no background; in Python: {problem.hint}"
        raise HttpError(
            problem.what,
            where=problem.where,
            found=problem.found,
            hint=hint if "background=" in (problem.hint or "") else problem.hint,
        ) from problem


def _told(plan: Plan, batch: Batch, output: str | None, hides: Collection[str]) -> dict[str, Any]:
    from oven.explain import attribute

    return attribute(plan, batch.data, output=output).hiding(hides).to_dict()


def _changed(
    plan: Plan, batch: Batch, hides: Collection[str], options: Mapping[str, Any]
) -> dict[str, Any]:
    from oven.explain import counterfactual

    made = counterfactual(plan, batch.data, **options, seconds=SECONDS, fixed=hides)
    return made.hiding(hides).to_dict()


async def counterfactual(service: HandlerContext, request: Request) -> Response:
    """The smallest change of a row that changes what a model answers."""
    asked = body_of(request, CounterfactualRequest)
    name, version = request.params["model"], request.params.get("version")
    route = None if version is not None else service.runtime.routes.routed(name)
    if route is not None and len(route.answering) > 1:
        hint = f"ask one of them: /v2/models/{name}/versions/VERSION/counterfactual"
        found = ", ".join(route.answering)[:200]
        raise HttpError("several versions answer this endpoint", 409, found=found, hint=hint)
    front = request.front = service.front(name, version)
    options = {each: getattr(asked, each) for each in ("want", "free", "within", "most")}
    batch = batch_of(front, asked.row)
    return json(await service.attribution.change(front.version, batch, options))
