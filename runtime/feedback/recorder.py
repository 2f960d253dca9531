"""Chooses requests in service that are worth a label, and writes them to a folder."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import FlourError, ParameterError, check_values, is_number
from flour.core.types import FLOATS, Scalar, Type
from flour.data.batch import Batch
from flour.data.coerce import coerce
from objectstore import Closing
from objectstore.atomic import unwritable
from runtime.errors import BadCall
from runtime.feedback.folder import FeedbackFolder
from runtime.feedback.selection import Row, Selection
from runtime.provenance import Kept
from runtime.repeated import Repeated
from runtime.routing.shadows import kept
from runtime.service.private import in_tables
from runtime.service.routes import ServingRuntime
from runtime.service.version import ModelVersion
from runtime.watch.arrow_sink import arrow
from runtime.watch.observers import RowQueue
from runtime.watch.rows import Table, answers_of
from runtime.watch.sampling import Sampling

log = logging.getLogger("pretzel.feedback")
KIND = "feedback"
#: Rows that may wait until they are looked at.
_MOST = 1 << 16
#: Numbers disagree that are further apart than this part of the champion's.
_APART = 0.1


class Drifting(Protocol):
    """A watch, whose columns drift."""

    def moved(self, table: Table) -> NDArray[np.bool_]:
        """A mask of rows with values that have become more frequent."""


class _AnsweredCall(NamedTuple):
    """A call that is to be looked at."""

    answer: str
    when: float
    version: ModelVersion
    rows: Any
    answers: Mapping[str, Any]


class _CallQueue(RowQueue):
    """The calls of an endpoint, which a thread looks at several times a second."""

    feedback: Feedback

    def fold(self) -> None:
        """Look at what has come so far, and whether the period is over."""
        super().fold()
        self.feedback.turn()


class Feedback(FeedbackFolder, Closing):
    """Has rows of an endpoint written to a folder, to be labelled, until it is closed.

    Each row is chosen with the chance `sample`; where the challenger of a route disagrees, with the
    chance `disagreement`; where values of a column that alarms the `watch` have become twice as
    frequent, with the chance `drifted`. The `uncertain` least certain rows of each `period` of
    seconds are chosen in any case. At most `most_rows` others are, and their chances fall.
    """

    def __init__(  # noqa: PLR0913 (each has a default)
        self,
        runtime: ServingRuntime,
        name: str,
        folder: str | Path,
        *,
        sample: float = 0.01,
        uncertain: int = 0,
        disagreement: float = 0.0,
        drifted: float = 0.0,
        watch: Drifting | None = None,
        period: float = 60.0,
        most_rows: int = 10_000,
        most_bytes: int = 1 << 30,
        clock: Callable[[], float] = monotonic,
        seed: int | None = None,
    ) -> None:
        version = runtime.endpoints.find(name)
        name = version.name
        _outputs(version.kinds)
        chances = {"sample": sample, "disagreement": disagreement, "drifted": drifted}
        counts = {"uncertain": uncertain, "most_rows": most_rows, "most_bytes": most_bytes}
        why = unwritable(Path(folder))
        check_values(
            (
                ("folder", folder, not why, "a directory to write in"),
                *((n, v, is_number(v) and 0 <= v <= 1, "from 0 to 1") for n, v in chances.items()),
                *((n, v, type(v) is int and v >= 0, "a number") for n, v in counts.items()),
                ("period", period, is_number(period) and period > 0, "seconds"),
                ("drifted", drifted, watch is not None or not drifted, "with watch=..."),
            ),
            "feedback cannot be had like this",
            name,
        )
        if runtime.routes.keeper(name, KIND) is not None:
            hint = "close() the other one first"
            raise BadCall("this endpoint has feedback already", where=name, hint=hint)
        arrow()
        super().__init__(folder, most_bytes=most_bytes)
        self._runtime, self._name, self._watch, self._chances = runtime, name, watch, chances
        self._clock, self._period, self._until = clock, period, clock() + period
        self._ids = itertools.count(1)
        self._fresh = partial(Selection, most_rows, uncertain, np.random.default_rng(seed))
        self._selection, self._choosing = self._fresh(), Lock()
        self._private = frozenset[str]()
        #: Chosen rows that could not be written.
        self.failed, self._failures = 0, Repeated()
        self._calls = _CallQueue(lambda batch, _: batch, self._look, _MOST, Sampling(1.0))
        self._calls.feedback, self._calls.tells, self._calls.owner = self, False, name
        self._calls.start()
        runtime.routes.put_keeper(name, self, KIND)

    @property
    def dropped(self) -> int:
        """Rows that were not looked at, because too many had come before."""
        return self._calls.dropped

    # --- on the callers' threads -------------------------------------------------------------

    def new_id(self) -> str:
        """An id that no other answer has."""
        return f"{self._process}-{next(self._ids)}"

    def note(
        self,
        version: ModelVersion,
        rows: object,
        outputs: object,
        answers: Mapping[str, Any],
        headers: Mapping[str, str],
        answer: str | None = None,
    ) -> Kept:
        """Note an answer; `rows` are a copy that nobody changes."""
        if not self._runtime.routes.in_service(version):  # a shadow, whose answers nobody gets
            return Kept(answers, None)
        name, when = answer or self.new_id(), self._wall()
        first = next(iter(answers.values()), None)
        count = len(first) if isinstance(first, np.ndarray) and first.ndim else 1
        self._calls.put(
            lambda: _AnsweredCall(name, when, version, rows, kept(dict(answers))), count, 1
        )
        return Kept(answers, name)

    def why(self, answer: str) -> None:
        """Nothing: answers are kept here for their labels."""

    # --- on a thread of its own --------------------------------------------------------------

    def fold(self) -> None:
        """Choose among the calls that have come; write the rows of a period that is over."""
        self._calls.fold()

    def turn(self) -> None:
        """Write the rows of a period that is over."""
        if self._clock() >= self._until:
            self._flush()

    def _look(self, call: _AnsweredCall, _weight: int, _seconds: float) -> None:
        """Choose among the rows of a call."""
        version, rows, output, score = call.version, call.rows, *_outputs(call.version.kinds)
        held_by = next((n for n in (("set",), ("lower", "upper")) if {*n} <= {*version.kinds}), ())
        batch = rows if isinstance(rows, Batch) else version.reader.read(rows)
        answers: Any = call.answers
        if not answers.keys() >= {output, *filter(None, [score]), *held_by}:  # others were asked
            plan: Any = version.plan
            answers = plan.run(batch.block)
        found = np.atleast_1d(np.asarray(answers[output], object))
        scores = np.asarray(answers[score], np.float64).reshape(len(found), -1) if score else None
        sets = [np.asarray(answers[name], np.float64).reshape(len(found), -1) for name in held_by]
        table = cache(partial(_table, version.inputs, batch))

        def row(place: int) -> Row:
            answer = found[place]
            made = {name: values[place] for name, values in table().items()} | {
                "@id": call.answer if len(found) == 1 else f"{call.answer}/{place}",
                "@time": np.datetime64(int(call.when * 1e6), "us"),
                "@version": version.owner,
                "@classes": tuple(version.classes or ()),
                "@answer": str(answer) if version.classes else answer,
                "@score": None if scores is None else scores[place].tolist(),
            }
            return made | ({"@set": [n for e in sets for n in e[place].tolist()]} if sets else {})

        chances = np.full(len(found), float(self._chances["sample"]))
        reasons = np.full(len(found), "uniform", object)
        apart = partial(self._apart, version, output, found)
        moved = self._watch.moved if self._watch else apart
        for reason, rows_of in (("disagreement", apart), ("drifted", moved)):
            chance = self._chances[reason]
            if chance:
                mask = rows_of(table()) & (chances < chance)
                chances[mask], reasons[mask] = chance, reason
        with self._choosing:
            self._private |= in_tables(version.private, version.inputs)
            self._selection.add(chances, reasons, _margins(scores), row)

    def _apart(
        self, version: ModelVersion, output: str, answers: NDArray[Any], table: Table
    ) -> NDArray[np.bool_]:
        """Rows that the other version of the route answers otherwise."""
        route = self._runtime.routes.routed(self._name)
        others = [each for each in (route.addresses if route else ()) if each != version.owner]
        with suppress(FlourError):  # it is gone, or does not take these rows
            plan: Any = self._runtime.endpoints.find(others[0]).plan if others else None
            if plan is not None:
                other = np.asarray(answers_of(plan, table)[output])
                if version.classes:
                    return np.asarray(other.astype(object) != answers)
                own = answers.astype(np.float64)
                return np.asarray(np.abs(other - own) > _APART * np.abs(own))
        return np.zeros(len(answers), bool)

    def flush(self) -> None:
        """Choose among all calls so far, write those rows, and begin another period."""
        self._calls.fold()
        self._flush()

    def _flush(self) -> None:
        with self._choosing:
            rows, self._selection = self._selection.take(), self._fresh()
            self._until = self._clock() + self._period
        files: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            key = row["@version"], row.pop("@classes")
            shown = {name: value for name, value in row.items() if name not in self._private}
            files.setdefault((*key, *shown), []).append(shown)
        for (owner, classes, *_), some in files.items():
            try:
                self.write(some, classes)
            except Exception as problem:  # noqa: BLE001 (a thread that has to go on)
                self.failed += len(some)
                why = getattr(problem, "strerror", None) or type(problem).__name__
                if self._failures.is_due(why):
                    log.warning("rows of %s cannot be written: %s", owner, why)

    def close(self) -> None:
        """Choose no more rows, and write what was chosen."""
        if self._runtime.routes.keeper(self._name, KIND) is self:
            self._runtime.routes.put_keeper(self._name, None, KIND)
        self.end()

    def end(self) -> None:
        """Write what was chosen: the runtime is closed, or the endpoint is gone."""
        self._calls.end()
        self.flush()


def _outputs(kinds: Mapping[str, Type]) -> tuple[str, str]:
    """The output that labels are compared with, and its scores, if there are any."""
    if isinstance(kinds.get("label"), Scalar):
        return "label", next((name for name in ("probabilities", "scores") if name in kinds), "")
    for name, kind in kinds.items():
        if isinstance(kind, Scalar) and kind.dtype in FLOATS:
            return name, ""
    raise ParameterError("no output is a label or a number", found=", ".join(kinds))


def _margins(scores: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """How certain each answer is: by how far the best score is before the next one."""
    if scores is None or scores.shape[1] < 2:
        return None if scores is None else np.abs(scores[:, 0])
    two = np.partition(scores, -2, axis=1)
    return np.asarray(two[:, -1] - two[:, -2])


def _table(inputs: Mapping[str, Type], batch: Batch) -> Table:
    """The columns that a program reads of these rows."""
    columns, rows = coerce(inputs, batch.block)
    made: dict[str, Any] = {}
    for label, held in columns.items():
        wide = isinstance(held, np.ndarray) and held.ndim == 2
        inner: Any = dict(enumerate(held.T)) if wide else held
        ahead = f"{label}." if len(inputs) > 1 else ""
        named = {f"{ahead}{n}": e for n, e in inner.items()} if isinstance(inner, Mapping) else {}
        made |= named or {label: held}
    arrays = {n: np.asarray(v, object if isinstance(v, list) else None) for n, v in made.items()}
    return {name: each for name, each in arrays.items() if each.shape == (rows,)}
