"""`FileStore`: parameters in a directory that all processes of a machine share.

    blobs/3f/3f2a….blob     one container with one parameter (see objectstore.layout)
    owners/name-….json      the digests that an owner holds
    quarantine/             damaged files that `fsck(repair=True)` moved away
    lock                    locked for an instant when parameters are added, held or freed

Files appear complete or not at all and never change afterwards, so they are read and mapped
without a lock. Two rules keep `gc` from freeing a parameter that another process is about to hold:
it works under the exclusive lock, and it spares parameters put within the grace period. `put` of a
stored parameter renews that period under the shared lock; `hold` checks and writes under the
exclusive one.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from objectstore import atomic, layout, system
from objectstore.archive import Archive
from objectstore.atomic import write_file
from objectstore.blob import Blob
from objectstore.digest import check_digest, combine, is_digest
from objectstore.errors import ArchiveError, DamagedBlob, MissingBlob
from objectstore.store import FsckReport, Store
from objectstore.strings import Parameter, Strings

_FILE_END = ".json"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

# Enough of a name to recognise it in a listing, short enough for every file system.
_READABLE = 48

Stamp = tuple[int, int, int]


class Owners:
    """The owner files of one store directory; parsed ones are remembered until they change.

    One that cannot be read is an error: freeing what its owner may hold would lose data.
    """

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
            names = sorted(each.name for each in inside if each.name.endswith(_FILE_END))
        self.count = len(names)
        return [self._directory / name for name in names]

    def path(self, owner: str) -> Path:
        """The file of an owner: readable, and distinct for distinct names."""
        readable = _UNSAFE.sub("_", owner)[:_READABLE].lstrip(".")
        return self._directory / f"{readable}-{combine(owner)}{_FILE_END}"

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


_SUFFIX = ".blob"

GRACE_SECONDS = 300.0
"""Seconds for which a parameter without an owner is kept: far longer than from `put` to `hold`."""

#: Freeing looks at every owner file: each call of `release` pays for about so many.
_LOOKS_A_RELEASE = 16


class FileStore(Store):
    """A store in a directory, shared by all processes of the machine; survives `kill -9`."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        verify: bool = True,
        durable: bool = True,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        """Open or create a store.

        `verify=False` trusts file contents (structure and string positions are still checked);
        `durable=False` leaves it to the kernel when to write to the disk: safe against killed
        processes, not against a power cut.
        """
        super().__init__()
        self.directory = Path(directory).absolute()
        self._verify = verify
        self._durable = durable
        self._grace = grace_seconds
        self._blobs = self.directory / "blobs"
        self._mapped: WeakValueDictionary[str, Blob | Strings] = WeakValueDictionary()
        self._sizes: dict[str, int] = {}
        #: Parameters that owners released, which may have to be freed, and after how many calls.
        self._released, self._releases = frozenset[str](), 0
        self.directory.mkdir(parents=True, exist_ok=True)
        for part in ("blobs", "owners", "quarantine"):
            atomic.make_directory(self.directory / part, durable=durable)
        self._owners = Owners(self.directory / "owners", durable=durable)

    def put(self, parameter: Parameter) -> str:
        """Store a parameter and return its digest; a stored one gets a new grace period."""
        self._check_open()
        path = self._path(parameter.digest)
        chunks = layout.encode(b"{}", [parameter])
        stored = self._renew_grace(path, layout.encoded_size(chunks))
        self._count(puts=1, hits=int(stored))
        if not stored:
            atomic.make_directory(path.parent, durable=self._durable)
            atomic.write_file(path, chunks, durable=self._durable)
        self._sizes[parameter.digest] = parameter.nbytes
        return parameter.digest

    def get(self, digest: str) -> Parameter:
        """The parameter of this digest, in the pages that all processes share.

        From now on it is the live object for its content in this process, also while copies in
        memory exist.
        """
        self._check_open()
        parameter = self._mapped.get(digest)
        if parameter is None:
            parameter = self._load(digest)
            self._mapped[digest] = parameter
        return parameter

    def share(self, parameter: Parameter) -> Parameter:
        """Put a parameter and get it back from the file: use this one and drop the other."""
        return self.get(self.put(parameter))

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, str) and is_digest(digest) and self._path(digest).exists()

    def digests(self) -> list[str]:
        """All stored digests, held or not."""
        self._check_open()
        return sorted(path.stem for path in self._files() if self._is_blob(path))

    def holdings(self) -> dict[str, frozenset[str]]:
        """For each owner the digests it holds."""
        self._check_open()
        with self._lock:
            return self._owners.all()

    def hold(self, owner: str, items: Iterable[str | Parameter]) -> None:
        """Add parameters to an owner, all or none; this is on disk when the call returns."""
        self._check_open()
        digests = {item if isinstance(item, str) else self.put(item) for item in items}
        with self._locked():
            for digest in sorted(digests):
                if not self._path(digest).exists():
                    raise self._missing(digest)
            self._owners.set(owner, self._owners.one(owner) | digests)

    def release(self, owner: str) -> int:
        """Remove an owner and free the parameters left without one; returns the bytes freed.

        Parameters put within the grace period are kept: another process may be about to hold
        them. Freeing looks at all owner files, so where there are many it is done once for several
        calls, by `close`, and by `gc` where the process was killed before.
        """
        self._check_open()
        if not self.directory.exists():  # whoever made it for a time has ended first
            return 0
        with self._locked():
            self._released |= self._owners.one(owner)
            self._owners.remove(owner)
            self._releases += 1
            many = self._releases * _LOOKS_A_RELEASE < self._owners.count
            return 0 if many else self._free_released()

    def close(self) -> None:
        """Free what was released, and stop using the store; parameters handed out stay valid."""
        if not self._closed and self._released:
            # What is not freed now, `gc` frees.
            with suppress(OSError, DamagedBlob), self._locked():
                self._free_released()
        super().close()

    def gc(self) -> int:
        """Free all parameters without an owner, and temporary files; returns the bytes freed."""
        self._check_open()
        for directory in (self.directory / "owners", *self._blob_folders()):
            atomic.sweep(directory)
        with self._locked():
            return sum(map(self._delete_expired, self._unheld(self.digests())))

    def fsck(self, *, repair: bool = False) -> FsckReport:
        """Read and verify every file. `repair` moves damaged ones to the quarantine."""
        self._check_open()
        with self._locked():
            blobs = {path: self._blob_problem(path) for path in self._files()}
            owners = {path: self._owners.problem(path) for path in self._owners.files()}
            bad = {path: problem for path, problem in {**blobs, **owners}.items() if problem}
            if repair:
                for path in bad:
                    path.replace(self.directory / "quarantine" / path.name)
            sound = owners.keys() - bad.keys()
            held = {self._name(path): self._owners.read(path) for path in sound}
            missing = [
                f"{name}: holds {digest}, which is not stored"
                for name, digests in sorted(held.items())
                for digest in sorted(digests)
                if not self._path(digest).exists()
            ]
        return FsckReport(
            checked=len(blobs),
            problems=(
                *(f"{self._name(path)}: {problem}" for path, problem in bad.items()),
                *missing,
            ),
            leftovers=sum(len(atomic.leftovers(shelf)) for shelf in self._blob_folders()),
            repaired=len(bad) if repair else 0,
        )

    def nbytes(self, digest: str) -> int:
        """The size of a stored parameter; 0 if it is not stored."""
        if digest not in self._sizes:
            try:
                self._sizes[digest] = self._open(digest).nbytes(digest)
            except (MissingBlob, DamagedBlob):
                return 0
        return self._sizes[digest] if digest in self else 0

    def __repr__(self) -> str:
        return f"FileStore({str(self.directory)!r})"

    def _path(self, digest: str) -> Path:
        check_digest(digest, repr(self))
        return self._blobs / digest[:2] / f"{digest}{_SUFFIX}"

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.directory))

    def _blob_folders(self) -> list[Path]:
        return sorted(path for path in self._blobs.iterdir() if path.is_dir())

    def _files(self) -> list[Path]:
        """All blob files, without the temporary files of writers."""
        paths = (path for shelf in self._blob_folders() for path in shelf.iterdir())
        return sorted(path for path in paths if not atomic.is_temporary(path.name))

    def _is_blob(self, path: Path) -> bool:
        return is_digest(path.stem) and path == self._path(path.stem)

    @contextmanager
    def _locked(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the store's lock; opened anew each time, so threads exclude each other."""
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            system.lock(descriptor, shared=shared)
            with self._lock:
                yield
        finally:
            os.close(descriptor)

    def _renew_grace(self, path: Path, size: int) -> bool:
        """Restart the file's grace period; returns whether it exists in full length."""
        with self._locked(shared=True):
            try:
                os.utime(path)
                return path.stat().st_size == size
            except FileNotFoundError:
                return False

    def _open(self, digest: str) -> Archive:
        path = self._path(digest)
        try:
            archive = Archive.open(path, verify=self._verify)
        except ArchiveError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise self._missing(digest) from error
            raise _damaged(error) from error
        if archive.digests() != (digest,):
            raise DamagedBlob(
                "this file holds another parameter", where=str(path), found=f"{archive.digests()}"
            )
        return archive

    def _load(self, digest: str) -> Parameter:
        archive = self._open(digest)
        self._count(maps=1)
        try:
            return archive.load(digest, preferred=True)
        except ArchiveError as error:
            raise _damaged(error) from error
        finally:
            archive.release()  # verification has read all pages, a call reads few

    def _missing(self, digest: str) -> MissingBlob:
        return MissingBlob(
            "no such parameter is stored",
            where=repr(self),
            found=digest,
            hint="put it first; parameters without an owner are freed after a while",
        )

    def _free_released(self) -> int:
        unheld, self._releases = self._unheld(self._released), 0
        freed = sum(map(self._delete_expired, unheld))
        self._released = frozenset(digest for digest in unheld if digest in self)
        return freed

    def _unheld(self, candidates: Iterable[str]) -> list[str]:
        """Those that no owner holds."""
        held = frozenset().union(*self._owners.all().values())
        return [digest for digest in candidates if digest not in held]

    def _delete_expired(self, digest: str) -> int:
        """Delete a parameter whose grace period is over; returns the bytes freed."""
        path = self._path(digest)
        try:
            if path.stat().st_mtime > time.time() - self._grace:
                return 0
            freed = self.nbytes(digest)
            path.unlink()
        except FileNotFoundError:
            return 0
        return freed

    def _blob_problem(self, path: Path) -> str:
        if not self._is_blob(path):
            return "a stray file"
        try:
            with Archive.open(path) as archive:
                archive.verify()
                return "" if archive.digests() == (path.stem,) else "holds another parameter"
        except ArchiveError as error:
            return f"{error.what} ({error.found})" if error.found else error.what


def _damaged(error: ArchiveError) -> DamagedBlob:
    return DamagedBlob(
        error.what,
        where=error.where,
        found=error.found,
        hint="fsck(repair=True) moves damaged files away; then put the parameter again",
    )
