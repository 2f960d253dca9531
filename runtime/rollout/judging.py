"""Rollouts of an owner of endpoints: begun, gone on with, asked, and told what became known."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from runtime.errors import BadCall, UnknownEndpoint
from runtime.rollout.owner import Owner
from runtime.rollout.rollout import ABORTING, OVER, Rollout
from runtime.rollout.terms import RolloutTerms
from runtime.routing import Route
from runtime.routing.route import address
from runtime.routing.written import from_data

#: A change over HTTP is answered when all processes have followed, or after this time.
STEP_SECONDS = 30.0
#: Of two rollouts of an endpoint that are begun at the same time, the second one is refused.
_beginning = Lock()


def rollout(  # noqa: PLR0913 (the parts of a rollout, each with a default)
    runtime: Owner,
    name: str,
    to: str | int | None = None,
    *,
    steps: Sequence[float] = (5, 20, 50, 100),
    dwell: str | float = "10 min",
    require: str | Sequence[str] = (),
    by: str | None = None,
    header: str | None = None,
    alpha: float = 0.05,
    least: int = 100,
    webhook: str | None = None,
    who: str = "",
    clock: Callable[[], float] = time.time,
    watch: bool = True,
) -> Rollout:
    """Begin a rollout; without `to`, the one that there is or was last. See Runtime.rollout."""
    if to is None:
        running = _of(runtime, name)
        if running is None:
            raise UnknownEndpoint(f"{name!r} has no rollout")
        return running
    with _beginning:
        _check_none(runtime, name)
        base = _base(runtime, name)
        terms = RolloutTerms.of_data(
            {
                "champion": base.champion,
                "to": address(name, to),
                "steps": steps,
                "dwell": dwell,
                "by": by,
            }
            | {"header": header, "alpha": alpha, "least": least, "webhook": webhook}
            | {"require": require, "who": who}
        )
        made = Rollout(runtime, name, terms, base, clock=clock)
        _check(runtime, made)
        if not runtime.routes.has_route(name):  # a refused rollout leaves none behind
            runtime.routes.put_route(name, base)
        made.begin(watch=watch)
    return made


def resume(
    runtime: Owner,
    name: str,
    data: Mapping[str, Any],
    *,
    clock: Callable[[], float] = time.time,
    watch: bool = True,
) -> Rollout:
    """Go on with a rollout that was written down; data that cannot be raises BadCall."""
    try:
        terms = RolloutTerms.of_data(data["terms"])
        base = from_data(data["base"], where=f"the rollout of {name!r}"[:200])
        made = Rollout(runtime, name, terms, base, clock=clock, data=data)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise BadCall(
            "a rollout that was written down cannot be read",
            where=name,
            found=f"{type(problem).__name__}: {problem}"[:200],
            hint="remove its file, and begin another one",
        ) from problem
    if made.state in OVER:
        runtime.put_rollout(name, made)
        return made
    made.begin(watch=watch)
    return made


def report(runtime: Owner, name: str, request: str, values: Mapping[str, float]) -> bool:
    """Count what became known of a request; see Runtime.report."""
    running = _of(runtime, name)
    if running is None:
        runtime.champion(name)
        return False
    return running.report(request, values)


def judged(owner: Owner, what: str, body: Mapping[str, Any]) -> Any:
    """A server's question to the process that judges rollouts; body and answer are JSON.

    "begin" has `terms`, "pause" and "abort" a `why`, "report" a `request` and `values`. These,
    "resume", "told" and "compare" have the `name` of an endpoint; "all" has none.
    """
    if what == "all":
        found = [each for each in list(owner.rollouts.values()) if isinstance(each, Rollout)]
        return [each.to_dict() for each in found]
    name = str(body["name"])
    match what:
        case "report":
            return report(owner, name, body["request"], body["values"])
        case "compare":
            return owner.compare(name).to_dict()
        case "begin":
            running = rollout(owner, name, **body["terms"])
        case "pause" | "abort":
            running = rollout(owner, name)
            (running.pause if what == "pause" else running.abort)(body["why"])
        case "resume":
            running = rollout(owner, name)
            running.resume()
        case _:
            return rollout(owner, name).to_dict()
    owner.settle(STEP_SECONDS)
    if running.state == ABORTING:  # all have followed by now
        running.look()
    return running.to_dict()


def _of(runtime: Owner, name: str) -> Rollout | None:
    found = runtime.rollouts.get(name)
    return found if isinstance(found, Rollout) else None


def _check_none(runtime: Owner, name: str) -> None:
    """Raise if an endpoint has a rollout that is not over."""
    running = _of(runtime, name)
    if running is not None and not running.is_over():
        raise BadCall(
            "this endpoint has a rollout already",
            where=name,
            found=f"to {running.terms.to}, {running.state}",
            hint="rollout(name).abort() ends it",
        )


def _base(runtime: Owner, name: str) -> Route:
    """The route of an endpoint without an experiment of its own."""
    if not runtime.routes.has_route(name):
        return Route(runtime.champion(name), salt=name)
    base = runtime.routes.history(name)[-1].route
    if base.split:
        raise BadCall(
            "this endpoint has a split already",
            where=name,
            found=", ".join(base.split),
            hint="promote one, or give the route without its split",
        )
    return base


def _check(runtime: Owner, made: Rollout) -> None:
    """Raise unless each step could be the endpoint's route."""
    if made.terms.to == made.base.champion:
        raise BadCall("this version is the champion already", where=made.name, found=made.terms.to)
    runtime.routes.check_route(made.name, made.route)
    if trouble := made.trouble():
        raise BadCall("this version cannot be rolled out", where=made.name, found=trouble)
