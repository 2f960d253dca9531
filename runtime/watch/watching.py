"""A watched endpoint: what its rows are like beside the reference's, by column and by segment."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import FlourError, InputError, ParameterError, check_values
from flour.data.batch import Batch
from objectstore import Closing
from oven import Plan
from runtime.routing.blocks import length
from runtime.routing.blocks import taken as taken_rows
from runtime.routing.predicate import columns_of
from runtime.routing.shadows import kept
from runtime.service.asking import tenant_now
from runtime.service.private import in_tables
from runtime.service.routes import ServingRuntime
from runtime.service.version import ModelVersion
from runtime.watch.causes import Cause, causes_of
from runtime.watch.observers import RowQueue, attach, detach, observers_of
from runtime.watch.outliers import Detectors, outlier_plans
from runtime.watch.rows import Sample, Table, loose_table, read_table, table_of, taken
from runtime.watch.sampling import ROWS_A_MINUTE, Sampling
from runtime.watch.segments import SegmentCell, Segments, rows_in
from runtime.watch.sketch import Counts, Reference
from runtime.watch.statistics import Drift, Window, drift_of
from runtime.watch.statistics import window as window_of
from runtime.watch.steps import StageCosts, Steps
from runtime.watch.training import reference_of

log = logging.getLogger("pretzel.watch")
#: The segment of who asks, as `predict(..., tenant=)` or a header of the request says.
TENANT = "@tenant"
_MOST = 1 << 18
#: Rows of the reference and of the window that are kept to find causes.
_KEPT = 1000
#: Time to find out which rows of a refused block are.
_REFUSED_SECONDS = 10.0


class Detector(Protocol):
    """A detector that looks at scores one by one, as Adwin and PageHinkley do."""

    def update(self, score: float) -> bool:
        """True if this score makes it alarm."""


class Alarm(NamedTuple):
    """A detector that has alarmed, and which columns may be why, the top cause first."""

    detector: str
    score: int
    """The number of the score, among those seen, at which it did."""
    causes: tuple[Cause, ...]


class _Watching(RowQueue):
    """The observer of a watch, by which others find it from the version."""

    watch: Watch

    def fold(self) -> None:
        """Fold what has come so far, and look whether another version answers now."""
        self.watch.conceal()
        super().fold()
        self.watch.follow()

    def refused(self, data: object) -> None:
        """Count the rows of a refused call by segment."""
        if self.watch.segments is not None:
            batch = data if isinstance(data, Batch) else None
            block = data if batch is None else batch.block
            values = block.values() if isinstance(block, Mapping) else ()
            rows = 1  # of a dict with a plain value, whatever else is in it
            if not any(isinstance(each, str | float | int | None) for each in values):
                rows = (batch.rows if batch is not None else 0) or length(block) or 1
            self.put(partial(self.watch.refused, batch, block, rows), rows)

    def close(self) -> None:
        """The runtime is closed."""
        self.watch.close()


class Watch(Closing):
    """Counts the rows of an endpoint's version in service until it is closed.

    Where another version answers, it goes on with that one; with a route, it is the champion's.
    `reference` are rows as the plan takes them, or sketches of such; without it, the sketches that
    were made at the import, if there are any: `drift=True` insists on them. `segments` are columns
    or buckets of columns, or "@tenant", of which `limit` combinations are told apart. `detectors`
    see the scores. `outliers` are "range", "mahalanobis" or "pca", or plans that find outliers, by
    name. With `costs`, what rows take to compute is found out by segment and by stage. Drift is of
    the last `window` rows: the older half is forgotten where the newer one is full. Drift is also
    measured on what `steps` inside the plan compute, which takes reference rows.

    All rows are looked at until calls of few rows have had `rows_a_minute`, and of more such calls
    one in 64; with `sample`, that share of all rows. Rows of the segments stand for those that were
    passed over; refused ones are counted one by one. `clock` is what minutes are measured by.
    """

    def __init__(  # noqa: PLR0913 (each has a default)
        self,
        runtime: ServingRuntime,
        name: str,
        *,
        reference: object = None,
        segments: Sequence[str] = (),
        detectors: Sequence[Detector] | Detector = (),
        limit: int = 1000,
        outliers: Detectors = (),
        drift: bool | None = None,
        costs: bool = False,
        window: int = 100_000,
        steps: Sequence[str] = (),
        sample: float | None = None,
        rows_a_minute: float = ROWS_A_MINUTE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        _check(name, segments, steps, limit, window, drift, costs)
        if not isinstance(detectors, Sequence):
            detectors = (detectors,)
        self._runtime, self._name, self._moving = weakref.ref(runtime), name, Lock()
        self._closed = False
        self.version = version = runtime.endpoints.find(name)
        private = self._private = in_tables(version.private, version.inputs)
        self._usual, self._recent = Sample(_KEPT, private), Sample(_KEPT, private)
        self.reference, rows = self._reference(reference, drift)
        texts = columns_of(version.inputs) or {}
        known = [*self.reference.columns] or [*version.reader.columns]
        known = [name for name in known if name not in private]
        self.segments = Segments(segments, [*known, TENANT], limit) if segments else None
        self._by_tenant = TENANT in segments
        for column in self.segments.columns if self.segments else ():
            if column.width and texts.get(column.name):
                raise ParameterError("a column of texts has no buckets", where=column.text)
        _check_detectors(detectors)
        self.detectors = tuple(detectors)
        rows = {name: each for name, each in rows.items() if name not in private}
        #: What finds outliers, and what it has found.
        self.outliers = outlier_plans(outliers, rows, private, self.reference.ends())
        self._steps = Steps(version, steps) if steps else None
        self._step_names = tuple(steps)
        #: The sketches of the steps' columns.
        self.inside = self._inside(reference)
        #: How computing divides among stages, where that is watched.
        self.costs = StageCosts() if costs else None
        #: When detectors have alarmed.
        self.alarms: list[Alarm] = []
        self.scores = 0
        self._window: dict[str, tuple[Counts, int]] = {}
        self._older: dict[str, tuple[Counts, int]] = {}
        self._rows, self._half = 0, max(window // 2, 1)
        sampling = Sampling(sample, rows_a_minute, clock)
        self._observer = _Watching(self._copied, self._fold, _MOST, sampling)
        self._observer.watch = self
        if self._by_tenant:
            runtime.routes.want_tenants(version.name, wanted=True)
        attach(version, self._observer)
        self._observer.start()

    def _reference(self, given: object, wanted: object) -> tuple[Reference, Table]:
        table: Table = {}
        if given is None and wanted is not False:
            given = reference_of(self.version.training)
        if given is None:
            if wanted:
                raise ParameterError(
                    "nothing is known of this model's training, which drift is measured from",
                    where=self.version.owner,
                    hint="pass `reference`, or import with `pretzel import --training ROWS`",
                )
            return Reference({}), table
        if isinstance(given, Reference):
            found = given
        else:
            batch = self.version.reader.read(given)
            table = read_table(batch, self.version.inputs)
            self._usual.add(table)
            found = Reference.of(table)
        names = self.version.reader.columns
        some = not names or names & found.columns.keys()
        if not (some and any(each.counts.sum() + each.missing for each in found.columns.values())):
            raise ParameterError(
                "these reference rows say nothing of the columns that the model reads",
                where=self.version.owner,
                found="columns: " + ", ".join(found.columns)[:200],
                hint="pass rows as the model takes them, the more the better",
            )
        told = {n: each for n, each in found.columns.items() if n not in self._private}
        return Reference(told), table

    def _inside(self, given: object) -> Reference:
        if self._steps is None:
            return Reference({})
        if given is None or isinstance(given, Reference):
            raise ParameterError(
                "drift of steps is measured from reference rows, which sketches are not",
                where=self.version.owner,
                hint="pass rows as `reference`",
            )
        batch = self.version.reader.read(given)
        return Reference.of(self._steps.table(taken(batch, self.version.inputs)))

    def follow(self) -> None:
        """Go on with the version that answers now, which the background does with each fold."""
        runtime = self._runtime()
        with self._moving, suppress(FlourError):  # the endpoint may be gone, or mute
            if runtime is None or self._closed:
                return
            version = runtime.endpoints.find(self._name)
            if version is not self.version and "@" not in self._name:
                detach(self.version, self._observer)
                self.version = version
                attach(version, self._observer)
                self._follow_steps(version)

    def _follow_steps(self, version: ModelVersion) -> None:
        if not self._step_names:
            return
        try:
            self._steps = Steps(version, self._step_names)
        except FlourError as problem:
            self._steps = None
            log.warning("%s: steps are not looked at: %s", version.owner, problem.what)

    def conceal(self) -> None:
        """Forget the columns that are private now, as other versions of the name may have it."""
        version, known = self.version, self._private
        self._private = private = known | in_tables(version.private, version.inputs)
        if private == known:
            return
        for sample in (self._usual, self._recent):
            sample.hide(private)
        told = {n: each for n, each in self.reference.columns.items() if n not in private}
        self.reference = Reference(told)
        self._follow_steps(version)
        self.inside = self.inside if self._steps is not None else Reference({})
        self.outliers = tuple(each for each in self.outliers if each.hide(private))
        columns = self.segments.columns if self.segments else ()
        if any(each.name in private for each in columns):
            self.segments = None
            log.warning("%s: a column of the segments is private now", version.owner)

    def _copied(self, batch: Batch, places: NDArray[np.int64] | None) -> Any:
        block = taken(batch, self.version.inputs, places)
        rows = length(block) or 1 if places is None else len(places)
        return block, rows, tenant_now()

    def refused(self, batch: Batch | None, block: object, rows: int) -> Any:
        """A copy of the rows of a call that was refused."""
        with suppress(InputError):  # it is for a frame to be read, and cannot be
            block = kept(block) if batch is None else taken(batch, self.version.inputs)
        return block, rows, tenant_now()

    def _fold(self, copied: tuple[object, int, str], weight: int, latency: float) -> None:
        block, rows, tenant = copied
        if not weight:
            self._fold_refused(block, rows, tenant)
            return
        try:
            table = table_of(block, self.version.inputs)
            if self._rows and self._rows + rows > self._half:
                self._older, self._window, self._rows = self._window, {}, 0
                self._recent.fade()
            self._rows += rows
            self._count(self.reference, table)
            if self._steps is not None:
                with suppress(FlourError):  # what the plan refuses has no values of steps
                    self._count(self.inside, self._steps.table(block))
            if self._usual.table:
                self._recent.add(table)
            for each in self.outliers:
                each.add(table, weight)
            if self.segments is not None or self.detectors or self.costs is not None:
                self._fold_answers(block, self._asked(table, rows, tenant), weight, latency)
        except Exception:
            plan, answered = self.version.plan, False
            with suppress(Exception):  # of types that no column has, which the plan refuses, too
                answered = plan is None or bool(plan.run(block))
            if answered:
                raise
            self._fold_refused(block, rows, tenant)

    def _asked(self, table: Table, rows: int, tenant: str) -> Table:
        return {**table, TENANT: np.full(rows, tenant, object)} if self._by_tenant else table

    def _fold_refused(self, block: object, rows: int, tenant: str) -> None:
        if self.segments is not None:
            wanted = [each.name for each in self.segments.columns if each.name != TENANT]
            # What cannot be read may have private values anywhere.
            table = {name: np.full(rows, None, object) for name in wanted}
            if not self._private:
                table = loose_table(block, self.version.inputs, wanted, rows)
            self._count_refused(block, self._asked(table, rows, tenant), rows, 1)

    def _count_refused(self, block: object, table: Table, rows: int, weight: int) -> None:
        """Count which rows of a refused block are refused; others have what the plan answers.

        The block is halved again and again. One that takes too long is counted as refused.
        """
        version, end = self.version, min(monotonic() + _REFUSED_SECONDS, self._observer.until)
        plan: Any = version.plan
        whole = rows == 1 or version.mixes_rows or version.waits or plan is None
        parts, bad = [np.arange(rows)], [np.arange(rows)[:0]]
        while parts and self.segments is not None:
            part = parts.pop()
            if whole or len(part) == 1 or monotonic() > end:
                bad.append(part)
                continue
            for half in np.array_split(part, 2):
                some = {name: each[half] for name, each in table.items()}
                with suppress(Exception):  # it is refused, with whatever is wrong in it
                    answers = plan.run(taken_rows(block, half.tolist()))
                    labels = answers.get("label")
                    self.segments.add(some, _scores(answers), labels, weight)
                    continue
                parts.append(half)
        places = np.concatenate(bad)
        if self.segments is not None and len(places):
            found = {name: each[places] for name, each in table.items()}
            self.segments.add_errors(found, weight)

    def _count(self, reference: Reference, table: Table) -> None:
        for name, sketch in reference.columns.items():
            if name in table:
                counts, missing = sketch.counted(table[name])
                before, gone = self._window.get(name, (0 * counts, 0))
                self._window[name] = before + counts, gone + missing

    def _fold_answers(self, block: object, table: Table, weight: int, latency: float) -> None:
        """Count answers, which are made once more: calls do not wait for what is counted."""
        plan = self.version.plan
        if plan is None:
            return
        seconds = 0.0
        try:
            if self.costs is None:
                answers = plan.run(block)
            else:
                answers, seconds = self.costs.run(plan, block)
        except FlourError:
            if self.segments is not None:
                self._count_refused(block, table, len(next(iter(table.values()))), weight)
            return
        scores = _scores(answers)
        if self.segments is not None:
            self.segments.add(table, scores, answers.get("label"), weight, seconds, latency)
        if scores is not None and self.detectors:
            # Show scores to the detectors; alarms in one block have the same causes.
            found = []
            for score in scores.tolist():
                self.scores += 1
                alarming = [each for each in self.detectors if each.update(score)]
                found += [(type(each).__name__, self.scores) for each in alarming]
            if found:
                why = tuple(self.causes())
                self.alarms += [Alarm(*each, why) for each in found]

    def fold(self) -> None:
        """Count what has come so far, which the background does five times a second."""
        self._observer.fold()

    def drift(self) -> list[Drift]:
        """Each column of the window against the reference, the one that moved most first.

        Columns of `steps` are called "standardscaler[0]" and so on.
        """
        return sorted(map(drift_of, self.windows()), key=lambda each: each.score, reverse=True)

    def windows(self) -> list[Window]:
        """Counts of each column of the window; windows of several processes add up."""
        found, sketches = [], {**self.inside.columns, **self.reference.columns}
        older, newer = self._older, self._window  # the background may begin another half
        for name in [each for each in {**older, **newer} if each in sketches]:
            parts = [each[name] for each in (older, newer) if name in each]
            counts = np.add.reduce([part[0] for part in parts])
            missing = sum(part[1] for part in parts)
            found.append(window_of(name, sketches[name], counts, missing))
        return found

    def causes(self, plan: Plan | None = None) -> list[Cause]:
        """The columns that explain how what the plan answers has moved, the top cause first.

        `plan` is that of the version, or one of the same inputs whose output is a step of it. For
        plans that read private columns, of which no rows are kept, columns' own drift alone counts.
        """
        plan = plan or self.version.plan
        columns = [each for each in self.drift() if each.column in self.reference.columns]
        return causes_of(columns, plan, self._usual.table, self._recent.table)

    def moved(self, table: Table) -> NDArray[np.bool_]:
        """A mask of rows with values that became twice as frequent in a column that alarms."""
        rows = np.zeros(rows_in(table), bool)
        alarming = table.keys() & {each.column for each in self.drift() if each.alarms}
        for each in self.windows():
            if each.column in alarming and each.column in self.reference.columns:
                old, new = each.reference / each.reference.sum(), each.counts / each.counts.sum()
                bins = self.reference.columns[each.column].bins(table[each.column])
                rows |= (new > 2 * old)[bins]
        return rows

    def cells(self) -> list[SegmentCell]:
        """Counts of each segment."""
        return [] if self.segments is None else self.segments.cells()

    def restart(self) -> None:
        """Begin a new window of the columns and of outliers; segments count on."""
        for each in self.outliers:
            each.restart()
        self._window, self._older, self._rows = {}, {}, 0
        self._recent = Sample(_KEPT, self._private)

    @property
    def dropped(self) -> int:
        """Rows that were not looked at, because too many had come before."""
        return self._observer.dropped

    def close(self) -> None:
        """Look at no more calls, and count those that have come."""
        with self._moving:
            if self._closed:
                return
            self._closed = True
            detach(self.version, self._observer)
            runtime = self._runtime()
            if self._by_tenant and runtime is not None:
                runtime.routes.want_tenants(self.version.name, wanted=False)
        self._observer.end()


def _check(name: str, *given: object) -> None:
    """Refuse options that are not of their types."""
    texts, count = _are_texts, lambda value: type(value) is int and value > 0
    kinds: tuple[tuple[str, Callable[[object], bool], str], ...] = (
        ("segments", texts, 'columns: ("country", "age // 10")'),
        ("steps", texts, 'steps of the program: ("standardscaler",)'),
        ("limit", count, "a whole number from 1 on"),
        ("window", count, "a number of rows from 1 on"),
        ("drift", lambda value: value is None or isinstance(value, bool), "True, False or None"),
        ("costs", lambda value: isinstance(value, bool), "True or False"),
    )
    pairs = zip(kinds, given, strict=True)
    told = ((option, value, fits(value), meaning) for (option, fits, meaning), value in pairs)
    check_values(told, "an endpoint cannot be watched like this", name)


def _check_detectors(given: Sequence[object]) -> None:
    for each in given:
        if isinstance(each, type) or not callable(getattr(each, "update", None)):
            found = f"the class {each.__name__}" if isinstance(each, type) else repr(each)[:80]
            raise ParameterError("a detector has a method `update`", found=found)


def _are_texts(given: object) -> bool:
    if not isinstance(given, Sequence) or isinstance(given, str):
        return False
    return all(isinstance(each, str) for each in given)


def _scores(answers: dict[str, Any]) -> NDArray[Any] | None:
    """The probability of the last class, or the only score."""
    for name in ("probabilities", "score"):
        found = answers.get(name)
        if isinstance(found, np.ndarray) and found.dtype.kind == "f":
            return found if found.ndim == 1 else found[:, -1]
    return None


def watches_of(version: ModelVersion) -> list[Watch]:
    """The watches of a version, for metrics."""
    return [each.watch for each in observers_of(version) if isinstance(each, _Watching)]
