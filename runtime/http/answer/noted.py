"""Watches models, keeps their answers and answers streams, as notes of the version in service ask.

The notes come from the folder (see runtime.repository.notes_file) or from a registration:
`notes={"watch": {"segments": ["country"]}, "keep": {"seconds": 86400}}`. A version that comes into
service brings its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import Any, NamedTuple

from flour.core.errors import FlourError, ParameterError
from flour.core.modules import imported
from objectstore import Explained
from runtime.repeated import Repeated
from runtime.runtime import Runtime
from runtime.service.version import ModelVersion

log = logging.getLogger("pretzel.noted")
#: Seconds between looks at which versions answer.
_EVERY = 0.1
#: Time to begin, and to end a look that is under way.
_END_SECONDS = 30.0


class _Held(NamedTuple):
    """The keeper opened for an endpoint, and its notes: None if it could not be opened."""

    wanted: Hashable
    opened: Any


class NoteFollower:
    """Follows the notes of a runtime's endpoints, until it is closed."""

    def __init__(self, runtime: Runtime, answers: str | Path, number: int = 0) -> None:
        """`answers` is the folder for answers, in which each process has folders of its own."""
        self._runtime, self._answers, self._number = runtime, answers, number
        self._held: dict[tuple[str, str], _Held] = {}
        self._changes, self._failures = -1, Repeated()
        self._followed, self._ended, self._wanted, self._turn = -1, False, -1, Condition()
        self._thread = Thread(target=self._run, name="pretzel-noted", daemon=True)
        self._thread.start()
        runtime.endpoints.followers.append(self.settle)
        self.settle(_END_SECONDS)  # so that the first request is noted, too

    def _run(self) -> None:
        while not self._ended:
            changes = self._runtime.endpoints.changes
            try:
                self.look()
            except Exception as problem:  # a thread that has to go on
                if self._failures.is_due(type(problem)):
                    log.exception("notes of models could not be followed")
            with self._turn:
                self._followed = changes
                self._turn.notify_all()
                self._turn.wait_for(lambda: self._ended or self._wanted > self._followed, _EVERY)

    def settle(self, seconds: float) -> bool:
        """Wait until the notes in service are followed, or this is closed; false if late."""
        with self._turn:
            self._wanted = changes = self._runtime.endpoints.changes
            self._turn.notify_all()
            return self._turn.wait_for(lambda: self._ended or self._followed >= changes, seconds)

    def look(self) -> None:
        """Open and close what the notes of the versions in service ask for now."""
        changes = self._runtime.endpoints.changes
        if changes == self._changes:
            return
        self._changes = changes
        seen: set[tuple[str, str]] = set()
        # A watch before the feedback that asks it what drifts.
        openers = {
            "watch": self._watch,
            "keep": self._keep,
            "feedback": self._feedback,
            "stream": self._stream,
        }
        for endpoint in self._runtime.endpoints:
            name = endpoint.name
            with suppress(FlourError):  # mute, or gone meanwhile
                version = self._runtime.endpoints.find(name)
                for kind, opened in openers.items():
                    if version.notes.get(kind) is not None:
                        seen.add((name, kind))
                        self._follow(name, kind, version, opened)
        for key in self._held.keys() - seen:
            self._close(key)

    def _follow(
        self, name: str, kind: str, version: ModelVersion, opened: Callable[..., Any]
    ) -> None:
        options: Any = version.notes[kind]
        by = version.digest if kind == "watch" or "drifted" in options else ""
        wanted = repr((options, by, sorted(version.private)))
        held = self._held.get((name, kind))
        if held is not None and held.wanted == wanted:
            return
        self._close((name, kind))
        try:
            made = opened(name, dict(options))
        except (Explained, ImportError, OSError, TypeError, ValueError) as problem:
            log.warning("%s: %s is not done: %s", version.owner, kind, problem)
            made = None
        self._held[name, kind] = _Held(wanted, made)

    def _watch(self, name: str, options: dict[str, Any]) -> Any:
        return self._runtime.watch(name, **options)

    def _keep(self, name: str, options: dict[str, Any]) -> Any:
        return self._runtime.keep(name, self._folder(f"{name}-{self._number}"), **options)

    def _feedback(self, name: str, options: dict[str, Any]) -> Any:
        from runtime.feedback import Feedback

        watch = self._held.get((name, "watch")) if options.get("drifted") else None
        options["watch"] = None if watch is None else watch.opened
        return Feedback(self._runtime, name, self._folder(f"{name}-feedback"), **options)

    def _folder(self, name: str) -> Path:
        if not self._answers:
            raise ParameterError("answers have no folder", hint="--set answers=DIR says where to")
        return Path(self._answers) / name

    def _stream(self, name: str, options: dict[str, Any]) -> Any:
        made = imported("runtime.streams").Stream  # a room above this one
        return made.of_notes(self._runtime, name, options, self._number).start()

    def _close(self, key: tuple[str, str]) -> None:
        held = self._held.pop(key, None)
        if held is not None and held.opened is not None:
            held.opened.close()

    def close(self) -> None:
        """End all of it, once or again; what was noted is written."""
        with suppress(ValueError):  # it was closed before
            self._runtime.endpoints.followers.remove(self.settle)
        with self._turn:
            self._ended = True
            self._turn.notify_all()
        self._thread.join(_END_SECONDS)
        for key in [*self._held]:
            self._close(key)
