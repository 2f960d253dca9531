"""The result of a scan: models that can be served, and problems with the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flour.core.errors import FlourError
from objectstore import Explained
from runtime.repository.errors import RepositoryError
from runtime.repository.files import Print, natural, shown
from runtime.repository.io_contract import IoContract, Plain
from runtime.service.private import redacted

_NAME = re.compile(r"[^@\s/\\\x00-\x1f\x7f\ud800-\udfff]{1,200}")
CACHE_BYTES = 1 << 20
"""Size of a model's result cache, if its configuration enables one."""
FIRST_VERSION = "1"
"""The version of a model whose layout names none."""


@dataclass(frozen=True, slots=True)
class FolderModel:
    """A model in the folder: its file, its format and the contract of its layout."""

    name: str
    version: str
    layout: str
    path: Path
    form: str
    promise: IoContract = field(default_factory=Plain)
    rows: Path | None = None
    """Rows with expected answers, checked before the model is served."""
    stamp: tuple[Print, ...] = ()
    """The prints of its files: changes when one of them does."""
    notes: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Settings for serving from its configuration, for `Runtime.register`."""

    @property
    def address(self) -> str:
        """Name and version, as in requests."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something in the folder that looks like a model and cannot be served."""

    name: str
    version: str
    where: str
    reason: str
    stamp: tuple[Print, ...] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """All models and problems of a folder."""

    models: tuple[FolderModel, ...]
    troubles: tuple[Trouble, ...]


class Findings:
    """The models and problems found so far in a walk."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str], FolderModel] = {}
        self._troubles: list[Trouble] = []

    def add(self, model: FolderModel) -> None:
        """Add a model; of two with the same name and version, the first one counts."""
        wrong = wrong_name(model.name, model.version)
        first = self._models.get((model.name, model.version))
        if wrong:
            self.trouble(model.name, model.version, model.path, wrong)
        elif first is not None:
            reason = f"{model.address} is also {shown(first.path)}; this one is left out"
            self.trouble(model.name, model.version, model.path, reason)
        else:
            self._models[model.name, model.version] = model

    def trouble(
        self,
        name: str,
        version: str,
        where: Path,
        problem: FlourError | str,
        stamp: tuple[Print, ...] = (),
    ) -> None:
        """Add a file that cannot be served, with the reason."""
        reason = problem if isinstance(problem, str) else reason_of(problem)
        self._troubles.append(Trouble(shown(name), shown(version), shown(where), reason, stamp))

    def scan(self) -> Scan:
        """The result, ordered by name and version."""
        models = sorted(
            self._models.values(), key=lambda one: (natural(one.name), natural(one.version))
        )
        return Scan(tuple(models), tuple(self._troubles))


def wrong_name(name: str, version: str) -> str:
    """Why an endpoint cannot have this name or version; empty if it can."""
    for label, text in (("name", name), ("version", version)):
        if not _NAME.fullmatch(text):
            return (
                f"{shown(text)!r} is no {label} of an endpoint: up to 200 characters of UTF-8, "
                "without spaces, slashes and '@'"
            )
    return ""


def reason_of(problem: BaseException) -> str:
    """An error in one line, for an index and a log."""
    if isinstance(problem, Explained):
        parts = (problem.what, problem.where, problem.found, problem.hint)
        return "; ".join(part for part in parts if part)
    return f"{type(problem).__name__}: {problem}"[:300]


def refusal_of(model: FolderModel, problem: Exception) -> str:
    """Why a model is not served, in one line, without values of its private columns."""
    told: BaseException = problem
    if isinstance(private := model.notes.get("private"), list) and private:
        told = redacted(problem, {}, private, data=True)  # it may be a line of verify.jsonl
    return reason_of(told) if isinstance(told, Explained) else repr(told)[:300]


_DIRECTORIES = re.compile(r"(?<![\w.~/\\-])/(?:[^\s/'\"]+/)+")


def without_directories(reason: str, root: str) -> str:
    """A reason as clients may read it: paths begin in the folder, or are only the file's name."""
    return _DIRECTORIES.sub("", reason.replace(f"{root}/", ""))


def placed(problem: RepositoryError, where: Path) -> RepositoryError:
    """The error, with this path as its place if it has none."""
    problem.where = problem.where or shown(where)
    return problem
