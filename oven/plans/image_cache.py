"""Recipes by the file they belong to, in the code cache: read when a plan is loaded again.

A recipe is found by the digest of everything a plan's file says but its payloads (which that names
by digest), of the release, and of what machine code depends on. Like machine code it is trusted,
so it is kept where machine code is, with the same rules: see oven.compiler.cache. A plan's file
never holds one. Any doubt means that the plan is loaded as if it were the first time.
"""

from __future__ import annotations

import os
import sys
import threading
import unicodedata
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import flour
import objectstore
from objectstore import layout
from objectstore.digest import combine
from oven.compiler import cache as code

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_BYTES = 256 << 20
"""Of all recipes together; some kilobytes for each plan."""

_MAGIC = b"PRETZELR"
_CHECK = 16
_WRITES_A_LOOK = 1024
_writes = [0]
_lock = threading.Lock()


def find(buffer: NDArray[np.uint8]) -> tuple[bytes, bytes | None] | None:
    """The name of a file's recipe, and the recipe if there is one; None for no plan's file."""
    head = layout.head(buffer)
    if head is None:
        return None
    name = _name(head)
    try:
        entry = code.read_entry(_path(name)) if code.trusted(code.directory()) else b""
    except OSError:
        entry = b""
    start = len(_MAGIC) + _CHECK
    body = entry[start:]
    whole = entry[:start] == _MAGIC + _checksum(body)
    return name, body if whole else None


def keep(name: bytes, recipe: bytes) -> None:
    """Write a file's recipe; a full disk costs only speed."""
    if not code.write_entry(_path(name), _MAGIC + _checksum(recipe) + recipe):
        return
    with _lock:
        _writes[0] += 1
        due = _writes[0] % _WRITES_A_LOOK == 1
    if due:
        evict(MOST_BYTES)


def evict(most: int) -> None:
    """Drop the recipes not used for longest until the rest take at most `most` bytes."""
    entries = sorted(_entries(), reverse=True)  # the newest first
    total = 0
    for _, size, path in entries:
        total += size
        if total > most:
            path.unlink(missing_ok=True)


def _entries() -> Iterator[tuple[float, int, Path]]:
    for path in _folder().glob("??/*"):
        try:
            state = path.stat()
        except OSError:
            continue  # another process was faster
        yield state.st_mtime, state.st_size, path


def _folder() -> Path:
    return code.directory() / "recipes"


def _path(name: bytes) -> Path:
    text = name.hex()
    return _folder() / text[:2] / f"{text}.r"


def _name(head: bytes) -> bytes:
    state = _release().copy()
    state.update(head)
    return state.digest()


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECK).digest()


@cache
def _release() -> blake2b:
    """What a recipe depends on besides the file: this release on this machine.

    Sources are known by their size and when they were written, as Python knows them for its own
    cache.
    """
    state = blake2b(digest_size=16)
    # Tables of characters are the running Python's, and numpy packs what they are made of.
    about = (code.toolchain(), sys.version, unicodedata.unidata_version, np.__version__)
    state.update(combine(*about, *_sources()).encode("ascii"))
    return state


def _sources() -> Iterator[str]:
    above = (str(Path(str(package.__file__)).parent) for package in (flour, objectstore))
    for folder in (str(Path(__file__).parent.parent), *above):
        yield from _modules(folder, "")


def _modules(folder: str, within: str) -> Iterator[str]:
    """Path, size and time of each module: without `Path`, which takes most of the time."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        name = within + entry.name
        if name.endswith(".py"):
            state = entry.stat()
            yield f"{name} {state.st_size} {state.st_mtime_ns}"
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _modules(entry.path, f"{name}/")
