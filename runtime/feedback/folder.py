"""A folder of chosen rows and of their labels, which any process may read at any time.

    answers-WHEN-PROCESS-NUMBER.parquet    rows of one version, chosen in one period
    labels-WHEN-PROCESS.jsonl              {"id": ..., "label": ..., "when": ...}, a line each

Files of rows are complete or absent, a line that was cut off is skipped, and the oldest files are
deleted where all are too large. Names of what is no column of the program begin with "@".
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from flour.core.errors import InputError, check_values
from flour.data.coerce_values import is_missing
from objectstore.atomic import write_file
from runtime.feedback.estimates import FeedbackReport, by_segment
from runtime.feedback.selection import Row
from runtime.watch.arrow_sink import arrow
from runtime.watch.rows import Table, as_objects

log = logging.getLogger("pretzel.feedback")
_FACTS = b"pretzel.feedback"
_ID = re.compile(r"[^/]+|.+/\d+")
#: No loss is beyond that of a probability as small as this.
_LEAST = float(np.finfo(np.float64).eps)


class FeedbackFolder:
    """Chosen rows with their labels, at most `most_bytes` of the newest ones."""

    def __init__(
        self,
        folder: str | Path,
        *,
        most_bytes: int = 1 << 30,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._most_bytes, self._wall = Path(folder), most_bytes, wall
        self._process, self._written = os.urandom(6).hex(), 0

    def write(self, rows: Sequence[Row], classes: Sequence[Any]) -> None:
        """Write rows of one version as a file; there are no `classes` where answers are numbers."""
        pa = arrow()
        columns = {name: _array([row[name] for row in rows]) for name in rows[0]}
        facts = {_FACTS: json.dumps({"classes": [_plain(each) for each in classes]})}
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(pa.table(columns).replace_schema_metadata(facts), sink)
        self._written += 1
        name = f"answers-{self._wall() * 1000:015.0f}-{self._process}-{self._written:06}.parquet"
        write_file(self._folder / name, [memoryview(sink.getvalue())])
        self._expire()

    def labels(self, given: object) -> int:
        """Note labels by the ids of answers, and return how many; later ones replace former ones.

        `given` is a dict, a frame with the columns "id" and "label", or a file of such (CSV or
        Parquet). Rows of a block have the id of their answer with a number: "ID/0", "ID/1". Labels
        that are None, NaN or NA, and empty cells, are not known yet, and are left out.
        """
        when = self._wall()
        plain = ((name, _plain(label)) for name, label in _pairs(given))
        known = [_checked(name, None if is_missing(label) else label) for name, label in plain]
        lines = [
            json.dumps({"id": name, "label": label, "when": when})
            for name, label in known
            if label is not None
        ]
        day = when // 86400 * 86_400_000  # a file for each day, so that they grow old
        path = self._folder / f"labels-{day:015.0f}-{self._process}.jsonl"
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(f"\n{line}" for line in lines))  # behind one that is cut off, too
        self._expire()
        return len(lines)

    def _files(self, kind: str) -> list[Path]:
        """The files of a kind, the oldest first."""
        return sorted(self._folder.glob(f"{kind}-*-*"), key=lambda each: each.name.split("-")[1:])

    def _expire(self) -> None:
        """Delete the oldest files where all are too large."""
        with suppress(FileNotFoundError):  # another process deletes them as well
            files = self._files("[al]*")
            left = sum(path.stat().st_size for path in files)
            for path in files[:-1]:
                if left > self._most_bytes:
                    left -= path.stat().st_size
                    path.unlink()

    def _known(self) -> dict[str, Any]:
        """The last label of each id."""
        found: dict[str, tuple[float, Any]] = {}
        for path in self._files("labels"):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):  # it was cut off
                    each = json.loads(line)
                    if each["when"] >= found.get(each["id"], (0.0,))[0]:
                        found[each["id"]] = each["when"], each["label"]
        return {name: label for name, (_, label) in found.items()}

    def _tables(self, labels: Mapping[str, Any]) -> Iterable[tuple[Any, list[Any]]]:
        """The rows of each file with labels that its version can answer, and its classes."""
        pa = arrow()
        for path in self._files("answers"):
            try:
                table = pa.parquet.read_table(path, memory_map=False)
                classes = json.loads(table.schema.metadata[_FACTS])["classes"]
            except FileNotFoundError:  # another process has deleted it
                continue
            except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as problem:
                log.warning("%s cannot be read: %s", path.name, type(problem).__name__)
                continue
            found = [_label(labels.get(each), classes) for each in table["@id"].to_pylist()]
            yield table.append_column("@label", _array(found)), classes

    def table(self) -> Any:
        """All rows that have a label, as a table of Arrow: columns, "@weight" and "@label".

        A sum over rows times their weights estimates that of all requests.
        """
        parts, labels = [], list[Any]()
        for table, _ in self._tables(self._known()):
            names = [name for name in table.column_names if name[:1] != "@" or name == "@weight"]
            found = table.filter(table["@label"].is_valid())
            parts.append(found.select(names))
            labels += found["@label"].to_pylist()
        if not parts:
            raise InputError("no rows were written here yet", where=str(self._folder))
        joined = arrow().concat_tables(parts, promote_options="permissive")
        return joined.replace_schema_metadata(None).append_column("@label", _array(labels))

    def report(
        self, segments: Sequence[str] = ("@version",), level: float = 0.95
    ) -> FeedbackReport:
        """Estimates for all requests, and for each of the `segments`, with intervals of a `level`.

        Segments are columns ("country"), buckets ("age // 10"), "@version" or "@reason". They
        assume that whether a chosen row gets a label does not depend on its answer.
        """
        check_values([("level", level, 0 < level < 1, "as 0.95")], "estimates have intervals", None)
        segments = (segments,) if isinstance(segments, str) else segments
        labels, parts, chosen = self._known(), list[Table](), list[str]()
        unfit = Counter[str]()
        for table, classes in self._tables(labels):
            chosen += table["@id"].to_pylist()
            labelled = table.filter(table["@label"].is_valid())
            others = table.filter(table["@label"].is_null())["@id"].to_pylist()
            unfit.update(str(labels[each])[:80] for each in others if each in labels)
            columns = {name: labelled[name].to_numpy() for name in labelled.column_names}
            if len(labelled):
                parts.append({**columns, **_judged(columns, classes)})
        unknown = len(labels.keys() - set(chosen))
        names = dict.fromkeys(name for part in parts for name in part)
        shared = {name for name in names if all(name in part for part in parts)}
        whole = {n: _joined(n, parts) for n in names if n[:1] != "@" or n in shared}
        found = by_segment(whole, segments, level) if parts else ({}, {})
        return FeedbackReport(len(chosen), len(labels), unknown, *found, unfit)


def _joined(name: str, parts: Sequence[Table]) -> Any:
    """A column of all parts; missing where one has none."""
    some = [part.get(name, as_objects([None] * len(part["@weight"]))) for part in parts]
    numbers = all(each.dtype.kind in "iuf" for each in some)
    return np.concatenate(some if numbers else [each.astype(object) for each in some])


def _judged(table: Table, classes: Sequence[Any]) -> Table:
    """The values that estimates of labelled rows are made of."""
    answers, labels = table["@answer"], table["@label"]
    sets = np.array([*table["@set"]]) if "@set" in table else None
    if not classes:
        labels = labels.astype(np.float64)
        away = answers.astype(np.float64) - labels
        made: Table = {"@mae": np.abs(away), "@rmse": away**2, "@bias": away}
        if sets is not None:  # the lower ends, then the upper ones
            low, high = sets[:, 0], sets[:, sets.shape[1] // 2]
            made["@coverage"] = ((low <= labels) & (labels <= high)).astype(np.float64)
        return made
    names = [str(each) for each in classes]
    places = np.array([names.index(str(each)) for each in labels], np.int64)
    right = [given == str(label) for given, label in zip(answers, labels, strict=True)]
    made = {"@accuracy": np.array(right, np.float64)}
    if sets is not None:
        made["@coverage"] = sets[np.arange(len(places)), places].astype(np.float64)
    if any(each is None for each in table["@score"]):
        return made
    scores = np.array([*table["@score"]], np.float64)
    if len(names) == 2:
        score, positive = scores[:, -1], (places == 1).astype(np.float64)
        made |= {"@score": score, "@positive": positive}
    if scores.shape[1] == len(names):  # probabilities, and not the scores of a decision
        own = scores[np.arange(len(places)), places]
        brier = (scores**2).sum(axis=1) - 2 * own + 1
        made["@log_loss"] = -np.log(np.clip(own, _LEAST, 1 - _LEAST))
        made["@brier"] = brier
        if len(names) == 2:
            made |= {"@brier": brier / 2, "@bias": score - positive}
    return made


def _array(values: list[Any]) -> Any:
    """Values as an array of Arrow; as texts where they are of several types."""
    pa = arrow()
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if each is None else str(each) for each in values])


def _plain(value: object) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _checked(name: object, label: object) -> tuple[str, Any]:
    """An id and its label, which can be those of an answer."""
    if not isinstance(name, str) or not _ID.fullmatch(name):
        what, hint = "this is no id of an answer", 'a text: "ID", or "ID/3" for row 3 of a block'
        raise InputError(what, found=repr(name)[:80], hint=hint)
    is_large = isinstance(label, int) and label.bit_length() > np.finfo(np.float64).maxexp
    if is_large or not isinstance(label, str | int | float | NoneType) or label == "":
        hint = "a class or a number; None if it is not known yet"
        found = "an integer beyond all floats" if is_large else repr(label)[:80]
        raise InputError("this is no label", where=name[:80], found=found, hint=hint)
    return name, label


def _label(label: str | float | None, classes: Sequence[Any]) -> Any:
    """A label as the class of its text, or without classes as a number; None if it is none."""
    if classes:
        return next((e for e in classes if e == label or str(e) == str(label)), None)
    with suppress(ValueError, OverflowError):
        number = math.nan if label is None else float(label)
        return number if math.isfinite(number) else None
    return None


def _pairs(given: object) -> Iterable[tuple[Any, Any]]:
    """Ids and labels."""
    if isinstance(given, Mapping):
        return given.items()
    if isinstance(given, str | Path):
        pa, path = arrow(), Path(given)
        texts = pa.csv.ConvertOptions(column_types={"id": pa.string()})
        try:
            if path.suffix == ".parquet":
                given = pa.parquet.read_table(path)
            else:
                given = pa.csv.read_csv(path, convert_options=texts)
        except (pa.ArrowInvalid, UnicodeDecodeError) as problem:
            hint = 'CSV or Parquet with the columns "id" and "label"'
            found = str(problem).splitlines()[0][:160]
            raise InputError(
                "this is no file of labels", where=str(path), found=found, hint=hint
            ) from None
    frame: Any = given
    try:
        columns = [frame[name] for name in ("id", "label")]
    except (KeyError, TypeError, ValueError):
        found = ", ".join(map(str, getattr(given, "column_names", [type(given).__name__])))[:160]
        hint = 'a dict by id, or the columns "id" and "label"'
        raise InputError("these are no labels", found=found, hint=hint) from None
    ids, labels = (each.to_pylist() if hasattr(each, "to_pylist") else each for each in columns)
    return zip(ids, (None if isinstance(e, str) and not e else e for e in labels), strict=True)
