"""Routes in the folder: `DIR/fraud/endpoint.toml` has the route of `fraud`, and its history.

`DIR/fraud/endpoint.rollout` has how far its rollout is, which goes on in the next process.

A change is written before it counts, and the file is replaced in one step: a server that is killed
starts again with the route before the change or the one after it. What is edited by hand counts
with the next look at the folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from objectstore import Explained
from objectstore.atomic import make_directory, write_file
from runtime.errors import BadRegistration, EditedFile, NotWritten
from runtime.repository.files import Folder, Print, is_ignored
from runtime.repository.listing import reason_of
from runtime.repository.registry import RoutedRegistry
from runtime.rollout import resume
from runtime.routing import Route
from runtime.routing.history import History, extended
from runtime.routing.written import EDITED, as_toml, from_toml

FILE, ROLLOUT = EDITED, "endpoint.rollout"
#: Changes to a route that was in force before: they are never refused for a missing file.
_BACK = frozenset({"abort", "rollback"})


class RouteFiles:
    """The files of routes in a folder, for the endpoints of a runtime."""

    def __init__(self, folder: Folder, runtime: RoutedRegistry, lost: Callable[..., str]) -> None:
        """`lost` says why the version of an address could not be loaded again.

        With `unread`, files that have changed since they were read do not count.
        """
        self._folder, self._runtime, self._lost = folder, runtime, lost
        #: The files as they were written or read last. Changes of the runtime take turns.
        self._stamps: dict[str, tuple[Print, ...]] = {}
        #: Why the routes of endpoints are not followed as they are written, for the index.
        self.reasons: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        #: Names that have answered without a route: they go on, whatever is written then.
        self._open: set[str] = set()
        runtime.routes.on_route = self._write
        self._begun: set[str] = set()
        #: States of rollouts that the disk did not take, and what their files were then.
        self._unwritten: dict[str, tuple[Any, Any]] = {}
        owner = runtime.experiments
        owner.on_rollout, owner.lost = self._write_rollout, partial(lost, unread=True)

    def has(self, name: str) -> bool:
        """True if a route says which version of an endpoint answers."""
        return self._runtime.routes.has_route(name)

    def is_written(self, name: str) -> bool:
        """True if there is a file for the route of an endpoint."""
        return _is_plain(name) and self._folder.stamp(self._folder.root / name / FILE) != ()

    def hold(self, name: str, *, held: bool) -> None:
        """Let nothing answer under a name until its latest version is there, and then that."""
        routes = self._runtime.routes
        routes.mute(name, "its versions are being loaded") if held else routes.unmute(name)

    def mute(self, names: Iterable[str]) -> None:
        """Let nothing answer under names whose routes are not read yet."""
        self._open &= {each.name for each in self._runtime.endpoints}
        for name in names:
            if not self.has(name) and _is_plain(name):
                if not self.is_written(name):
                    self._runtime.routes.unmute(name)
                elif not self.reasons.get(name) and name not in self._open:
                    self._runtime.routes.mute(name, f"{name}/{FILE} is not read yet")

    def follow(self, only: str | None = None) -> Iterator[tuple[str, str]]:
        """Take over files that are new or were edited: names, and why one cannot be taken over."""
        for name in [each.name for each in self._runtime.endpoints]:
            path = self._folder.root / name / FILE
            if only not in (None, name) or not _is_plain(name):
                continue
            if not self.has(name):  # it is new, or was unloaded meanwhile
                self._stamps.pop(name, None)
                self._begun.discard(name)
            if (stamp := self._folder.stamp(path)) == ():
                self.reasons.pop(name, None)
                self._open.add(name)
            elif stamp != self._stamps.get(name):
                yield from self._follow(name, path)
            else:
                self.reasons.pop(name, None)  # a change was written in the place of a broken file
            if name not in self._begun and self.has(name):
                self._begun.add(name)
                yield from self._resume(name, path.with_name(ROLLOUT))

    def _follow(self, name: str, path: Path) -> Iterator[tuple[str, str]]:
        """Take over a file that is new or was edited."""
        reason = ""
        try:
            self._runtime.routes.restore(name, partial(self._read, name, path))
        except Explained as problem:
            reason = reason_of(problem)
            if name not in self._open:
                self._runtime.routes.mute(name, reason)
        told, self.reasons[name] = self.reasons.get(name), reason
        if not reason or reason != told:
            yield name, reason

    def _resume(self, name: str, path: Path) -> Iterator[tuple[str, str]]:
        """Go on with the rollout that a former process wrote down, or end it where that fails."""
        runtime = self._runtime
        last = runtime.routes.history(name)[-1]
        try:
            stamp, data = self._unwritten.get(name, (None, None))
            if stamp != self._folder.stamp(path):  # it is none, or the file is a later one
                data = self._rollout(path)
            if data is not None:
                resume(runtime.experiments, name, data)
            elif last.action == "rollout":
                raise BadRegistration("the file of a rollout is gone")
        except Explained as problem:
            reason = f"{ROLLOUT}: {reason_of(problem)}"
            try:
                if last.action == "rollout":  # its step stays in force until that is written down
                    base = before_rollout(name, runtime.routes.history(name))
                    runtime.routes.put_route(name, base, action="abort", who=ROLLOUT)
            except Explained as refused:
                self._begun.discard(name)
                reason = f"{reason}; {reason_of(refused)}"
            if reason != self._refused.get(name):
                yield name, reason
            self._refused[name] = reason

    def _rollout(self, path: Path) -> Any:
        """Return the saved state of a rollout; None if there is none."""
        if self._folder.stamp(path) == ():
            return None
        try:
            return json.loads(self._folder.read_text(path))
        except ValueError as problem:
            raise BadRegistration("this is no JSON", found=str(problem)[:200]) from None

    def _write_rollout(self, name: str, data: Mapping[str, Any]) -> None:
        """Write down how far a rollout is."""
        if not _is_plain(name):
            raise BadRegistration("the folder can have no file for this name", found=repr(name))
        path = self._folder.root / name / ROLLOUT
        self._folder.guard(path)
        self._begun.add(name)
        if not path.parent.is_dir():  # it was removed, or is of an endpoint without a folder
            return
        text = json.dumps(data, indent=1)
        try:
            write_file(path, [text.encode()])
            self._unwritten.pop(name, None)
        except OSError as problem:
            self._unwritten[name] = self._folder.stamp(path), json.loads(text)
            raise _not_written("the rollout", f"{name}/{ROLLOUT}", problem) from problem

    def _read(self, name: str, path: Path) -> History:
        stamp, now = self._folder.stamp(path), time.time()
        where = f"{name}/{FILE}"
        before = self._runtime.routes.history(name) if self.has(name) else ()
        history = from_toml(self._folder.read_text(path), where, now, before)
        try:
            self._runtime.routes.check_route(name, history[-1].route)
        except Explained:
            if history[-1].action != "rollout":
                raise
            # A rollout whose challenger is gone: it ends, and the next process does the same.
            base = before_rollout(name, history)
            self._runtime.routes.check_route(name, base)
            history = extended(history, "abort", base, ROLLOUT, now)
            self._stamps[name] = stamp
            with suppress(BadRegistration):
                self._write(name, history)
            return history
        self._stamps[name] = stamp
        return history

    def _write(self, name: str, history: History) -> None:
        """Write a history down; where that is not possible, the change is refused."""
        if not _is_plain(name):
            raise BadRegistration("the folder can have no file for this name", found=repr(name))
        path = self._folder.root / name / FILE
        if (stamp := self._folder.stamp(path)) and stamp != self._stamps.get(name):
            state, hint = "not read yet", "ask again after the next look at the folder"
            if reason := self.reasons.get(name):
                state, hint = "cannot be followed", "mend the file, or delete it to undo the edit"
            what = f"the route's file was edited and {state}"
            raise EditedFile(what, where=f"{name}/{FILE}", found=reason, hint=hint)
        if history[-1].action not in _BACK:
            self._check_there(history[-1].route, history[-2].route if history[1:] else None)
        self._folder.guard(path)
        try:
            make_directory(path.parent)
            write_file(path, [as_toml(name, history).encode()])
        except UnicodeEncodeError as problem:
            what, found = "the route cannot be written down", "half of a surrogate pair"
            raise BadRegistration(what, where=f"{name}/{FILE}", found=found) from problem
        except OSError as problem:
            raise _not_written("the route", f"{name}/{FILE}", problem) from problem
        self._stamps[name] = self._folder.stamp(path)

    def _check_there(self, route: Route, former: Route | None) -> None:
        """Raise if a version that gets another part could not play it after a restart."""
        known = set[str]() if former is None else set(former.addresses)
        if former is not None and route.champion != former.champion:
            known.discard(route.champion)
        for each in route.addresses:
            if each not in known and (lost := self._lost(each)):
                raise BadRegistration(
                    "this version cannot be loaded again, so it gets no part of a route",
                    where=each,
                    found=lost,
                    hint="bring its file back, and let the folder be looked at",
                )


def before_rollout(name: str, history: History) -> Route:
    """The route before the steps of a rollout at the end of a history."""
    for each in reversed(history):
        if each.action != "rollout":
            return each.route
    return Route(history[-1].route.champion, salt=name)


def unfollowed(folder: Folder, name: str, versions: Collection[str]) -> str:
    """Why the route's file of an endpoint cannot be followed, as far as its text tells."""
    path, where = folder.root / name / FILE, f"{name}/{FILE}"
    if not _is_plain(name) or folder.stamp(path) == ():  # a server refuses a folder, too
        return ""
    try:
        route = from_toml(folder.read_text(path), where, time.time())[-1].route
    except Explained as problem:
        return reason_of(problem)
    known = {f"{name}@{version}" for version in versions}
    gone = ", ".join(each for each in route.addresses if each not in known)
    return f"the route names versions that are not there; {where}; {gone}" if gone else ""


def _not_written(what: str, where: str, problem: OSError) -> NotWritten:
    found = problem.strerror or type(problem).__name__
    hint = "make room on the server's disk, or let the server write there; then ask again"
    return NotWritten(f"{what} cannot be written down", where=where, found=found, hint=hint)


def _is_plain(name: str) -> bool:
    """True if a folder can have this name."""
    return name == Path(name).name and not is_ignored(name) and "\0" not in name
