"""Images of saved plans in the code cache, by the plan's file: read when the file is loaded again.

The key is the digest of everything that the file says but its payloads (whose digests it has), of
this release, and of what machine code depends on. An image is trusted as machine code is, so it is
kept where machine code is, by the same rules: see oven.compiler.cache. A plan's file never holds
one. Where anything is in doubt, the plan is loaded as if it were the first time.
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
from typing import NamedTuple

import numpy as np

import flour
import objectstore
from objectstore import combine, layout
from oven.compiler import cache as code

MOST_BYTES = 256 << 20
"""Of all images together; some kilobytes for each plan of a file."""

LARGEST = MOST_BYTES // 16
"""Bytes of an image: larger ones would push too many others out of the cache."""

_MAGIC = b"PRETZELI"
_CHECK = 16
_START = len(_MAGIC) + _CHECK
# Between two checks of the size: a check reads the whole directory.
_WRITES_A_LOOK, _BYTES_A_LOOK = 1024, LARGEST
_unseen = [_WRITES_A_LOOK, 0]
_lock = threading.Lock()


class Entry(NamedTuple):
    """The key of a plan's file, and its image, if there is one."""

    name: bytes
    image: bytes | None


def find(buffer: layout.Container, derived: str = "") -> Entry | None:
    """The entry of a file, or of a plan `derived` from its own; None for what is no plan's file."""
    head = layout.head(buffer)
    return None if head is None else look(head + derived.encode())


def look(about: bytes, above: str = "") -> Entry:
    """The entry of what is told apart by these bytes.

    `above` is a folder of modules that it depends on besides those below this one.
    """
    state = _release(above).copy()
    state.update(about)
    name = state.digest()
    try:
        data = code.read_entry(_path(name)) if code.trusted(code.directory()) else b""
    except OSError:
        data = b""
    body = data[_START:]
    whole = data[:_START] == _MAGIC + code.checksum(body)
    return Entry(name, body if whole else None)


def write(name: bytes, image: bytes) -> None:
    """Write a file's image unless it is too large; a full disk costs only speed."""
    if len(image) > LARGEST:
        return
    if not code.write_entry(_path(name), _MAGIC + code.checksum(image) + image):
        return
    with _lock:
        _unseen[:] = _unseen[0] + 1, _unseen[1] + len(image)
        due = _unseen[0] > _WRITES_A_LOOK or _unseen[1] >= _BYTES_A_LOOK
        if due:
            _unseen[:] = 0, 0
    if due:
        evict(MOST_BYTES - _BYTES_A_LOOK)


def evict(most: int) -> None:
    """Drop the images not used for longest until the rest take at most `most` bytes."""
    code.drop_oldest(list(code.files(_folder())), most)


def _folder() -> Path:
    return code.directory() / "images"


def _path(name: bytes) -> Path:
    text = name.hex()
    return Path(f"{_folder()}/{text[:2]}/{text}.image")


@cache
def _release(above: str) -> blake2b:
    """The part of an image's key besides the file: this release on this machine.

    Sources are compared by size and time of writing, as Python does for its own cache.
    """
    state = blake2b(digest_size=16)
    # Tables of characters are the running Python's, and numpy packs what they are made of.
    about = (code.toolchain(), sys.version, unicodedata.unidata_version, np.__version__)
    state.update(combine(*about, "\n".join(_sources(above))).encode("ascii"))
    return state


def _sources(above: str) -> Iterator[str]:
    """Each module that a plan is made by."""
    ours = (str(Path(str(package.__file__)).parent) for package in (flour, objectstore))
    for folder in (str(Path(__file__).parent.parent), *ours, *filter(None, [above])):
        yield from _modules(folder, "")


def _modules(folder: str, within: str) -> Iterator[str]:
    """Path, size and time of each module: without `Path`, which takes most of the time."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        name = within + entry.name
        if name.endswith(".py"):
            state = entry.stat()
            yield f"{name} {state.st_size} {state.st_mtime_ns}"
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _modules(entry.path, f"{name}/")
