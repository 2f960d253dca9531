"""Walks a folder and finds its models; each subfolder may have another layout."""

from __future__ import annotations

import os
from pathlib import Path

from flour.core.errors import FlourError
from runtime.repository import layout_mlserver, layout_own, layout_triton
from runtime.repository.files import Folder
from runtime.repository.listing import Findings, Scan
from runtime.repository.notes_file import with_notes

MAX_DEPTH = 8
"""Deepest nesting of folders, as MLServer's settings may be at any depth."""


def scan(folder: Folder, *, gentle: bool = False) -> Scan:
    """All models in a folder, and problems with files that look like models."""
    folder.check(gentle=gentle)
    into = Findings()
    if not _special(folder, folder.root, into):
        for entry in folder.entries(folder.root):
            try:
                if entry.is_dir():
                    _below(folder, entry, into, frozenset())
                elif entry.is_file() or entry.is_symlink():
                    layout_own.file(folder, entry, into)
            except OSError as problem:  # removed meanwhile, or not readable
                into.trouble(entry.name, "", entry, problem.strerror or type(problem).__name__)
    return with_notes(folder, into.scan())


def _special(folder: Folder, directory: Path, into: Findings) -> bool:
    """Read a folder that has settings of another server; False if it has none."""
    if folder.is_file(directory / layout_mlserver.SETTINGS):
        layout_mlserver.model(folder, directory, into)
    elif folder.is_file(directory / layout_triton.CONFIG):
        layout_triton.model(folder, directory, into)
    else:
        return False
    return True


def _below(folder: Folder, directory: Path, into: Findings, above: frozenset[str]) -> None:
    """A subfolder; `above` are the folders that contain it, as links may lead in circles."""
    real = os.path.realpath(directory)
    if not folder.is_folder(directory):
        into.trouble(directory.name, "", directory, layout_own.LEADS_OUT)
    elif real not in above and len(above) < MAX_DEPTH:
        try:
            _read_folder(folder, directory, into, above | {real})
        except FlourError as problem:
            into.trouble(directory.name, "", directory, problem)


def _read_folder(folder: Folder, directory: Path, into: Findings, above: frozenset[str]) -> None:
    if not _special(folder, directory, into):
        inner = [each for each in folder.entries(directory) if each.is_dir()]
        special = [each for each in inner if _has_settings(folder, each, MAX_DEPTH - len(above))]
        if special:
            for each in inner:
                _below(folder, each, into, above)
        else:
            layout_own.named_folder(folder, directory, into)


def _has_settings(folder: Folder, directory: Path, depth: int) -> bool:
    """True if a folder or one below it has settings of other servers."""
    for settings in (layout_mlserver.SETTINGS, layout_triton.CONFIG):
        if folder.is_file(directory / settings):
            return True
    if depth <= 0 or not folder.is_folder(directory):
        return False
    inner = (each for each in folder.entries(directory) if each.is_dir() and not each.is_symlink())
    return any(_has_settings(folder, each, depth - 1) for each in inner)
