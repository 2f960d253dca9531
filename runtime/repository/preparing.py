"""Prepares models: from a file to a verified plan that can be registered.

`LocalImporter` does so in this process. `IsolatedImporter` (runtime/repository/isolated_import.py)
uses another process, as importers and libraries read untrusted files: a crash there does not affect
this one.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from flour.core.callables import allowing
from objectstore import Explained
from runtime.repository import formats, sample
from runtime.repository.errors import NoRoom
from runtime.repository.files import Folder, shown
from runtime.repository.listing import FolderModel
from runtime.repository.staging import Staging
from runtime.service.private import private_columns

#: Errors that are about the machine at the moment, not about the model.
_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS}


class Trust(NamedTuple):
    """Code that may run while models are imported."""

    pickle: bool
    modules: Sequence[str]
    """Modules that coroutines of graphs are found in."""


class LocalImporter:
    """Prepares in this process."""

    def __init__(self, folder: Folder, staging: Staging, trust: Trust, *, exact: bool) -> None:
        self._folder, self._staging = folder, staging
        self._trust, self._exact = trust, exact

    def prepare(self, model: FolderModel, current: Path | None) -> Path:
        """The file of the model's plan, verified."""
        try:
            with allowing(self._trust.modules):
                return self._stage_and_verify(model, current)
        except OSError as problem:
            if problem.errno not in _PASSING:
                raise
            raise NoRoom(
                "there is not enough disk space or memory to import it",
                where=shown(model.path),
                found=problem.strerror,
                hint="it is tried again whenever the folder is looked at",
            ) from problem

    def _stage_and_verify(self, model: FolderModel, current: Path | None) -> Path:
        staged = self._staging.bring(
            self._folder, model, trust_pickle=self._trust.pickle, exact=self._exact
        )
        if model.form == formats.GRAPH or (staged == current and "private" not in model.notes):
            return staged
        plan = self._staging.load(staged, model)
        private_columns(model.notes, plan.inputs, f"{model.name}@{model.version}")
        if staged != current:
            rows = None if model.rows is None else self._folder.read(model.rows, sample.MAX_BYTES)
            where = shown(model.path if model.rows is None else model.rows)
            sample.check(plan, rows, where)
        return staged

    def close(self) -> None:
        """Nothing to release."""


def error_parts(problem: BaseException) -> dict[str, str]:
    """An error's parts, for another process."""
    if not isinstance(problem, Explained):
        kind = type(problem).__name__
        return {"kind": kind, "what": kind, "found": str(problem)[:300]}  # it may quote data
    parts = {name: getattr(problem, name) for name in ("what", "where", "found", "hint")}
    return {"kind": type(problem).__name__} | {name: text for name, text in parts.items() if text}
