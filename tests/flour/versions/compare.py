"""Imports of files that other versions wrote, held against those versions' own answers.

python -m tests.flour.versions.compare ARCHIVE...     a line for each file that is not right
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import flour
from flour.core.errors import FlourError, OtherVersionWarning
from flour.language.flow import Flow
from tests.flour.versions.train import ROWS, pipelines, tables

FOLDER = Path(__file__).parent
RIGHT, SAMPLED, REFUSED, WRONG = "right", "right with a sample", "refused", "WRONG"
#: The end of the message on a file that does not say how many columns the model reads.
UNTOLD = "does not say how many columns it was fitted on"
#: Relative to the largest answer, by the type of the version's own.
TOLERANCE = {"float64": 1e-12, "float32": 1e-6}
_OUTPUTS = {
    "predict": ("label", "value"),
    "predict_proba": ("probabilities",),
    "decision_function": ("scores",),
    "transform": ("features", "distances"),
    "value": ("value",),
    "scores": ("scores",),
}
#: Data of texts, or of texts and numbers, whose columns a file does not tell of.
_SAMPLED = ("CODES", "MIXED")
_DATA = {each.name: each.data for each in pipelines()}


class Compared(NamedTuple):
    """One file of an archive."""

    file: str
    outcome: str
    reason: str = ""


class Archive:
    """The files of one version."""

    def __init__(self, path: Path) -> None:
        with tarfile.open(path) as archive:
            read = {one.name: archive.extractfile(one) for one in archive if one.isfile()}
            self.files = {name: file.read() for name, file in read.items() if file}
        told = json.loads(self.files.pop("answers.json"))
        self.answers: dict[str, dict[str, Any]] = told["answers"]
        self.versions: dict[str, str] = told["versions"]
        #: Pipelines that the version does not know, and why.
        self.missing: dict[str, str] = told["missing"]

    def compared(self) -> Iterator[Compared]:
        """Each file, and how its import answers."""
        data = {name: None if each is None else each[:ROWS] for name, each in tables().items()}
        for file, answers in self.answers.items():
            kind = _DATA[file.partition(".")[0]]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OtherVersionWarning)
                yield self._compared(file, answers, data[kind], sampled=kind in _SAMPLED)

    def _compared(
        self, file: str, answers: dict[str, Any], rows: Any, *, sampled: bool
    ) -> Compared:
        try:
            program = _imported(file, self.files[file], rows if sampled else None)
        except FlourError as problem:
            if not sampled and problem.what.endswith(UNTOLD):
                again = self._compared(file, answers, rows, sampled=True)
                return again if again.outcome != RIGHT else again._replace(outcome=SAMPLED)
            where = f"{problem.where}: " if problem.where else ""
            found = f" ({problem.found})" if problem.found else ""
            return Compared(file, REFUSED, f"{where}{problem.what}{found}")
        wrong = _difference(program.reference(rows), answers)
        return Compared(file, WRONG if wrong else RIGHT, wrong)


def _imported(file: str, raw: bytes, sample: object) -> Flow:
    match file.rpartition(".")[2]:
        case "txt":
            return flour.from_lightgbm(raw)
        case "pkl" | "joblib" | "skops":
            from flour.sklearn.file import read_as_data

            return flour.from_sklearn(read_as_data(raw), sample)
    return flour.from_xgboost(raw)


def _difference(got: dict[str, Any], answers: dict[str, Any]) -> str:
    """The first output that differs, or that there are none."""
    seen = 0
    for method, (dtype, values) in answers.items():
        name = next((each for each in _OUTPUTS[method] if each in got), "")
        if not name:
            continue
        seen += 1
        made: NDArray[Any] = got[name]
        made = np.asarray(made.toarray() if hasattr(made, "toarray") else made)
        wanted = np.asarray(values)
        if made.size != wanted.size:
            return f"{name} of shape {made.shape} for {wanted.shape}"
        made = made.reshape(wanted.shape)
        if dtype not in TOLERANCE:
            differ = made.astype(wanted.dtype) != wanted
        else:
            wanted, made = wanted.astype(np.float64), made.astype(np.float64)
            if name == "distances":  # roots of differences, whose squares are as exact
                wanted, made = wanted**2, made**2
            near = TOLERANCE[dtype] * np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)
            same = (made == wanted) | (np.isnan(made) & np.isnan(wanted))
            differ = ~same & ~(np.abs(made - wanted) <= near)
        if differ.any():
            size = ""
            if dtype in TOLERANCE:
                size = f" by {np.abs(made - wanted)[differ].max():.3g}"
            return f"{name}: {int(differ.sum())} of {differ.size} differ{size}"
    return "" if seen else f"no output for {', '.join(answers)}"


def archives() -> list[Path]:
    """The archives in the repository, oldest version first."""
    found = FOLDER.glob("*.tar.xz")
    return sorted(found, key=lambda path: [int(n) for n in path.name.split(".")[:2]])


def packed(folder: Path) -> bytes:
    """The files of a folder as an archive, which says nothing of when and by whom."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            about = tarfile.TarInfo(path.name)
            about.size = path.stat().st_size
            archive.addfile(about, io.BytesIO(path.read_bytes()))
    return lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME)
