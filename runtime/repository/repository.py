"""Serves a folder of models as endpoints of a runtime, and follows its changes.

Every change in the folder takes the same steps: when its files have stopped changing, a model is
copied or imported into the staging directory, loaded and verified, and only then replaces the old
one, atomically. A failure is reported and changes nothing: the old version goes on answering.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from flour.language.graph_file import is_graph_file
from objectstore import Closing
from runtime.errors import InUse, RuntimeClosed, UnknownEndpoint
from runtime.http.wire.interfaces import ModelState
from runtime.repository import formats
from runtime.repository.errors import BadConfig, NoRoom, NotLoaded, NotSettled, UnknownModel
from runtime.repository.files import MAX_BYTES, Print, natural, shown
from runtime.repository.isolated_import import IsolatedImporter, OnLine
from runtime.repository.layout_mlserver import SETTINGS
from runtime.repository.listing import (
    FolderModel,
    Scan,
    Trouble,
    reason_of,
    refusal_of,
    without_directories,
)
from runtime.repository.object_storage import folder_of, is_url
from runtime.repository.preparing import LocalImporter, Trust
from runtime.repository.registry import Registry, RoutedRegistry
from runtime.repository.route_files import FILE, RouteFiles
from runtime.repository.staging import Staging
from runtime.repository.walk import scan as walk
from runtime.service.engines import are_modules, check_modules

QUIET_SECONDS = 1.0
"""Files that changed more recently than this may still be being written."""
_APART = 10.0  # times what the last look took are between two: one at 20,000 models takes seconds

READY, UNAVAILABLE, LOADING = "READY", "UNAVAILABLE", "LOADING"
BY_NAME = "unloaded by name"


@dataclass(frozen=True, slots=True)
class FolderEvent:
    """Something that happened to a model, for a log."""

    kind: str
    """loaded, replaced, unloaded, routed or refused."""
    name: str
    version: str
    where: str
    reason: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class _VersionEntry:
    """The state of one version."""

    state: str = UNAVAILABLE
    reason: str = ""
    stamp: tuple[Print, ...] = ()
    staged: Path | None = None
    """The file of the plan that is registered; None if none is."""
    notes: Mapping[str, object] = field(default_factory=dict)
    """The notes that it was registered with."""
    tried: int | None = None
    """After how many changes a graph was refused; others may have helped it."""
    again: bool = False
    """True if it was refused for what may pass."""


@dataclass(slots=True)
class _Stability:
    """The stamp of files, and since when they have had it."""

    stamp: tuple[Print, ...]
    since: float


class Repository(Closing):
    """The models of a folder, in a runtime. Safe to use from several threads."""

    def __init__(  # noqa: PLR0913 (each has a default)
        self,
        path: str | Path,
        runtime: Registry,
        *,
        trust_pickle: bool = False,
        trust_code: bool = False,
        allow_python: Sequence[str] = (),
        unload_removed: bool = True,
        exact: bool = False,
        apart: bool = False,
        staging: str | Path | None = None,
        quiet_seconds: float = QUIET_SECONDS,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
        on_event: Callable[[FolderEvent], object] | None = None,
        on_line: OnLine | None = None,
    ) -> None:
        """Check the folder; nothing is loaded yet. It may be on object storage, see there.

        `trust_pickle` unpickles what is refused as data, which runs its code; with `trust_code`,
        machine code in the files of plans is used where they are tried out, and graphs find their
        coroutines in the modules `allow_python`; the runtime has settings of its own for both. With
        `unload_removed`, models that are removed from the folder are unloaded. Plans are kept in
        the directory `staging`, which processes may share, or in one that is removed with the
        repository. With `apart`, another process imports and verifies models: one that crashes it,
        or takes all memory, is refused, and this process goes on. A file is not read until it has
        not changed for `quiet_seconds`, by `clock` or by its own time of change. `on_event` is
        called with each event, on the thread where it happens; `on_line` with each line that the
        other process prints, which otherwise goes to standard error.
        """
        if not are_modules(allow_python):
            raise BadConfig("allow_python is a list of modules", found=repr(allow_python)[:80])
        trust = Trust(trust_pickle, check_modules(allow_python))
        self._staging = Staging(staging, trust_code=trust_code)
        self.folder = folder_of(path, self._staging.directory, max_bytes=max_bytes)
        if not is_url(path):  # the first look fetches it, which may take long
            self.folder.check()
        self.runtime = runtime
        self._unload_removed, self._quiet_seconds = unload_removed, quiet_seconds
        self._clock, self._on_event = clock, on_event or (lambda _: None)
        folder, staged = self.folder, self._staging
        self._importer: LocalImporter | IsolatedImporter = (
            IsolatedImporter(folder, staged, trust, exact=exact, on_line=on_line)
            if apart
            else LocalImporter(folder, staged, trust, exact=exact)
        )
        self._routes: RouteFiles | None = None
        if isinstance(runtime, RoutedRegistry):
            self._routes = RouteFiles(self.folder, runtime, self._lost)
        self._entries: dict[tuple[str, str], _VersionEntry] = {}
        self._index: tuple[ModelState, ...] | None = ()
        self._changes = 0
        self._seen: dict[tuple[str, str], _Stability] = {}
        #: Models that were unloaded by name: they stay so until they are loaded by name.
        self._held: set[str] = set()
        self._working = threading.RLock()  # one change at a time
        self._table = threading.Lock()  # of the entries, as `index` reads them
        self._stop, self._look_seconds = threading.Event(), 0.0  # that the last look took
        self._watcher: threading.Thread | None = None

    @property
    def staging(self) -> Path:
        """The directory of the registered plans."""
        return self._staging.directory

    # --- looking -----------------------------------------------------------------------------

    def scan(self) -> Scan:
        """The models in the folder now; only configurations and first bytes are read."""
        return walk(self.folder)

    def index(self) -> tuple[ModelState, ...]:
        """All versions, loaded or not; the same object until one of them changes."""
        with self._table:
            if self._index is None:
                reasons = {} if self._routes is None else self._routes.reasons
                routes = {
                    name: self._without_folder(f"{name}/{FILE} is not followed: {why}")
                    for name, why in reasons.items()
                    if why
                }
                if folder := self._entries.get(("", "")):
                    states = [entry.state for key, entry in self._entries.items() if key[0]]
                    count, left = len(states), states.count(LOADING)
                    known = f"{count - left} of {count} models are done"
                    folder.reason = known if states else "the folder is being read"
                lines = [
                    ModelState(
                        *(name, version, entry.state, entry.reason or routes.get(name, "")),
                        name not in self._held,
                        refused=entry.state == UNAVAILABLE and entry.staged is None,
                        again=entry.again,
                    )
                    for (name, version), entry in self._entries.items()
                ]
                lines.sort(key=lambda one: (natural(one.name), natural(one.version)))
                self._index = tuple(lines)
            return self._index

    # --- changing ----------------------------------------------------------------------------

    def expect(self) -> None:
        """Have the index say that the folder is being loaded, until `load_all` has done so."""
        with self._table:
            self._entries["", ""] = _VersionEntry(LOADING)
            self._index = None

    def load_all(self) -> tuple[FolderEvent, ...]:
        """Load everything in the folder, as at the start of a server; failures are events."""
        with self._working:
            return self._sync(self.scan(), patient=False)

    def poll(self) -> tuple[FolderEvent, ...]:
        """Update the runtime to the folder; returns the events.

        While another thread does so, this returns at once.
        """
        if not self._working.acquire(blocking=False):
            return ()
        try:
            began = self._clock()
            found = walk(self.folder, gentle=True)
            self._look_seconds = self._clock() - began
            events = self._sync(found, patient=True)
            self._staging.keep(
                [entry.staged for entry in self._entries.values() if entry.staged is not None]
            )
            return events
        finally:
            self._working.release()

    def load(self, name: str) -> tuple[FolderEvent, ...]:
        """Load or reload a model with all its versions, now; an error if one cannot be."""
        with self._working:
            scan = self.scan()
            if not any(key[0] == name for key in _keys(scan.models, scan.troubles)):
                raise UnknownModel(
                    f"the folder has no model {name!r}", found=f"{len(scan.models)} models"
                )
            self._hold(name, held=False)
            for key, entry in self._entries.items():
                if key[0] == name:
                    entry.stamp = entry.stamp if entry.state == READY and not entry.reason else ()
            events = self._sync(scan, patient=False, only=name)
        for event in events:
            if event.kind == "refused":
                raise NotLoaded(f"model {name!r} cannot be loaded", found=event.reason)
        return events

    def unload(self, name: str) -> tuple[FolderEvent, ...]:
        """Take out all versions of a model with its route, until it is loaded by name.

        Its files stay, and so does what they say of its route and rollout. InUse for one that a
        graph needs.
        """
        with self._working:
            keys = [key for key in self._entries if key[0] == name]
            if not keys:
                raise UnknownModel(f"no model {name!r} is known")
            events = tuple(self._drop(keys, BY_NAME))
            self._hold(name, held=True)
            return events

    # --- one step ----------------------------------------------------------------------------

    def _sync(
        self, scan: Scan, *, patient: bool, only: str | None = None
    ) -> tuple[FolderEvent, ...]:
        """Load new and changed models of a scan; unload those that are gone."""
        events: list[FolderEvent] = []
        models = [one for one in scan.models if only in (None, one.name)]
        troubles = [one for one in scan.troubles if only in (None, one.name)]
        if not patient:
            self._announce(models)
        if self._routes is not None:
            self._routes.mute({model.name for model in models} - self._held)
        # The version in service is switched before any is removed, so that requests always find
        # one. Graphs come after their models, and the routes of these.
        here = _keys(models, troubles)
        # If a configuration cannot be read, its versions are not known: none is unloaded.
        unclear = {one.name for one in troubles if not one.version}
        unread = [one.where.removesuffix(f"/{SETTINGS}") for one in troubles if not one.version]
        folders = tuple(f"{each}/" for each in unread)
        gone = [
            key
            for key, entry in self._entries.items()
            if key not in here and only in (None, key[0]) and key[0] not in unclear
            if not any(shown(each.path).startswith(folders) for each in entry.stamp)
        ]
        without = set(gone) if self._unload_removed else set()
        for is_graph, load in ((False, self._load_by_name), (True, self._load_group)):
            group = [model for model in models if (model.form == formats.GRAPH) is is_graph]
            events += load(group, patient=patient)
            if self._stop.is_set():
                return tuple(events)
            events += self._follow_routes(only)
            names = {event.name for event in events}
            self._serve_latest(names | {name for name, _ in gone}, without)
        for trouble in troubles:
            events += self._report(trouble, patient=patient)
        events += self._remove_gone(gone)
        return tuple(events)

    def _announce(self, models: Iterable[FolderModel]) -> None:
        """Let the index name those that are new before the first of them is there."""
        with self._table:
            for key in _keys(models, ()) - self._entries.keys():
                if key[0] not in self._held:
                    self._entries[key], self._index = _VersionEntry(LOADING), None

    def _load_by_name(self, models: Sequence[FolderModel], *, patient: bool) -> list[FolderEvent]:
        """Load models so that each name answers when its own versions are there, by the latest."""
        events: list[FolderEvent] = []
        there = {name for (name, _), entry in self._entries.items() if entry.staged is not None}
        for name, group in groupby(models, key=attrgetter("name")):
            versions, routes = list(group), self._routes
            if patient or routes is None or name in there:
                events += self._load_group(versions, patient=patient)
                continue
            if len(versions) > 1:
                routes.hold(name, held=True)
            events += self._load_group(versions, patient=patient)
            if routes.is_written(name):
                events += self._follow_routes(name)
            elif len(versions) > 1:
                self._serve_latest({name}, ())
                routes.hold(name, held=False)
        return events

    def _follow_routes(self, only: str | None) -> list[FolderEvent]:
        """Take over routes that are written in the folder."""
        if self._routes is None:
            return []
        before = dict(self._routes.reasons)
        events = [
            self._emit("refused" if reason else "routed", Trouble(name, "", "", ""), reason)
            for name, reason in self._routes.follow(only)
        ]
        if before != self._routes.reasons:
            with self._table:
                self._index = None
        return events

    def _load_group(self, models: Sequence[FolderModel], *, patient: bool) -> list[FolderEvent]:
        """Load models that have changed; graphs again once others are there: they may need them."""
        events: list[FolderEvent] = []
        left = [model for model in models if self._is_due(model, patient=patient)]
        failed: list[tuple[FolderModel, Exception]] = []
        while left:
            before, failed = left, []
            for model in left:
                if self._stop.is_set():
                    return events
                try:
                    events += self._load_model(model)
                except RuntimeClosed:
                    raise
                # Files from anywhere go through importers and libraries: whatever they stumble
                # over is about the model, and no reason to stop serving others.
                except Exception as problem:  # noqa: BLE001
                    if self._stop.is_set():  # `close` has ended the import
                        return events
                    if model.form == formats.GRAPH:
                        failed.append((model, problem))
                    else:
                        events += self._not_loaded(model, problem, patient=patient)
            left = [model for model, _ in failed]
            if left == before:
                break
        return events + [e for pair in failed for e in self._not_loaded(*pair, patient=patient)]

    def _is_due(self, model: FolderModel, *, patient: bool) -> bool:
        """Return whether a model has changed, or, for a refused graph, others have."""
        key = (model.name, model.version)
        entry = self._entries.get(key)
        if model.name in self._held:
            with self._table:
                self._entries.setdefault(key, _VersionEntry(reason=BY_NAME))
                self._index = None if entry is None else self._index
            return False
        if entry is not None:
            again = entry.tried not in (None, self._changes)
            if entry.stamp == model.stamp and not again:
                return False
        if patient and not self._is_quiet(key, model.stamp):
            return False
        if entry is None:
            with self._table:
                self._entries[key] = _VersionEntry(LOADING)
                self._index = None
        return True

    def _is_quiet(self, key: tuple[str, str], stamp: tuple[Print, ...]) -> bool:
        """True if files have not changed for a while, by their own clock or by ours."""
        seen = self._seen.get(key)
        if seen is None or seen.stamp != stamp:
            seen = self._seen[key] = _Stability(stamp, self._clock())
        newest = max((one.changed_ns for one in stamp), default=0) / 1e9
        ages = time.time() - newest, self._clock() - seen.since
        return any(age >= self._quiet_seconds for age in ages)

    def _load_model(self, model: FolderModel) -> list[FolderEvent]:
        start, entry = time.perf_counter(), self._entries[model.name, model.version]
        entry.tried = None
        staged = self._importer.prepare(model, entry.staged)
        self._staging.use(staged)
        # The same content and settings: only the time stamp has changed.
        if staged == entry.staged and model.notes == entry.notes:
            entry.stamp = model.stamp
            self._set_state(entry, READY, "")
            return []
        promise = model.promise
        notes = {
            "platform": promise.platform,
            "default_outputs": promise.default_outputs,
            "layout": model.layout,
            **model.notes,
        }
        replaces = entry.staged is not None
        self.runtime.register(
            model.name, staged, model.version, activate=False, replace=replaces, notes=notes
        )
        entry.staged, entry.notes, entry.stamp = staged, model.notes, model.stamp
        self._set_state(entry, READY, "")
        kind = "replaced" if replaces else "loaded"
        self._changes += 1
        return [self._emit(kind, model, seconds=time.perf_counter() - start)]

    def _not_loaded(
        self, model: FolderModel, problem: Exception, *, patient: bool
    ) -> list[FolderEvent]:
        """Refuse a model; what may be loaded later is tried again, and reported once."""
        entry = self._entries[model.name, model.version]
        later = isinstance(problem, NoRoom | UnknownEndpoint)
        entry.stamp = () if later else model.stamp
        if model.form == formats.GRAPH:
            later, entry.tried = True, self._changes
        reason = self._without_folder(refusal_of(model, problem))
        entry.again = isinstance(problem, NoRoom | NotSettled)
        if later and patient and entry.reason.endswith(reason):
            return []
        return self._refuse(entry, model, reason)

    def _refuse(
        self, entry: _VersionEntry, one: FolderModel | Trouble, reason: str
    ) -> list[FolderEvent]:
        """Note why the files of a version are not served; one that is loaded stays."""
        older = f"what is served is older: {reason}"
        self._set_state(entry, *((READY, older) if entry.staged else (UNAVAILABLE, reason)))
        return [self._emit("refused", one, reason)]

    def _without_folder(self, reason: str) -> str:
        """A reason without the folder's path, as clients read the index too."""
        return without_directories(reason, shown(self.folder.root))

    def _report(self, trouble: Trouble, *, patient: bool) -> Iterable[FolderEvent]:
        """Report a file that cannot be served; the version that is loaded stays."""
        key = (trouble.name, trouble.version)
        entry = self._entries.get(key)
        reason = self._without_folder(trouble.reason)
        if trouble.name in self._held or (entry and entry.reason.endswith(reason)):
            return ()
        if patient and trouble.stamp and not self._is_quiet(key, trouble.stamp):
            return ()
        with self._table:
            entry = self._entries.setdefault(key, _VersionEntry())
        entry.stamp, entry.again = (), False
        return self._refuse(entry, trouble, reason)

    def _set_state(self, entry: _VersionEntry, state: str, reason: str) -> None:
        with self._table:
            entry.state, entry.reason, self._index = state, reason, None

    def _hold(self, name: str, *, held: bool) -> None:
        with self._table:
            (self._held.add if held else self._held.discard)(name)
            self._index = None

    def _lost(self, address: str, *, unread: bool = False) -> str:
        """Why the version of an address could not be loaded again; empty where it could.

        With `unread`, this is so for files that have changed and were not read yet, too.
        """
        name, _, version = address.rpartition("@")
        with self._table:
            entry = self._entries.get((name, version))
            if entry is None or entry.staged is None or entry.reason:
                return "" if entry is None else entry.reason
            known = entry.stamp
        now = self.folder.stamp(*(Path(each.path) for each in known))
        if now == known or (now and unread):
            return ""
        return "its files have changed, and were not read yet" if now else "its file is gone"

    def _serve_latest(self, names: Collection[str], without: Collection[tuple[str, str]]) -> None:
        """Switch endpoints to their latest versions that can be served."""
        ready: dict[str, list[str]] = {}
        for (name, version), entry in self._entries.items():
            if name in names and entry.staged is not None and (name, version) not in without:
                ready.setdefault(name, []).append(version)
        for name, versions in ready.items():
            if not (self._routes is not None and self._routes.has(name)):
                self.runtime.switch(name, max(versions, key=natural))

    def _remove_gone(self, gone: list[tuple[str, str]]) -> list[FolderEvent]:
        served = [key for key in gone if self._entries[key].staged is not None]
        if served and not self._unload_removed:
            gone = [key for key in gone if key not in served]
        events = self._drop(gone, "it is not in the folder any more")
        with self._table:
            for key in gone:
                if self._entries[key].staged is not None:  # what is in use stays
                    continue
                del self._entries[key]
                self._index = None
                self._seen.pop(key, None)
        return events

    def _drop(self, keys: list[tuple[str, str]], reason: str) -> list[FolderEvent]:
        """Unregister versions, graphs before models; accepted requests get their answers."""
        keys = sorted(keys, key=lambda key: not is_graph_file(self._entries[key].staged or ""))
        events: list[FolderEvent] = []
        going = set(keys)
        stay = {key[0] for key, one in self._entries.items() if one.staged and key not in going}
        for name, version in keys:
            entry = self._entries[name, version]
            if entry.staged is None:
                continue
            staged, entry.staged = entry.staged, None
            if name in stay:
                self._serve_latest({name}, ())
            try:
                with suppress(UnknownEndpoint):  # it is gone already
                    self.runtime.unregister(name, version if name in stay else None)
            except InUse as problem:  # a graph or a route goes on with it
                entry.staged = staged
                if reason == BY_NAME:
                    raise
                kept = f"{reason}, and it is still served: {reason_of(problem)}"
                if entry.reason != kept:
                    events.append(self._emit("refused", Trouble(name, version, "", ""), kept))
                entry.stamp = ()
                self._set_state(entry, READY, kept)
                continue
            entry.stamp = ()
            self._set_state(entry, UNAVAILABLE, reason)
            self._changes += 1
            events.append(self._emit("unloaded", Trouble(name, version, "", ""), reason))
        return events

    def _emit(
        self, kind: str, one: FolderModel | Trouble, reason: str = "", seconds: float = 0.0
    ) -> FolderEvent:
        where = one.where if isinstance(one, Trouble) else shown(one.path)
        event = FolderEvent(kind, one.name, one.version, where, reason, seconds)
        self._on_event(event)
        return event

    # --- following ---------------------------------------------------------------------------

    def watch(self, seconds: float = 2.0) -> None:
        """Poll every so often, or a tenth of the time, on a thread of its own until `close`."""
        if self._watcher is not None:
            return
        self._watcher = threading.Thread(
            target=self._follow, args=(seconds,), name="pretzel-repository", daemon=True
        )
        self._watcher.start()

    def _follow(self, seconds: float) -> None:
        last = ""
        while not self._stop.wait(max(seconds, _APART * self._look_seconds)):
            try:
                self.poll()
                last = ""
            except RuntimeClosed:
                return
            # After any error the folder must still be followed.
            except Exception as problem:  # noqa: BLE001
                reason = self._without_folder(reason_of(problem))
                if reason != last:
                    self._on_event(FolderEvent("refused", "", "", shown(self.folder.root), reason))
                last = reason

    def close(self) -> None:
        """Stop following the folder; registered models stay until the runtime is closed."""
        self._stop.set()
        self._importer.close()
        if self._watcher is not None:
            self._watcher.join(30.0)  # object storage may answer nothing any more
        elif self._working.acquire(timeout=30.0):  # the same, in the first load
            self._working.release()
        self._staging.close()

    def __repr__(self) -> str:
        return f"Repository({shown(self.folder.root)!r}, {len(self._entries)} versions)"


def _keys(models: Iterable[FolderModel], troubles: Iterable[Trouble]) -> set[tuple[str, str]]:
    """The names and versions of all of them."""
    keys = {(one.name, one.version) for one in models}
    return keys | {(one.name, one.version) for one in troubles}
