"""Routes in the folder: `DIR/fraud/endpoint.toml` has the route of `fraud`, and its history.

`DIR/fraud/endpoint.rollout` has how far its rollout is, which goes on in the next process.

A change is written before it counts, and the file is replaced in one step: a server that is killed
starts again with the route before the change or the one after it. What is edited by hand counts
with the next look at the folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from objectstore import Explained
from objectstore.atomic import make_directory, write_file
from runtime.errors import BadCall, BadRegistration
from runtime.repository.files import Folder, Print, is_ignored
from runtime.repository.listing import reason_of
from runtime.repository.registry import RolloutRegistry, RoutedRegistry
from runtime.routing.history import History
from runtime.routing.written import EDITED, as_toml, from_toml

FILE, ROLLOUT = EDITED, "endpoint.rollout"


class RouteFiles:
    """The files of routes in a folder, for the endpoints of a runtime."""

    def __init__(self, folder: Folder, runtime: RoutedRegistry) -> None:
        self._folder, self._runtime = folder, runtime
        #: The files as they were written or read last. Changes of the runtime take turns.
        self._stamps: dict[str, tuple[Print, ...]] = {}
        self._told: dict[str, str] = {}
        runtime.on_route = self._write
        self._begun: set[str] = set()
        if isinstance(runtime, RolloutRegistry):
            runtime.on_rollout = self._write_rollout

    def has(self, name: str) -> bool:
        """Whether a route says which version of an endpoint answers."""
        return self._runtime.has_route(name)

    def mute(self, names: Iterable[str]) -> None:
        """Let nothing answer under names whose routes are not read yet."""
        for name in names:
            if not self.has(name) and _is_plain(name):
                if self._folder.stamp(self._folder.root / name / FILE) == ():
                    self._runtime.unmute(name)
                elif name not in self._told:
                    self._runtime.mute(name, f"{name}/{FILE} is not read yet")

    def follow(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Take over files that are new or were edited: names, and why one cannot be taken over."""
        for name in [each.name for each in self._runtime.endpoints()]:
            path = self._folder.root / name / FILE
            if only not in (None, name) or not _is_plain(name):
                continue
            if self._folder.stamp(path) not in ((), self._stamps.get(name)):
                yield from self._follow(name, path)
            if name not in self._begun and self.has(name):
                self._begun.add(name)
                yield from self._resume(name, path.with_name(ROLLOUT))

    def _follow(self, name: str, path: Path) -> Iterator[tuple[str, str]]:
        """Take over a file that is new or was edited."""
        reason = ""
        try:
            self._runtime.restore(name, partial(self._read, name, path))
        except Explained as problem:
            reason = reason_of(problem)
            self._runtime.mute(name, reason)
        if not reason or reason != self._told.get(name):
            yield name, reason
        self._told[name] = reason

    def _resume(self, name: str, path: Path) -> Iterator[tuple[str, str]]:
        """Go on with the rollout that a former process wrote down."""
        if not isinstance(self._runtime, RolloutRegistry) or self._folder.stamp(path) == ():
            return
        try:
            self._runtime.resume_rollout(name, json.loads(self._folder.read_text(path)))
        except (Explained, ValueError) as problem:
            reason = reason_of(problem) if isinstance(problem, Explained) else "this is no JSON"
            yield name, f"{ROLLOUT}: {reason}"

    def _write_rollout(self, name: str, data: Mapping[str, Any]) -> None:
        """Write down how far a rollout is."""
        if not _is_plain(name):
            raise BadRegistration("the folder can have no file for this name", found=repr(name))
        path = self._folder.root / name / ROLLOUT
        self._folder.guard(path)
        self._begun.add(name)
        if not path.parent.is_dir():  # it was removed, or is of an endpoint without a folder
            return
        try:
            write_file(path, [json.dumps(data, indent=1).encode()])
        except OSError as problem:
            raise BadRegistration(
                "the rollout cannot be written down",
                where=f"{name}/{ROLLOUT}",
                found=problem.strerror or type(problem).__name__,
            ) from problem

    def _read(self, name: str, path: Path) -> History:
        stamp = self._folder.stamp(path)
        where = f"{name}/{FILE}"
        before = self._runtime.history(name) if self.has(name) else ()
        history = from_toml(self._folder.read_text(path), where, time.time(), before)
        self._runtime.check_route(name, history[-1].route)
        self._stamps[name] = stamp
        return history

    def _write(self, name: str, history: History) -> None:
        """Write a history down; where that is not possible, the change is refused."""
        if not _is_plain(name):
            raise BadRegistration("the folder can have no file for this name", found=repr(name))
        path = self._folder.root / name / FILE
        if self._folder.stamp(path) != self._stamps.get(name, ()):
            raise BadCall(
                "the route's file was edited and not read yet",
                where=f"{name}/{FILE}",
                hint="it is read with the next look at the folder",
            )
        self._folder.guard(path)
        try:
            make_directory(path.parent)
            write_file(path, [as_toml(name, history).encode()])
        except (OSError, UnicodeEncodeError) as problem:
            raise BadRegistration(
                "the route cannot be written down",
                where=f"{name}/{FILE}",
                found=getattr(problem, "strerror", None) or type(problem).__name__,
            ) from problem
        self._stamps[name] = self._folder.stamp(path)


def _is_plain(name: str) -> bool:
    """Whether a folder can have this name."""
    return name == Path(name).name and not is_ignored(name) and "\0" not in name
