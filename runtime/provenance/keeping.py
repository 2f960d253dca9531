"""Keeps answers: a call appends to a queue, and a thread writes to the log of a folder.

answers-00000001.log    the answers, see runtime.provenance.log
plans/DIGEST.pretzel    each plan that has answered; DIGEST.json has what is known of it
salt                    what subjects are hashed with
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import oven
from flour.core.errors import FlourError, ParameterError, check_values, is_number
from flour.data.arrow_strings import with_texts
from flour.data.batch import Batch
from flour.data.coerce import coerce
from flour.data.frames import frame_columns
from objectstore import Closing
from objectstore.atomic import unwritable, write_file
from runtime.errors import BadCall
from runtime.provenance.log import AnswerLog
from runtime.provenance.values import content_of, id_of, packed
from runtime.provenance.why import Plans, Why
from runtime.repeated import Repeated
from runtime.routing.shadows import kept
from runtime.service.private import column_names, drop, without
from runtime.service.routes import ServingRuntime
from runtime.service.version import ModelVersion

log = logging.getLogger("pretzel.provenance")
_EVERY, _END_SECONDS = 0.2, 30.0
#: Rows that may wait to be written.
_MOST = 1 << 16
#: Characters to which the names of requests are cut.
_LONGEST = 500
_SALT_BYTES = 32
_LIBRARIES = ("numpy", "numba", "llvmlite", "sklearn", "lightgbm", "xgboost", "onnx")
_DROP, _HASH = "drop", "hash"


class Kept(dict[str, Any]):
    """Answers by name, with the id under which they are kept; None where they are not."""

    __slots__ = ("id",)

    def __init__(self, answers: Mapping[str, Any], answer: str | None) -> None:
        super().__init__(answers)
        self.id = answer


class _WaitingAnswer(NamedTuple):
    """An answer that waits to be written."""

    answer: str
    when: float
    version: ModelVersion
    rows: Any
    outputs: Any
    answers: Any
    request: str
    change: int | None


class AnswerKeeper(Closing):
    """Keeps the answers of an endpoint in a folder, for `runtime.why`, until it is closed.

    `inputs` are kept with them, for a share `sample` of calls, at most `most_bytes` of the newest,
    and for about `seconds`. `erase` deletes by the column `subject`. Values of private columns are
    dropped, or with `private="hash"` hashed by a key that changes each `rotate` seconds.
    """

    def __init__(  # noqa: PLR0913 (each has a default)
        self,
        runtime: ServingRuntime,
        name: str,
        folder: str | Path,
        *,
        inputs: bool = True,
        sample: float = 1.0,
        most_bytes: int = 1 << 30,
        seconds: float | None = None,
        subject: str | None = None,
        private: str = _DROP,
        rotate: float = 86400.0,
    ) -> None:
        known = column_names(runtime.endpoints.find(name).inputs)
        place = isinstance(folder, str | Path)
        options = (
            ("folder", folder, place and not unwritable(Path(folder)), "a directory to write in"),
            ("inputs", inputs, isinstance(inputs, bool), "True or False"),
            ("sample", sample, _is_positive(sample) and sample <= 1, "a share of calls"),
            ("most_bytes", most_bytes, _is_positive(most_bytes), "bytes of all files"),
            ("seconds", seconds, seconds is None or _is_positive(seconds), "seconds, or None"),
            ("subject", subject, subject is None or subject in known, "a column of the program"),
            ("private", private, private in {_DROP, _HASH}, '"drop" or "hash"'),
            ("rotate", rotate, _is_positive(rotate), "seconds"),
        )
        check_values(options, "answers cannot be kept like this", name)
        if runtime.routes.keeper(name) is not None:
            raise BadCall(
                "answers of this endpoint are kept already",
                where=name,
                hint="close() what keeps them first",
            )
        self._runtime, self._name, self._folder = runtime, name, Path(folder)
        self._inputs, self._sample, self._subject = inputs, sample, subject
        self._hide = drop if private == _DROP else RotatingHash(rotate)
        self._log = AnswerLog(self._folder, id_of, most_bytes, seconds)
        (self._folder / "plans").mkdir(exist_ok=True)
        self._plans = Plans(self._folder / "plans", runtime)
        try:
            self._salt = _salt(self._folder / "salt", begun=len(self._log) > 0, subject=subject)
        except BaseException:
            self._log.close()
            raise
        self._token, self._numbers = os.urandom(6).hex(), count(1)
        self._queue: deque[_WaitingAnswer] = deque()
        self._waiting, self._owed = 0, 0.0
        self._described: set[str] = set()
        #: Answers that were not kept: too many came at once, or they could not be written.
        self.dropped = self.failed = 0
        self._failures = Repeated()
        self._writing, self._ended, self._closed = threading.Lock(), threading.Event(), False
        self._blind: set[str] = set()
        #: True while the disk takes nothing: one call in each turn of the thread tries it again.
        self._stuck = False
        self._thread = threading.Thread(target=self._run, name="pretzel-answers", daemon=True)
        self._thread.start()
        runtime.routes.put_keeper(name, self)

    # --- on the callers' threads ---------------------------------------------------------------

    def new_id(self) -> str:
        """An id that no other answer has."""
        return f"{self._token}-{next(self._numbers)}"

    def note(
        self,
        version: ModelVersion,
        rows: object,
        outputs: object,
        answers: Mapping[str, Any],
        headers: Mapping[str, str],
        answer: str | None = None,
    ) -> Kept:
        """Keep an answer, if it is in the sample; `rows` are a copy that nobody changes."""
        self._owed += self._sample
        if self._owed < 1.0:
            return Kept(answers, None)
        self._owed -= 1.0
        if self._waiting >= (1 if self._stuck else _MOST):
            self.dropped += 1
            return Kept(answers, None)
        name = answer or self.new_id()
        self._waiting += _rows(answers)
        request = headers.get("x-request-id", "")[:_LONGEST] if headers else ""
        change = self._runtime.routes.change(self._name)
        self._queue.append(
            _WaitingAnswer(
                name, time.time(), version, rows, outputs, kept(answers), request, change
            )
        )
        return Kept(answers, None if self._stuck else name)

    # --- on a thread of its own ----------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended.wait(_EVERY):
            self.flush()

    def flush(self) -> None:
        """Write what has come so far."""
        with self._writing:
            if self._closed:
                return
            records = []
            self._waiting = 0  # what is in the queue now is taken out at once
            for _ in range(len(self._queue)):
                noted = self._queue.popleft()
                try:
                    if self._has_subject(noted.version):
                        records.append((noted.answer, self._record(noted)))
                except OSError as problem:  # in writing its plan
                    self._cannot_write(1, problem)
                except Exception as problem:  # noqa: BLE001 (a thread that has to go on)
                    self.failed += 1
                    if self._failures.is_due(type(problem)):
                        log.warning("an answer could not be kept: %s", type(problem).__name__)
            try:
                self._log.append(records)
            except OSError as problem:
                self._cannot_write(len(records), problem)
            else:
                self._stuck = self._stuck and not records

    def _cannot_write(self, answers: int, problem: OSError) -> None:
        self._stuck = True
        self.failed += answers
        if self._failures.is_due(problem.errno):
            log.warning("answers of %s cannot be written: %s", self._name, problem.strerror)

    def _has_subject(self, version: ModelVersion) -> bool:
        """True if rows of a version say whose they are; its answers are not kept otherwise."""
        if self._subject is None or self._subject in column_names(version.inputs):
            return True
        self.failed += 1
        if version.owner not in self._blind:
            self._blind.add(version.owner)
            log.warning(
                "answers of %s are not kept: it has no column %r, by which they are erased",
                version.owner,
                self._subject,
            )
        return False

    def _record(self, noted: _WaitingAnswer) -> bytes:
        version = noted.version
        self._describe(version)
        batch = noted.rows
        whole = batch.data if isinstance(batch, Batch) else batch
        if not isinstance(batch, Batch):
            batch = version.reader.read(batch)
        rows = with_texts(batch.data)
        if hasattr(rows, "columns"):
            columns = coerce(version.inputs, batch.block)[0]  # of a frame: as the plan reads it
            rows = next(iter(columns.values())) if len(columns) == 1 else columns
        batch = batch._replace(data=rows)
        private = version.private
        shown = without(rows, version, self._hide) if private else rows
        record = {
            "when": noted.when,
            "endpoint": version.name,
            "version": version.version,
            "digest": version.digest,
            "change": noted.change,
            "request": noted.request,
            "outputs": noted.outputs,
            "whole": self._inputs and not private,
            "inputs": shown if self._inputs else None,
            "kind": batch.kind.name,
            "single": batch.single,
            "subjects": self._subjects(version, batch, whole),
            "answers": dict(noted.answers),
        }
        name = noted.answer.encode()
        return bytes((len(name),)) + name + packed(record)

    def _subjects(self, version: ModelVersion, batch: Batch, whole: object) -> list[str]:
        """The hashes of the subjects of rows, of which `whole` has what no operator reads, too."""
        subject = self._subject
        if subject is None:
            return []
        listed = batch.data if isinstance(batch.data, list) else [batch.data]
        if all(isinstance(row, Mapping) and subject in row for row in listed):
            values = [row[subject] for row in listed]
        elif subject in (named := frame_columns(whole) or {}):
            values = [named[subject]]
        else:  # a frame, or rows whose values have no names
            columns = coerce(version.inputs, batch.block)[0]
            found = columns if subject in columns else next(iter(columns.values()))
            values = [found[subject]]
        every = [one for value in values for one in np.atleast_1d(np.asarray(value, object))]
        return sorted({self._hashed(one) for one in every})

    def _hashed(self, key: object) -> str:
        plain = key.item() if isinstance(key, np.generic) else key
        if isinstance(plain, bool) or (isinstance(plain, float) and plain.is_integer()):
            # 17 and 17.0 are one subject, and a column of numbers reads True as 1.
            plain = int(plain)
        return hmac.new(self._salt, str(plain).encode(), hashlib.sha256).hexdigest()[:32]

    def _describe(self, version: ModelVersion) -> None:
        """Write a plan, and what is known of it, beside its first answer."""
        if version.digest in self._described:
            return
        path = self._folder / "plans" / f"{version.digest}.json"
        facts = {**_facts(version), "saved": self._saved(version, path.with_suffix(".pretzel"))}
        write_file(path, [json.dumps(facts, indent=1, default=str).encode()])
        self._described.add(version.digest)

    def _saved(self, version: ModelVersion, path: Path) -> bool:
        """True if the plan is in the folder; some cannot be saved."""
        plan = version.plan
        try:
            if plan is None and version.residence.path is not None:
                plan = oven.load(version.residence.path)
            if plan is not None and not path.exists():
                plan.save(path, training={})  # it is beside it
        except (FlourError, OSError) as problem:
            if self._failures.is_due(version.owner):
                why = getattr(problem, "strerror", None) or type(problem).__name__
                log.warning("the plan of %s is not kept with its answers: %s", version.owner, why)
        return path.exists()

    # --- asking ----------------------------------------------------------------------------------

    def why(self, answer: str) -> Why | None:
        """The record of an answer; None if it is not here."""
        self.flush()
        record = self._log.find(answer)
        return None if record is None else Why(answer, content_of(record), self._plans)

    def erase(self, key: object) -> int:
        """Delete all answers to rows of a subject, with all rows of the same calls; how many."""
        if self._subject is None:
            raise ParameterError("answers are kept without a subject", hint='subject="customer"')
        if self._closed:
            raise BadCall(
                "these answers are no longer kept here",
                where=self._name,
                hint="keep(name, folder, subject=...) opens their folder again",
            )
        self.flush()
        meant, unknown = self._hashed(key), count()

        def is_meant(record: bytes) -> bool:
            subjects = content_of(record)["subjects"]
            if not subjects:
                next(unknown)
            return meant in subjects

        try:
            removed = self._log.remove(is_meant)
        except OSError as problem:
            raise BadCall(
                "not all answers of this subject could be erased: a file cannot be written anew",
                where=self._name,
                found=problem.strerror,
                hint="make room on the disk, and erase again; answers that are left stay readable",
            ) from problem
        if without_any := next(unknown):
            log.warning(
                "%d answers were kept without a subject: whose they are is not known, and "
                "they were not erased",
                without_any,
            )
        return removed

    def __len__(self) -> int:
        return len(self._log)

    def close(self) -> None:
        """Keep no more answers, and write what has come."""
        if self._runtime.routes.keeper(self._name) is self:
            self._runtime.routes.put_keeper(self._name, None)
        self.end()

    def end(self) -> None:
        """Write what has come: the runtime is closed, or another keeps the answers."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            log.error("%s: the last answers are not kept: the disk does not take them", self._name)
            return
        self.flush()
        self._closed = True
        self._log.close()


