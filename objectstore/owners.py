"""Owners and the digests that they hold: one small file per owner, replaced atomically.

A file that cannot be read is an error, not an empty set: freeing the parameters that its owner may
hold would lose data.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from objectstore.atomic import write_file
from objectstore.digest import combine, is_digest
from objectstore.errors import DamagedBlob

_SUFFIX = ".json"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

# Enough of a name to recognise it in a listing, short enough for every file system.
_READABLE = 48

Stamp = tuple[int, int, int]


class Owners:
    """The owner files of one store directory; parsed ones are remembered until they change."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        self._directory = directory
        self._durable = durable
        self._read: dict[str, tuple[Stamp, str, frozenset[str]]] = {}
        self.count = 0
        """Their number when they were last listed."""

    def all(self) -> dict[str, frozenset[str]]:
        """For each owner the digests it holds."""
        read = {path.name: self._entry(path) for path in self.files()}
        entries = {name: entry for name, entry in read.items() if entry is not None}
        self._read = entries
        return {owner: digests for _, owner, digests in entries.values()}

    def one(self, owner: str) -> frozenset[str]:
        """The digests this owner holds; none if there is no such owner."""
        return self.read(self.path(owner))

    def set(self, owner: str, digests: Iterable[str]) -> None:
        """Replace the digests that an owner holds."""
        text = json.dumps({"digests": sorted(digests), "owner": owner}, separators=(",", ":"))
        write_file(self.path(owner), [text.encode("ascii")], durable=self._durable)

    def remove(self, owner: str) -> None:
        """Remove an owner."""
        self.path(owner).unlink(missing_ok=True)

    def files(self) -> list[Path]:
        """The owner files."""
        with os.scandir(self._directory) as inside:
            names = sorted(each.name for each in inside if each.name.endswith(_SUFFIX))
        self.count = len(names)
        return [self._directory / name for name in names]

    def path(self, owner: str) -> Path:
        """The file of an owner: readable, and distinct for distinct names."""
        readable = _UNSAFE.sub("_", owner)[:_READABLE].lstrip(".")
        return self._directory / f"{readable}-{combine(owner)}{_SUFFIX}"

    def read(self, path: Path) -> frozenset[str]:
        """The digests in one owner file; none if it is gone."""
        entry = self._entry(path)
        return entry[2] if entry else frozenset()

    def problem(self, path: Path) -> str:
        """The problem with an owner file; empty if it is valid."""
        try:
            self._parse(path)
        except FileNotFoundError:
            return ""
        except DamagedBlob as error:
            return f"{error.what}: {error.found}"
        return ""

    def _entry(self, path: Path) -> tuple[Stamp, str, frozenset[str]] | None:
        try:
            # Changes whenever the file is replaced.
            status = path.stat()
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
            cached = self._read.get(path.name)
            return cached if cached and cached[0] == stamp else (stamp, *self._parse(path))
        except FileNotFoundError:
            return None  # released meanwhile, or there never was one

    def _parse(self, path: Path) -> tuple[str, frozenset[str]]:
        text = path.read_bytes()
        try:
            entry = json.loads(text)
            owner, digests = entry["owner"], frozenset(entry["digests"])
            valid = all(map(is_digest, digests)) and self.path(owner).name == path.name
        except (ValueError, TypeError, KeyError, RecursionError):
            valid = False
        if not valid:
            raise DamagedBlob(
                "an owner file is damaged, so nothing can be freed",
                where=str(path),
                found=f"{text[:60]!r}",
                hint="fsck(repair=True) moves it out of the way; then hold again what it held",
            )
        return owner, digests
