"""A rollout: its state, and what is done when it is looked at.

    running -> promoting -> done           after the last step
    running -> aborting -> aborted         a criterion is broken, or somebody says so
    running <-> paused

Every change is written down before it is made, where there is a journal. `promoting` and `aborting`
say what is about to be done, so that a process that was killed does it when it starts again.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, NamedTuple

from objectstore import Explained
from runtime.errors import BadCall, UnknownEndpoint
from runtime.rollout.criteria import AGREEMENT, ERRORS, Counts, counted
from runtime.rollout.outcomes import ANSWERS, Outcomes
from runtime.rollout.terms import Terms, seconds_of, texts_of
from runtime.rollout.webhook import Webhook
from runtime.routing import Route
from runtime.routing.written import as_data, from_data
from runtime.service.routed import RoutedEndpoints

log = logging.getLogger("pretzel.rollout")

RUNNING, PAUSED, ABORTING, ABORTED = "running", "paused", "aborting", "aborted"
PROMOTING, DONE = "promoting", "done"
OVER = frozenset({ABORTED, DONE})
STATES = OVER | {RUNNING, PAUSED, ABORTING, PROMOTING}
#: How often a rollout looks at its counts, how old those that were written down may be, and how
#: long the end of a runtime waits for a look that is under way.
LOOK_SECONDS, JOURNAL_SECONDS, END_SECONDS = 1.0, 5.0, 0.5
#: Where so many answers of the challenger all failed, and the champion's did not, that is enough.
FIRST = 20
#: Events that are kept for those who look.
EVENTS = 200

Journal = Callable[[str, Mapping[str, Any]], object]


class Event(NamedTuple):
    """What happened: started, advanced, holding, paused, resumed, aborted or promoted."""

    event: str
    endpoint: str
    challenger: str
    step: int
    weight: float
    reason: str
    when: float


@dataclass(slots=True)
class _Progress:
    """What changes; written down with every change."""

    state: str = RUNNING
    step: int = 0
    elapsed: float = 0.0
    """Seconds of the step so far, not counting pauses and times when no process ran."""
    answered: int = 0
    """Answers of the challenger when the step began."""
    reason: str = ""
    held: str = ""
    events: list[Event] = field(default_factory=list)


class Rollout:
    """One rollout of one endpoint. Safe to use from several threads."""

    def __init__(
        self,
        runtime: RoutedEndpoints,
        name: str,
        terms: Terms,
        base: Route,
        *,
        clock: Callable[[], float] = time.time,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """From its terms and the route before it, or going on from what was written down."""
        self._runtime, self.name, self.terms, self.base = weakref.ref(runtime), name, terms, base
        self._clock, self._seen, self._written = clock, clock(), 0.0
        self.criteria = terms.criteria
        self.outcomes = Outcomes((terms.champion, terms.to), self.criteria)
        self._compared = any(each.name == AGREEMENT for each in self.criteria)
        self._progress = _Progress()
        #: Agreement that was counted before this process, less what was before the rollout.
        self._agreed = Counts()
        if data is not None:
            self._take_over(data)
        self._lock, self._over = threading.RLock(), threading.Event()
        over = self.state in OVER
        self._webhook = Webhook(terms.webhook) if terms.webhook and not over else None

    # --- looking -----------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """One of running, paused, aborting, aborted, promoting, done."""
        return self._progress.state

    @property
    def step(self) -> int:
        """The step, from 0."""
        return self._progress.step

    @property
    def weight(self) -> float:
        """The percentage of keys that the challenger has now."""
        if self.state in OVER:
            return 100.0 if self.state == DONE else 0.0
        return self.terms.steps[self.step]

    @property
    def reason(self) -> str:
        """Why it was aborted or paused, or what it waits for."""
        return self._progress.reason or self._progress.held

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened, the oldest first."""
        return tuple(self._progress.events)

    def counts(self) -> dict[str, dict[str, Counts]]:
        """What was counted of the champion and of the challenger."""
        found = {owner: self.outcomes.counts(owner) for owner in self._owners}
        if self._compared:
            found[self.terms.to][AGREEMENT] = self._agreement()
        return found

    @property
    def counts_on(self) -> bool:
        """Whether requests are still to be noted."""
        return self.state not in OVER

    def note(
        self, owner: str, seconds: float, error: object, headers: Mapping[str, str] | None
    ) -> None:
        """Count a request of either version, while the rollout is on."""
        if self.counts_on:
            self.outcomes.note(owner, seconds, error, (headers or {}).get("x-request-id", ""))

    def to_dict(self) -> dict[str, Any]:
        """The rollout as plain data."""
        counts = {
            owner: {name: each._asdict() for name, each in found.items()}
            for owner, found in self.counts().items()
        }
        return {
            "endpoint": self.name,
            "champion": self.terms.champion,
            "to": self.terms.to,
            "state": self.state,
            "step": self.step,
            "weight": self.weight,
            "steps": list(self.terms.steps),
            "dwell": self.terms.dwell,
            "require": [each.text for each in self.criteria],
            "reason": self.reason,
            "counts": counts,
            "events": [each._asdict() for each in self.events],
        }

    def __str__(self) -> str:
        return "\n".join(" ".join(row).rstrip() for row in self._table())

    def _repr_html_(self) -> str:
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self._table())
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"

    def _table(self) -> list[tuple[str, ...]]:
        head = f"{self.name}: {self.terms.champion} -> {self.terms.to}"
        steps = ", ".join(f"{each:g} %" for each in self.terms.steps)
        rows: list[tuple[str, ...]] = [(head, self.state, f"{self.weight:g} % of {steps}")]
        if self.reason:
            rows.append(("because", self.reason))
        counts = self.counts()
        for owner in self._owners:
            answers = counts[owner].get(ANSWERS, Counts()).number
            rows.append((owner, f"{answers:,} answers"))
        for each in self.criteria:
            pair = (str(counted(counts[owner], each)) for owner in reversed(self._owners))
            rows.append((each.text, *pair))
        return rows

    # --- what others say ---------------------------------------------------------------------

    def pause(self, why: str = "") -> None:
        """Stay at this step until `resume`; nothing is judged meanwhile."""
        with self._lock:
            self._check(RUNNING)
            self._tick()
            self._go(PAUSED, "paused", why)

    def resume(self) -> None:
        """Go on after a pause."""
        with self._lock:
            self._check(PAUSED)
            self._seen = self._clock()
            self._go(RUNNING, "resumed", "")

    def abort(self, why: str = "") -> None:
        """Give all requests back to the champion, and end."""
        with self._lock:
            self._check(RUNNING, PAUSED, ABORTING)
            self._abort(why or "somebody said so")

    def end(self) -> None:
        """Stop looking, as the endpoint goes or the runtime is closed; a process may go on later.

        Whoever looks now may wait for what the caller holds: it is not waited for for long.
        """
        self._over.set()
        runtime = self._runtime()
        if runtime is None or not self._lock.acquire(timeout=END_SECONDS):
            return
        try:
            if self.state in {RUNNING, PAUSED} and runtime.has_route(self.name):
                self._tick()
                self._write()
        except Explained:
            log.exception("how far the rollout of %s is was not written down", self.name)
        finally:
            self._lock.release()
            if self._webhook is not None:
                self._webhook.close()

    def _check(self, *states: str) -> None:
        if self.state not in states:
            raise BadCall(f"this rollout is {self.state}", where=self.name, found=self.reason)

    # --- steps -------------------------------------------------------------------------------

    def begin(self, *, watch: bool = True) -> None:
        """Take the first step, or go on; with `watch` a thread looks at it from now on."""
        runtime = self._owner()
        with self._lock:
            if self._compared and self._is_new():
                found = self._agreement()
                self._agreed = Counts(-found.total, -found.number)
            runtime.put_rollout(self.name, self)
            if self.state == ABORTING:
                self._abort(self._progress.reason)
            elif self.state == PROMOTING:
                self._promote()
            elif self._is_new():
                self._apply("started", "")
            elif self.state not in OVER:
                self._go_on(runtime)
        if watch and self.state not in OVER:
            target = threading.Thread(target=self._watch, name="pretzel-rollout", daemon=True)
            target.start()

    def _go_on(self, runtime: RoutedEndpoints) -> None:
        """Take the step up again that was written down last."""
        known = [self.base, *map(self._route_of, range(len(self.terms.steps)))]
        last = runtime.history(self.name)[-1]
        if last.route not in known:
            self._leave(f"the route was changed by {last.who!r}")
        elif last.route != self.route:
            self._put_route(runtime)

    def look(self) -> None:
        """Judge the challenger by what was counted: advance, hold, or abort."""
        with self._lock:
            if self.state == ABORTING:  # what was to be written was refused the last time
                self._abort(self._progress.reason)
            elif self.state == PROMOTING:
                self._promote()
            if self.state != RUNNING:
                return
            self._tick()
            runtime = self._owner()
            if runtime.history(self.name)[-1].route != self.route:
                self._leave(f"the route was changed by {runtime.history(self.name)[-1].who!r}")
                return
            counts = self.counts()
            broken = self._broken(counts)
            if broken:
                self._abort(broken)
            elif self._progress.elapsed >= self.terms.dwell:
                self._advance(counts)
            elif self._clock() - self._written >= JOURNAL_SECONDS:
                self._write()

    def _broken(self, counts: Mapping[str, Mapping[str, Counts]]) -> str:
        """The first criterion that is clearly not met, in words."""
        failed = counts[self.terms.to].get(ERRORS, Counts())
        other = counts[self.terms.champion].get(ERRORS, Counts())
        if failed.number >= FIRST and failed.total == failed.number and other.total < other.number:
            return f"all {failed.number} answers of {self.terms.to} failed"
        alpha = self.terms.alpha / len(self.criteria)
        for each in self.criteria:
            challenger, champion = (
                counted(counts[owner], each) for owner in reversed(self._owners)
            )
            if each.is_broken(challenger, champion, alpha):
                beside = f", {champion} of {self.terms.champion}" if each.relative else ""
                return f"not {each.text}: {challenger} of {self.terms.to}{beside}"
        return ""

    def _advance(self, counts: Mapping[str, Mapping[str, Counts]]) -> None:
        answers = counts[self.terms.to].get(ANSWERS, Counts()).number
        new = answers - self._progress.answered
        empty = [
            one.text
            for one in self.criteria
            for owner in (self._owners if one.relative else (self.terms.to,))
            if not counted(counts[owner], one).number
        ]
        if new < self.terms.least:
            self._hold(f"{new} of {self.terms.least} answers of {self.terms.to} in this step")
        elif empty:
            self._hold(f"nothing is known for {empty[0]!r}")
        elif self.step + 1 < len(self.terms.steps):
            made = self._progress
            before = made.step, made.elapsed, made.answered
            made.step, made.elapsed, made.answered = made.step + 1, 0.0, answers
            try:
                self._apply("advanced", "")
            except Exception:  # the step before goes on, and this one is tried again
                made.step, made.elapsed, made.answered = before
                raise
        else:
            self._promote()

    def _hold(self, why: str) -> None:
        first, self._progress.held = not self._progress.held, why
        if first:
            self._tell("holding", why)

    def _apply(self, event: str, why: str) -> None:
        """Write this step down, and give the challenger its share."""
        self._progress.held = ""
        self._write()
        self._put_route(self._owner())
        self._tell(event, why)

    def _put_route(self, runtime: RoutedEndpoints) -> None:
        runtime.put_route(self.name, self.route, action="rollout", who=self.terms.who)

    def _promote(self) -> None:
        runtime = self._owner()
        self._progress.state = PROMOTING
        self._write()
        if runtime.history(self.name)[-1].route.champion != self.terms.to:
            runtime.promote(self.name, self.terms.to, who=self.terms.who or "rollout")
        self._finish(DONE, "promoted", "")

    def _abort(self, why: str) -> None:
        self._progress.state, self._progress.reason = ABORTING, why
        self._write()
        runtime = self._owner()
        if runtime.history(self.name)[-1].route != self.base:
            runtime.put_route(self.name, self.base, action="abort", who=self.terms.who)
        self._finish(ABORTED, "aborted", why)

    def _leave(self, why: str) -> None:
        """End, and leave the route as others have made it."""
        self._progress.reason = why
        self._finish(ABORTED, "aborted", why)

    def _finish(self, state: str, event: str, why: str) -> None:
        self._go(state, event, why)
        self._over.set()
        if self._webhook is not None:
            self._webhook.close()

    def _go(self, state: str, event: str, why: str) -> None:
        self._progress.state, self._progress.reason, self._progress.held = state, why, ""
        self._write()
        self._tell(event, why)

    def _tell(self, event: str, why: str) -> None:
        made = Event(
            *(event, self.name, self.terms.to, self.step, self.weight, why, self._clock()),
        )
        self._progress.events = [*self._progress.events[1 - EVENTS :], made]
        level = logging.WARNING if event == "aborted" else logging.INFO
        log.log(level, "%s of %s to %s: %s", event, self.name, self.terms.to, why or self.weight)
        if self._webhook is not None:
            self._webhook.tell(made._asdict())

    def _tick(self) -> None:
        """Let the time since the last look count."""
        now = self._clock()
        self._progress.elapsed += max(0.0, now - self._seen)
        self._seen = now

    def _watch(self) -> None:
        seconds = min(LOOK_SECONDS, max(0.01, self.terms.dwell / 10))
        while not self._over.wait(seconds):
            try:
                self.look()
            except ReferenceError:  # the runtime is gone
                return
            except Exception as problem:
                log.exception("a rollout of %s cannot go on for now", self.name)
                self._progress.held = f"{type(problem).__name__}: {problem}"[:300]

    # --- parts -------------------------------------------------------------------------------

    @property
    def _owners(self) -> tuple[str, str]:
        return self.terms.champion, self.terms.to

    @property
    def route(self) -> Route:
        """The route of this step."""
        return self._route_of(self.step)

    def _route_of(self, step: int) -> Route:
        shadow = self.terms.to if self._compared else self.base.shadow
        by, header = self.terms.by or self.base.by, self.terms.header or self.base.header
        if self.terms.by or self.terms.header:
            by, header = self.terms.by, self.terms.header
        split = {self.terms.to: self.terms.steps[step]}
        return replace(self.base, split=split, by=by, header=header, shadow=shadow)

    def _is_new(self) -> bool:
        return not self._progress.events

    def _agreement(self) -> Counts:
        """Values that agree, of the labels, or of the first output."""
        outputs = self._owner().compare(self.name).to_dict()["outputs"]
        found = outputs.get("label") or next(iter(outputs.values()), None)
        if found is None or not found["values"]:
            return self._agreed
        total, number = self._agreed
        return Counts(total + found["agreement"] * found["values"], number + int(found["values"]))

    def _owner(self) -> RoutedEndpoints:
        runtime = self._runtime()
        if runtime is None:
            raise ReferenceError("the runtime of a rollout is gone")
        return runtime

    # --- the journal -------------------------------------------------------------------------

    def to_data(self) -> dict[str, Any]:
        """All that is needed to go on in another process."""
        made = self._progress
        return {
            "terms": self.terms.to_data(),
            "base": as_data(self.base),
            "state": made.state,
            "step": made.step,
            "elapsed": made.elapsed,
            "answered": made.answered,
            "reason": made.reason,
            "counts": self.outcomes.to_data(),
            "agreement": list(self._agreement() if self._compared else self._agreed),
            "events": [list(each) for each in made.events],
        }

    def _take_over(self, data: Mapping[str, Any]) -> None:
        made = self._progress
        made.state, made.step = str(data["state"]), int(data["step"])
        made.elapsed, made.answered = float(data["elapsed"]), int(data["answered"])
        made.reason = str(data["reason"])
        made.events = [Event(*each) for each in data["events"]]
        self.outcomes.take_over(data["counts"])
        total, number = data["agreement"]
        self._agreed = Counts(float(total), int(number))
        steps = len(self.terms.steps)
        if made.state not in STATES or not 0 <= made.step < steps or made.elapsed < 0:
            raise ValueError(f"{made.state} at step {made.step} of {steps}")

    def _write(self) -> None:
        self._written = self._clock()
        journal: Journal | None = self._owner().on_rollout
        if journal is not None:
            journal(self.name, self.to_data())


