"""A rollout: its state, and what is done when it is looked at.

    running -> promoting -> done           after the last step
    running -> aborting -> aborted         a criterion is broken, or somebody says so
    running <-> paused

Every change is written down before it is made, where there is a journal. `promoting` and `aborting`
say what is about to be done, so that a process that was killed does it when it starts again; they
last until all processes that answer have followed.

A rollout is judged in one process, which may have no requests itself: a runtime, or the supervisor
of several. What requests do is counted where they are answered (`outcomes.Tally`), and asked for
with each look.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from html import escape
from secrets import token_hex
from typing import Any, NamedTuple

from objectstore import Explained
from runtime.errors import BadCall
from runtime.repeated import Repeated
from runtime.rollout.builds import Builds
from runtime.rollout.criteria import AGREEMENT, ERRORS, UnitSum, counted
from runtime.rollout.outcomes import ANSWERS, Evidence, OutcomeCounts, check_values
from runtime.rollout.owner import Journal, Owner
from runtime.rollout.terms import RolloutTerms
from runtime.rollout.webhook import Webhook
from runtime.routing import Route
from runtime.routing.route import promoted
from runtime.routing.written import as_data

log = logging.getLogger("pretzel.rollout")

RUNNING, PAUSED, ABORTING, ABORTED = "running", "paused", "aborting", "aborted"
PROMOTING, DONE = "promoting", "done"
OVER = frozenset({ABORTED, DONE})
STATES = OVER | {RUNNING, PAUSED, ABORTING, PROMOTING}
#: Between two looks at the counts, and two writes of them; how long the end of a runtime waits for
#: a look that is under way, and a look for processes to follow a change.
LOOK_SECONDS, JOURNAL_SECONDS, END_SECONDS, FOLLOW_SECONDS = 1.0, 5.0, 0.5, 0.2
#: Where so many answers of the challenger all failed, and the champion's did not, that is enough.
FIRST = 20
EVENTS = 200  # kept for those who look


class Event(NamedTuple):
    """An event: started, advanced, holding, paused, resumed, aborted or promoted."""

    event: str
    endpoint: str
    challenger: str
    step: int
    weight: float
    reason: str
    when: float


@dataclass(slots=True)
class _Progress:
    """The part that changes, written down with every change."""

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

    tally = staticmethod(OutcomeCounts)  # what counts requests in a process

    def __init__(
        self,
        runtime: Owner,
        name: str,
        terms: RolloutTerms,
        base: Route,
        *,
        clock: Callable[[], float] = time.time,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """From its terms and the route before it, or going on from what was written down."""
        self._runtime, self.name, self.terms, self.base = weakref.ref(runtime), name, terms, base
        # How long a step lasts is no matter of the clock on the wall, which may be set.
        self._clock, self._passed = clock, time.monotonic if clock is time.time else clock
        self._seen, self._written = self._passed(), float("-inf")
        self.criteria = terms.criteria
        self.evidence = Evidence((terms.champion, terms.to))
        self._id = token_hex(8)
        self._compared = any(each.name == AGREEMENT for each in self.criteria)
        self._progress = _Progress()
        self._builds = Builds(self._owners, data)
        if data is not None:
            made = self._progress
            made.state, made.step = str(data["state"]), int(data["step"])
            made.elapsed, made.answered = float(data["elapsed"]), int(data["answered"])
            made.reason = str(data["reason"])
            made.events = [Event(*each) for each in data["events"]]
            self._id = str(data.get("id", self._id))
            self.evidence.take_over(data)
            steps = len(self.terms.steps)
            if made.state not in STATES or not 0 <= made.step < steps or made.elapsed < 0:
                raise ValueError(f"{made.state} at step {made.step} of {steps}")
        self._lock, self._over = threading.RLock(), threading.Event()
        over = self.state in OVER
        self._webhook = Webhook(terms.webhook) if terms.webhook and not over else None

    # --- looking -----------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """One of running, paused, aborting, aborted, promoting, done."""
        return self._progress.state

    def is_over(self) -> bool:
        """True if it has ended, and nothing of it is still to be written down."""
        with self._lock:
            return self.state in OVER

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
        """Events, the oldest first."""
        return tuple(self._progress.events)

    def counts(self) -> dict[str, dict[str, UnitSum]]:
        """Counts of the champion and the challenger over all processes."""
        self._collect()
        return {owner: self.evidence.counts(owner) for owner in self._owners}

    def _collect(self) -> None:
        """Ask the processes what they have counted."""
        runtime = self._runtime()
        for each in runtime.reports(self.name) if runtime is not None and self.counted else ():
            self.take(*each)

    def take(self, reporter: str, number: int, counts: Mapping[str, Any]) -> None:
        """Take over what a process has counted."""
        self.evidence.take(reporter, number, counts)

    @property
    def counted(self) -> dict[str, Any]:
        """The counts of each process, as JSON; empty after the end."""
        if self.state in OVER:
            return {}
        limits = [[one.metric, one.seconds] for one in self.criteria if one.seconds is not None]
        parts = {"id": self._id, "owners": list(self._owners), "limits": limits}
        return {**parts, "agreement": self._compared}

    def report(self, request: str, values: Mapping[str, float]) -> bool:
        """Count values that became known of a request; whether a process remembers it."""
        check_values(values)
        found = self._owner().claims(self.name, request, list(values)) if self.counted else ()
        return self.evidence.tell(values, list(found))

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
            answers = counts[owner].get(ANSWERS, UnitSum()).number
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
            self._seen = self._passed()
            self._go(RUNNING, "resumed", "")

    def abort(self, why: str = "") -> None:
        """Give all requests back to the champion, and end."""
        with self._lock:
            self._check(RUNNING, PAUSED, ABORTING, PROMOTING)
            self._abort(why or "somebody said so")

    def end(self) -> None:
        """Stop looking, as the endpoint goes or the runtime is closed; a process may go on later.

        The lock has a short timeout: who holds it to look may wait for a lock of the caller.
        """
        self._over.set()
        runtime = self._runtime()
        if runtime is None or not self._lock.acquire(timeout=END_SECONDS):
            return
        try:
            if not runtime.routes.has_route(self.name):
                self._lose()
            elif self.state in {RUNNING, PAUSED}:
                self._collect()
                self._tick()
                self._write()
        except Explained:
            log.exception("how far the rollout of %s is was not written down", self.name)
        finally:
            self._lock.release()
            self._close()

    def _check(self, *states: str) -> None:
        if self.state not in states:
            raise BadCall(f"this rollout is {self.state}", where=self.name, found=self.reason)

    # --- steps -------------------------------------------------------------------------------

    def begin(self, *, watch: bool = True) -> None:
        """Take the first step, or go on; with `watch` a thread looks at it from now on."""
        runtime, is_new = self._owner(), not self._progress.events
        with self._lock:
            runtime.put_rollout(self.name, self)
            try:
                if self.state == ABORTING:
                    self._abort(self._progress.reason)
                elif not self._progress.events:
                    self._apply("started", "")
                elif not self._is_own(runtime.routes.history(self.name)[-1].route):
                    self._leave(self._changed_by())
                elif trouble := self.trouble():
                    self._abort(trouble)
                elif self.state == PROMOTING:
                    self._promote()
                elif runtime.routes.history(self.name)[-1].route != self.route:
                    self._put_route(runtime)
            except BaseException as problem:  # so another one may begin, or this one again
                self._progress.state = ABORTED
                self._progress.reason = f"it could not begin: {problem}"[:300]
                self._close()
                runtime.put_rollout(self.name, self)
                with suppress(Exception):  # the former one is that of the caller
                    self._write() if is_new else None
                raise
        if watch and self.state not in OVER:
            target = threading.Thread(target=self._watch, name="pretzel-rollout", daemon=True)
            target.start()

    def trouble(self) -> str:
        """Why the versions that were judged are not those that would answer; empty if they are."""
        runtime = self._owner()
        if self.state == PROMOTING and self._is_promoted():
            return ""
        if other := self._builds.other(runtime):
            return other
        lost = runtime.lost(self.terms.to)
        return f"{self.terms.to} cannot be loaded again: {lost}" if lost else ""

    def _is_own(self, route: Route) -> bool:
        """Return whether this rollout set this route, or began with it."""
        steps = [self._route_of(number) for number in range(len(self.terms.steps))]
        return route in [self.base, *steps, promoted(self.name, self.route, self.terms.to)]

    def _changed_by(self) -> str:
        who = self._owner().routes.history(self.name)[-1].who
        return f"the route was changed by {repr(who) if who else 'somebody without a name'}"

    def look(self) -> None:
        """Judge the challenger by what was counted: advance, hold, or abort."""
        with self._lock:
            if self.state == ABORTING:  # what was to be written was refused the last time
                self._abort(self._progress.reason)
            elif self.state == PROMOTING:
                self._look_at_promotion()
            elif self.state in {RUNNING, PAUSED} and not self._is_elsewhere():
                if trouble := self.trouble():
                    self._abort(trouble)
                elif self.state == RUNNING:
                    self._judge()

    def _judge(self) -> None:
        behind = self._behind()
        if behind:  # until all follow, this time is none of the step's
            self._seen = self._passed()
            self._hold(behind)
        self._tick()
        counts = self.counts()
        broken = self._broken(counts)
        if broken:
            self._abort(broken)
        elif behind:
            return
        elif self._progress.elapsed >= self.terms.dwell:
            self._advance(counts)
        else:
            self._progress.held = ""
            if self._passed() - self._written >= JOURNAL_SECONDS:
                self._write()

    def _broken(self, counts: Mapping[str, Mapping[str, UnitSum]]) -> str:
        """The first criterion that is clearly not met, in words."""
        failed = counts[self.terms.to].get(ERRORS, UnitSum())
        other = counts[self.terms.champion].get(ERRORS, UnitSum())
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

    def _advance(self, counts: Mapping[str, Mapping[str, UnitSum]]) -> None:
        answers = counts[self.terms.to].get(ANSWERS, UnitSum()).number
        new = answers - self._progress.answered
        empty = [
            one.text
            for one in self.criteria
            for owner in (self._owners if one.relative else (self.terms.to,))
            if not counted(counts[owner], one).number
        ]
        if new < self.terms.least:
            others = counts[self.terms.champion].get(ANSWERS, UnitSum()).number
            doubt = "" if answers or others < self.terms.least else f"; have requests {self._key}?"
            told = f"{new} of {self.terms.least} answers of {self.terms.to} in this step"
            self._hold(told + doubt)
        elif empty:
            self._hold(f"nothing is known for {empty[0]!r}")
        elif self.step + 1 < len(self.terms.steps):
            made = self._progress
            before = made.step, made.elapsed, made.answered, made.events
            made.step, made.elapsed, made.answered = made.step + 1, 0.0, answers
            try:
                self._apply("advanced", "")
            except Exception:  # the step before goes on, and this one is tried again
                made.step, made.elapsed, made.answered, made.events = before
                raise
        else:
            self._promote()

    def _behind(self) -> str:
        """Why not all processes are known to follow the last change; empty where they are."""
        try:
            self._owner().settle(FOLLOW_SECONDS)
        except Explained as problem:
            return f"{problem.what}, {problem.found}"
        return ""

    def _hold(self, why: str) -> None:
        first, self._progress.held = not self._progress.held, why
        if first:
            self._tell(self._note("holding", why))

    def _apply(self, event: str, why: str) -> None:
        """Write this step down, and give the challenger its share."""
        self._progress.held = ""
        made = self._note(event, why)
        self._write()
        self._put_route(self._owner())
        self._tell(made)

    def _put_route(self, runtime: Owner) -> None:
        runtime.routes.put_route(self.name, self.route, action="rollout", who=self.terms.who)

    def _promote(self) -> None:
        runtime = self._owner()
        if not self._is_promoted():
            if self._is_elsewhere():
                return
            self._progress.state = PROMOTING
            self._write()
            runtime.routes.promote(self.name, self.terms.to, who=self.terms.who or "rollout")
        self._progress.held = self._behind()
        if not self._progress.held:
            self._finish(DONE, "promoted", "")

    def _look_at_promotion(self) -> None:
        if not self._is_promoted():
            if self._is_elsewhere():
                return
            if broken := self.trouble() or self._broken(self.counts()):
                self._abort(broken)
                return
        self._promote()

    def _is_promoted(self) -> bool:
        made = promoted(self.name, self.route, self.terms.to)
        return self._owner().routes.history(self.name)[-1].route == made

    def _is_elsewhere(self) -> bool:
        """True if others have changed the route, which ends the rollout and is left as it is."""
        elsewhere = self._owner().routes.history(self.name)[-1].route != self.route
        if elsewhere:
            self._leave(self._changed_by())
        return elsewhere

    def _abort(self, why: str) -> None:
        self._progress.state, self._progress.reason = ABORTING, why
        self._write()
        runtime = self._owner()
        last = runtime.routes.history(self.name)[-1].route
        if last != self.base and self._is_own(last):
            runtime.routes.put_route(self.name, self.base, action="abort", who=self.terms.who)
        if not self._behind():
            self._finish(ABORTED, "aborted", why)

    def _leave(self, why: str) -> None:
        """End, and leave the route as others have made it."""
        self._progress.reason = why
        self._finish(ABORTED, "aborted", why)

    def _finish(self, state: str, event: str, why: str) -> None:
        self._collect()
        self._go(state, event, why)
        self._close()
        self._owner().put_rollout(self.name, self)

    def _close(self) -> None:
        """Look no more, and tell nobody anything more."""
        self._over.set()
        if self._webhook is not None:
            self._webhook.close()

    def _go(self, state: str, event: str, why: str) -> None:
        self._progress.state, self._progress.reason, self._progress.held = state, why, ""
        made = self._note(event, why)
        self._write()
        self._tell(made)

    def _note(self, event: str, why: str) -> Event:
        """An event, which is written down with what it is about."""
        made = Event(event, self.name, self.terms.to, self.step, self.weight, why, self._clock())
        self._progress.events = [*self._progress.events[1 - EVENTS :], made]
        return made

    def _tell(self, made: Event) -> None:
        level = logging.WARNING if made.event == "aborted" else logging.INFO
        why = made.reason or f"{made.weight:g} %"
        log.log(level, "rollout of %s to %s %s: %s", self.name, self.terms.to, made.event, why)
        if self._webhook is not None:
            self._webhook.tell(made._asdict())

    def _tick(self) -> None:
        """Let the time since the last look count."""
        now = self._passed()
        self._progress.elapsed += max(0.0, now - self._seen)
        self._seen = now

    def _watch(self) -> None:
        seconds = min(LOOK_SECONDS, max(0.01, self.terms.dwell / 10))
        failures = Repeated()
        while not self._over.wait(seconds) and self._has_endpoint():
            try:
                self.look()
            except Exception as problem:
                if self._has_endpoint() and failures.is_due(type(problem)):
                    log.exception("a rollout of %s cannot go on for now", self.name)
                self._progress.held = f"{type(problem).__name__}: {problem}"[:300]
        if not self._has_endpoint():
            with self._lock:
                self._lose()

    def _lose(self) -> None:
        """End without an endpoint; there is nothing to be written down any more."""
        if self.state not in OVER and self._runtime() is not None:
            self._progress.state, self._progress.reason = ABORTED, "the endpoint was unregistered"
            self._tell(self._note("aborted", self._progress.reason))
        self._close()

    def _has_endpoint(self) -> bool:
        """True if the runtime is still there, and has a route for what is rolled out."""
        runtime = self._runtime()
        return runtime is not None and runtime.routes.has_route(self.name)

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

    @property
    def _key(self) -> str:
        """The key that tells requests apart."""
        return f"the header {self.route.header!r}" if self.route.header else f"{self.route.by!r}"

    def _owner(self) -> Owner:
        runtime = self._runtime()
        if runtime is None:
            raise ReferenceError("the runtime of a rollout is gone")
        return runtime

    # --- the journal -------------------------------------------------------------------------

    def to_data(self) -> dict[str, Any]:
        """All that is needed to go on in another process."""
        made = self._progress
        return {
            "id": self._id,
            "terms": self.terms.to_data(),
            "base": as_data(self.base),
            "builds": self._builds.known,
            "state": made.state,
            "step": made.step,
            "elapsed": made.elapsed,
            "answered": made.answered,
            "reason": made.reason,
            "events": [list(each) for each in made.events],
            **self.evidence.to_data(),
        }

    def _write(self) -> None:
        self._written = self._passed()
        journal: Journal | None = self._owner().on_rollout
        if journal is not None:
            journal(self.name, self.to_data())