class RotatingHash:
    """Hashes values with a key that is only in memory, and another one after some time."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._until, self._key = seconds, 0.0, b""

    def __call__(self, value: object) -> str:
        """The hash that stands for a value."""
        now = time.monotonic()
        if now >= self._until:
            self._key, self._until = os.urandom(32), now + self._seconds
        return hmac.new(self._key, str(value).encode(), hashlib.sha256).hexdigest()[:16]


def _is_positive(value: object) -> bool:
    """True if this is a finite number above 0."""
    return is_number(value) and bool(value)


def _rows(answers: Mapping[str, Any]) -> int:
    for value in answers.values():
        return len(value) if isinstance(value, np.ndarray) and value.ndim else 1
    return 1


def _salt(path: Path, *, begun: bool, subject: str | None) -> bytes:
    """The key of subjects; where answers have `begun`, a lost one is not made anew."""
    known = path.read_bytes() if path.exists() else b""
    if len(known) == _SALT_BYTES:
        return known
    if begun and subject is None:
        return known  # nothing is hashed
    if begun:
        raise BadCall(
            "the salt of these answers is gone or damaged: none would be found by its subject",
            where=str(path),
            found=f"{len(known)} bytes",
            hint="put the file back, or keep answers in a new folder and delete this one",
        )
    write_file(path, [os.urandom(_SALT_BYTES)])
    path.chmod(0o600)
    return path.read_bytes()


def _facts(version: ModelVersion) -> dict[str, Any]:
    """Facts about a version's plan: parameters, types, where it was imported, libraries."""
    plan = version.plan
    flow = None if plan is None else plan.flow
    origins = {} if flow is None else flow.origins()
    places = dict.fromkeys(str(origin) for every in origins.values() for origin in every)
    parameters = () if plan is None else plan.program.parameters()
    found = {name: sys.modules[name] for name in _LIBRARIES if name in sys.modules}
    told = {name: each for name, each in version.training.items() if name != "reference"}
    if isinstance(told.get("columns"), Mapping):
        private = version.private
        told["columns"] = {n: each for n, each in told["columns"].items() if n not in private}
    return {
        "digest": version.digest,
        "file": None if version.residence.path is None else version.residence.path.name,
        "inputs": {name: str(kind) for name, kind in version.inputs.items()},
        "outputs": {name: str(kind) for name, kind in version.kinds.items()},
        "parameters": sorted({each.digest for each in parameters}),
        "imported": list(places),
        "training": told or None,
        "libraries": {name: str(getattr(it, "__version__", "")) for name, it in found.items()},
    }
