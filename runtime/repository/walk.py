"""Which layout each part of a folder has; every part may have another."""

from __future__ import annotations

import os
from pathlib import Path

from flour.core.errors import FlourError
from runtime.repository import layout_mlserver, layout_own, layout_triton
from runtime.repository.files import Folder
from runtime.repository.listing import Findings, Scan

MAX_DEPTH = 8
"""Of folders with MLServer's settings, which may be anywhere."""


def scan(folder: Folder, *, gentle: bool = False) -> Scan:
    """Everything in a folder that is a model, or should be."""
    folder.check(gentle=gentle)
    into = Findings()
    if not _special(folder, folder.root, into):
        for entry in folder.entries(folder.root):
            try:
                _entry(folder, entry, into)
            except OSError as problem:  # it went while we looked, or may not be looked at
                into.trouble(entry.name, "", entry, problem.strerror or type(problem).__name__)
    return into.scan()


def _entry(folder: Folder, entry: Path, into: Findings) -> None:
    if entry.is_dir():
        _below(folder, entry, into, frozenset())
    elif entry.is_file() or entry.is_symlink():
        layout_own.file(folder, entry, into)


def _special(folder: Folder, place: Path, into: Findings) -> bool:
    """Read a folder that says itself what it is; whether it does."""
    if folder.is_file(place / layout_mlserver.SETTINGS):
        layout_mlserver.model(folder, place, into)
    elif folder.is_file(place / layout_triton.CONFIG):
        layout_triton.model(folder, place, into)
    else:
        return False
    return True


def _below(folder: Folder, place: Path, into: Findings, above: frozenset[str]) -> None:
    """A folder in the folder; `above` are those it is in, as links may lead in circles."""
    real = os.path.realpath(place)
    if not folder.is_folder(place):
        into.trouble(place.name, "", place, "this link leads out of the folder")
    elif real not in above and len(above) < MAX_DEPTH:
        try:
            _look(folder, place, into, above | {real})
        except FlourError as problem:
            into.trouble(place.name, "", place, problem)


def _look(folder: Folder, place: Path, into: Findings, above: frozenset[str]) -> None:
    if not _special(folder, place, into):
        inner = [each for each in folder.entries(place) if each.is_dir()]
        special = [each for each in inner if _has_settings(folder, each, MAX_DEPTH - len(above))]
        if special:
            for each in inner:
                _below(folder, each, into, above)
        else:
            layout_own.named_folder(folder, place, into)


def _has_settings(folder: Folder, place: Path, depth: int) -> bool:
    """Whether there are settings of other servers in a folder, or somewhere below it."""
    for settings in (layout_mlserver.SETTINGS, layout_triton.CONFIG):
        if folder.is_file(place / settings):
            return True
    if depth <= 0 or not folder.is_folder(place):
        return False
    inner = (each for each in folder.entries(place) if each.is_dir() and not each.is_symlink())
    return any(_has_settings(folder, each, depth - 1) for each in inner)