# --- of a runtime ----------------------------------------------------------------------------


def rollout(  # noqa: PLR0913 (the parts of a rollout, each with a default)
    runtime: RoutedEndpoints,
    name: str,
    to: str | None = None,
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
    running = _of(runtime, name)
    if to is None:
        if running is None:
            raise UnknownEndpoint(f"{name!r} has no rollout")
        return running
    if running is not None and running.state not in OVER:
        raise BadCall(
            "this endpoint has a rollout already",
            where=name,
            found=f"to {running.terms.to}, {running.state}",
            hint="rollout(name).abort() ends it",
        )
    base = _base(runtime, name)
    terms = Terms(
        base.champion,
        to,
        tuple(map(float, steps)),
        seconds_of(dwell),
        texts_of(require),
        by,
        header,
        alpha,
        least,
        webhook,
        who,
    )
    made = Rollout(runtime, name, terms, base, clock=clock)
    _check(runtime, made)
    made.begin(watch=watch)
    return made


def resume(
    runtime: RoutedEndpoints,
    name: str,
    data: Mapping[str, Any],
    *,
    clock: Callable[[], float] = time.time,
    watch: bool = True,
) -> Rollout:
    """Go on with a rollout that was written down; data that cannot be raises BadCall."""
    try:
        terms = Terms.of_data(data["terms"])
        base = from_data(data["base"], where=f"the rollout of {name!r}"[:200])
        made = Rollout(runtime, name, terms, base, clock=clock, data=data)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise BadCall(
            "a rollout that was written down cannot be read",
            where=name,
            found=f"{type(problem).__name__}: {problem}"[:200],
            hint="remove its file; the endpoint keeps its route",
        ) from problem
    if made.state in OVER:
        runtime.put_rollout(name, made)
        return made
    if made.state in {RUNNING, PAUSED}:
        _check(runtime, made)
    made.begin(watch=watch)
    return made


def report(runtime: RoutedEndpoints, name: str, request: str, values: Mapping[str, float]) -> bool:
    """Count what became known of a request; see Runtime.report."""
    running = _of(runtime, name)
    if running is None:
        runtime.find(name)
        return False
    return running.outcomes.report(request, values)


def _of(runtime: RoutedEndpoints, name: str) -> Rollout | None:
    found = runtime.rollouts.get(name)
    return found if isinstance(found, Rollout) else None


def _base(runtime: RoutedEndpoints, name: str) -> Route:
    """The route of an endpoint without an experiment of its own."""
    if not runtime.has_route(name):
        runtime.route(name)
    base = runtime.history(name)[-1].route
    if base.split:
        raise BadCall(
            "this endpoint has a split already",
            where=name,
            found=", ".join(base.split),
            hint="promote one, or give the route without its split",
        )
    return base


def _check(runtime: RoutedEndpoints, made: Rollout) -> None:
    """Raise unless each step could be the endpoint's route."""
    if made.terms.to == made.base.champion:
        raise BadCall("this version is the champion already", where=made.name, found=made.terms.to)
    runtime.check_route(made.name, made.route)
