"""Routes that machine code answers, and shadows that are asked together with their champion."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import partial

from flour.data.batch import Batch
from runtime.routing.history import History
from runtime.routing.mirror import Mirror, Mirrored
from runtime.routing.pairs import Answers
from runtime.routing.route import Route
from runtime.routing.shadows import Shadows, kept
from runtime.service.endpoint import Endpoints
from runtime.service.entry import Outputs
from runtime.service.following import Noting
from runtime.service.joined import NotJoinedError, Trial, joined
from runtime.service.version import ModelVersion

log = logging.getLogger("pretzel.shadows")

#: A champion and its challenger.
_Versions = tuple[ModelVersion, ModelVersion]
#: The program of both, what it is tried by, or why there is none.
_Found = ModelVersion | Trial | str


class Mirrors:
    """Keeps the mirrors in step with routes, versions, rollouts and what is observed."""

    def __init__(
        self,
        endpoints: Endpoints,
        histories: Mapping[str, History],
        shadows: Shadows,
        rollouts: Mapping[str, Noting],
        observed: Mapping[str, object],
    ) -> None:
        self._endpoints, self._histories, self._shadows = endpoints, histories, shadows
        self._rollouts, self._observed = rollouts, observed
        #: By endpoint: two versions, and what is known of asking both together.
        self._known: dict[str, tuple[_Versions, _Found]] = {}
        self._lock = threading.RLock()
        shadows.on_apart = self._apart

    def refresh(self, name: str) -> None:
        """A route, its versions, or what follows its answers may have changed."""
        with self._lock:
            route = self._direct(name)
            versions = None if route is None else self._versions(route)
            if route is None or versions is None:
                self._known.pop(name, None)
                self._shadows.put(name, None)
                return
            champion, challenger = versions
            nothing: tuple[_Versions | None, _Found] = (None, "")
            before, found = self._known.get(name, nothing)
            if before != versions:
                found = ""
                self._known.pop(name, None)
            if isinstance(found, ModelVersion) and route.inline is not False:
                made = Mirror(route, found, champion.outputs, challenger.outputs)
                if name not in self._observed:
                    made.waiting = None
            else:
                made = Mirror(route, champion, champion.outputs)
                made.trial = found if isinstance(found, Trial) else None
            self._shadows.put(name, made)
            if name not in self._known and route.inline is not False:
                self._known[name] = versions, "they are being put together"
                join = partial(self._join, name, versions, wanted=route.inline is True)
                threading.Thread(target=join, name="pretzel-join", daemon=True).start()

    def state(self, name: str) -> str:
        """The way an endpoint's shadow is asked."""
        _, found = self._known.get(name, (None, ""))
        mirror = self._shadows.mirrors.get(name)
        if mirror is not None and mirror.joined:
            return "inline"
        if isinstance(found, Trial):
            found = "a program of both is tried on the next rows"
        return f"later: {found}" if isinstance(found, str) and found else "later"

    def note(self, mirror: Mirror, row: object, answers: Answers) -> None:
        """Have the shadow asked a row that machine code has answered and cannot copy."""
        self._shadows.offer(mirror.route, kept(row), {}, answers, None)

    def ask(
        self,
        route: Route,
        rows: object,
        outputs: object,
        expected: Answers | Exception,
        seconds: float | None,
    ) -> None:
        """Let the shadow of a route be asked for the outputs that its champion has answered."""
        known = {} if outputs is None else {"outputs": outputs}
        self._shadows.offer(route, rows, known, expected, seconds)

    def together(self, name: str, route: Route, batch: Batch) -> Outputs | None:
        """The champion's outputs for a row or a few, if its shadow is asked with it; else None."""
        mirror = self._shadows.mirrors.get(name)
        if mirror is None or not mirror.joined or mirror.route is not route:
            return None
        function = mirror.version.entry.function
        if function is None or not mirror.version.entry.takes(batch):
            return None
        try:
            outputs: Outputs = function(batch.data)
        except Exception:  # noqa: BLE001 (whose it is shows where they are asked one by one)
            return None
        mirror.version.entry.tick()
        if mirror.waiting is not None:
            mirror.note(kept(batch.data), map(kept, outputs))
        return outputs[: len(mirror.names)]

    def _direct(self, name: str) -> Route | None:
        """The route of an endpoint, if every request is its champion's and its shadow's."""
        history = self._histories.get(name)
        route = None if history is None else history[-1].route
        if route is None or route.shadow is None or route.sample < 1 or route.split or route.rules:
            return None
        noting = self._rollouts.get(name)
        followed = noting is not None and noting.counts_on
        return None if followed or name in self._endpoints.muted else route

    def _versions(self, route: Route) -> _Versions | None:
        """The two versions of a route, if machine code may answer as either.

        Names whose answers are kept, or shown without values, have no version in the table.
        """
        known = self._endpoints.routes
        champion, challenger = known.get(route.champion), known.get(route.shadow or "")
        return None if champion is None or challenger is None else (champion, challenger)

    # --- together with the champion ----------------------------------------------------------

    def _join(self, name: str, versions: _Versions, *, wanted: bool) -> None:
        """Put two versions together, and have the result tried on rows that are asked."""
        champion, challenger = versions
        try:
            champion.settled.wait()
            challenger.settled.wait()
            common = joined(champion, challenger)
        except Exception as problem:  # noqa: BLE001 (the shadow is asked later, as it was)
            known = isinstance(problem, NotJoinedError)
            reason = str(problem) if known else f"{type(problem).__name__}: {problem}"
            self._told(name, versions, reason.splitlines()[0][:200])
            return

        def end(reason: str) -> None:
            self._told(name, versions, reason or common)

        self._told(name, versions, Trial(versions, common, end, wanted=wanted))

    def _told(self, name: str, versions: _Versions, found: _Found) -> None:
        """It is known how two versions are asked, if they still are those of the route."""
        with self._lock:
            before, _ = self._known.get(name, (None, ""))
            if before != versions:
                return
            self._known[name] = versions, found
            if not isinstance(found, str):
                self.refresh(name)

    def _apart(self, one: Mirrored, again: Answers | Exception) -> None:
        """The common program answered otherwise than the champion: it is used no more."""
        name = one.route.champion.partition("@")[0]
        log.warning("%s with its shadow inline answered %r, not %r", name, one.expected, again)
        with self._lock:
            versions, _ = self._known.get(name, (None, ""))
            if versions is not None:
                self._known[name] = versions, "the champion's answers did not keep their bits"
                self.refresh(name)
