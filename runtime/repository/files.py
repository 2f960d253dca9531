"""Safe access to the folder of models: regular files inside it, of bounded size and number.

The folder may change while it is read, and may be hostile: links that lead out of it or in circles,
devices, endless files, names that are not text. Only regular files inside the folder are read, up
to a size; each is opened once and checked by its descriptor.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from flour.language.graph_file import is_graph_file
from objectstore import system
from runtime.repository.errors import NoFolder, NotSettled, RepositoryError, UnsafePath

MAX_BYTES = 4 << 30
"""Most bytes of one model's file."""
MAX_CONFIG = 1 << 20
"""Most bytes of one configuration file."""
MAX_ENTRIES = 200_000
"""Most entries that are visited in one walk."""

_CHUNK = 1 << 20
_DIGITS, _RUNS = "0123456789", re.compile("[0-9]+|[^0-9]+")
#: A gentle walk sleeps this long after this many folders, as requests wait for the GIL meanwhile.
_BREATH, _BREATH_SECONDS = 8, 0.0005
_ENDINGS = (
    *("~", ".tmp", ".part", ".partial", ".swp", ".crdownload", ".lock"),
    *(".md", ".rst", ".py", ".pyc", ".yaml", ".yml", ".toml", ".log"),
)


@dataclass(frozen=True, slots=True)
class Print:
    """A file's identity and state without reading it: path, inode, size and times.

    `changed_ns` may be set by whoever copies a file; `status_ns` is the file system's own.
    """

    path: str
    inode: int
    size: int
    changed_ns: int
    status_ns: int = 0


class Folder:
    """A directory whose files are read, and no others."""

    def __init__(self, root: str | Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.root, self.max_bytes = Path(root).absolute(), max_bytes
        self._real = Path(os.path.realpath(self.root))
        self._looked = self._folders = 0
        self._known: dict[Path, bool] = {}
        self._gentle = False

    def check(self, *, gentle: bool = False) -> None:
        """Start a new walk; raise unless the folder exists and can be read.

        A `gentle` walk pauses regularly to let other threads run.
        """
        self._looked = self._folders = 0
        self._known = {self.root: True}
        self._gentle = gentle
        try:
            with os.scandir(self.root):
                return
        except OSError as problem:
            raise NoFolder(
                "this folder cannot be read",
                where=str(self.root),
                found=_why(problem),
                hint="`pretzel import MODEL --into DIR` makes a folder of models",
            ) from problem

    def entries(self, folder: Path) -> list[Path]:
        """The entries of a folder by name, without hidden and half-written ones."""
        paths: list[Path] = []
        self._folders += 1
        if self._gentle and not self._folders % _BREATH:
            time.sleep(_BREATH_SECONDS)
        try:
            with os.scandir(folder) as inside:
                for entry in inside:
                    self._looked += 1
                    if self._looked > MAX_ENTRIES:
                        raise RepositoryError(
                            "this folder is too large",
                            where=str(folder),
                            found=f"more than {MAX_ENTRIES:,} entries",
                        )
                    if not is_ignored(entry.name):
                        paths.append(folder / entry.name)
        except FileNotFoundError:
            return []  # removed meanwhile
        except OSError as problem:
            raise RepositoryError(
                "this folder cannot be read", where=str(folder), found=_why(problem)
            ) from problem
        return sorted(paths, key=lambda path: natural(path.name))

    def is_folder(self, path: Path) -> bool:
        """True if this is a folder inside ours."""
        return path.is_dir() and self.holds(path)

    def holds(self, path: Path) -> bool:
        """True if a path of this walk stays inside the folder; `open` checks again."""
        if path not in self._known:
            plain = not path.is_symlink() and self._known.get(path.parent, False)
            self._known[path] = plain or self._inside(path)
        return self._known[path]

    def is_file(self, path: Path) -> bool:
        """True if there is a file of this name, safe or not."""
        return path.is_file()

    def _inside(self, path: Path) -> bool:
        real = Path(os.path.realpath(path))
        return real == self._real or self._real in real.parents

    def guard(self, path: Path) -> None:
        """Raise unless the path stays inside the folder."""
        if not self._inside(path):
            raise UnsafePath(
                "this path leads outside the folder",
                where=shown(path),
                found=shown(Path(os.path.realpath(path))),
                hint="models, and links to them, must stay inside the folder that is served",
            )

    def stamp(self, *paths: Path) -> tuple[Print, ...]:
        """The prints of these files; missing files are left out."""
        return tuple(mark for path in paths for mark in self._stamp(path))

    def _stamp(self, path: Path) -> Iterator[Print]:
        try:
            status = path.stat()
        except OSError:
            return
        times = status.st_mtime_ns, status.st_ctime_ns
        yield Print(str(path), status.st_ino, status.st_size, *times)

    @contextmanager
    def open(self, path: Path, limit: int | None = None) -> Iterator[BinaryIO]:
        """An ordinary file inside the folder, for reading; NotSettled if it changed meanwhile."""
        self.guard(path)
        limit = self.max_bytes if limit is None else limit
        try:
            descriptor = os.open(path, system.READ)
        except OSError as problem:
            raise RepositoryError(
                "this file cannot be read", where=shown(path), found=_why(problem)
            ) from problem
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise UnsafePath("this is not a regular file", where=shown(path))
        with os.fdopen(descriptor, "rb") as file:
            if status.st_size > limit:
                raise _too_large(path, status.st_size, limit)
            yield file
            after = os.fstat(descriptor)
            if (status.st_size, status.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise NotSettled("this file changed while it was read", where=shown(path))

    def read(self, path: Path, limit: int | None = None) -> bytes:
        """The whole content of a file."""
        limit = self.max_bytes if limit is None else limit
        with self.open(path, limit) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise _too_large(path, len(data), limit)
        return data

    def read_text(self, path: Path) -> str:
        """The text of a configuration file."""
        try:
            return self.read(path, MAX_CONFIG).decode("utf-8-sig")
        except UnicodeDecodeError as problem:
            raise RepositoryError(
                "this file is not UTF-8 text", where=f"{shown(path)}, byte {problem.start}"
            ) from None

    def chunks(self, path: Path) -> Iterator[bytes]:
        """The content of a file in chunks."""
        left = self.max_bytes
        with self.open(path) as file:
            while chunk := file.read(_CHUNK):
                left -= len(chunk)
                if left < 0:
                    raise _too_large(path, self.max_bytes - left, self.max_bytes)
                yield chunk


def _too_large(path: Path, size: int, limit: int) -> RepositoryError:
    return RepositoryError(
        "this file is too large",
        where=shown(path),
        found=f"{size:,} bytes, at most {limit:,} are read",
    )


def is_ignored(name: str) -> bool:
    """True if this is not part of a repository: hidden, half-written, or a note beside a model."""
    low = name.lower()
    if is_graph_file(low):
        return low.startswith((".", "_"))
    return low.startswith((".", "_")) or low.endswith(_ENDINGS) or low == "lost+found"


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def shown(path: str | Path) -> str:
    """A path as valid text on one line: bytes that are no UTF-8, and control signs, are escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return _CONTROL.sub(lambda sign: repr(sign[0])[1:-1], text)


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key that puts version 10 after version 9."""
    parts = [
        (0, int(text), text) if text[0] in _DIGITS and len(text) < 19 else (1, 0, text)
        for text in _RUNS.findall(name)
    ]
    return tuple(parts) or ((1, 0, ""),)


def _why(problem: OSError) -> str:
    return problem.strerror or type(problem).__name__
