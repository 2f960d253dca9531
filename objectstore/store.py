"""`Store`: parameters, each stored once, and the owners that hold them.

An owner is a name (a plan, an endpoint) that holds parameters by digest. A parameter without an
owner may be freed. `MemoryStore` keeps them in this process; `FileStore` (objectstore/filestore.py)
keeps them in a directory that all processes of a machine share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING

from objectstore.closing import Closing
from objectstore.digest import array_digest, strings_digest
from objectstore.errors import MissingBlob, StoreClosed
from objectstore.strings import Parameter, Strings

if TYPE_CHECKING:
    from objectstore.accounting import StoreReport


@dataclass(slots=True)
class StoreStats:
    """Counters of a store in this process."""

    puts: int = 0
    """Calls of `put`."""
    hits: int = 0
    """Calls of `put` whose parameter was stored already."""
    maps: int = 0
    """Parameter files opened and mapped (or read, when small)."""


@dataclass(frozen=True, slots=True)
class FsckReport:
    """The result of a check of a whole store."""

    checked: int
    """Parameters read and verified."""
    problems: tuple[str, ...]
    """One line each; none in a valid store."""
    leftovers: int = 0
    """Temporary files of writers at work or dead; harmless, and collected by `gc`."""
    repaired: int = 0
    """Damaged files moved out of the way."""

    @property
    def clean(self) -> bool:
        """True if there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        head = f"{self.checked} parameters checked, {len(self.problems)} problems"
        return "\n".join([head, *(f"  {problem}" for problem in self.problems)])


class Store(Closing, ABC):
    """Parameters by content: put, get, hold, release. Safe to use from several threads."""

    def __init__(self) -> None:
        self.stats = StoreStats()
        self._lock = RLock()
        self._closed = False

    @abstractmethod
    def put(self, parameter: Parameter) -> str:
        """Store a parameter unless it is stored already, and return its digest."""

    @abstractmethod
    def get(self, digest: str) -> Parameter:
        """The parameter of this digest."""

    @abstractmethod
    def __contains__(self, digest: object) -> bool: ...

    @abstractmethod
    def digests(self) -> list[str]:
        """All stored digests, held or not."""

    @abstractmethod
    def holdings(self) -> dict[str, frozenset[str]]:
        """For each owner the digests it holds."""

    @abstractmethod
    def hold(self, owner: str, items: Iterable[str | Parameter]) -> None:
        """Add to the digests of an owner; parameters are put first, digests must be stored."""

    @abstractmethod
    def release(self, owner: str) -> int:
        """Remove an owner and free the parameters left without one; returns the bytes freed."""

    @abstractmethod
    def gc(self) -> int:
        """Free all parameters without an owner; returns the bytes freed."""

    @abstractmethod
    def fsck(self, *, repair: bool = False) -> FsckReport:
        """Read and verify everything."""

    @abstractmethod
    def nbytes(self, digest: str) -> int:
        """The size of a stored parameter; 0 if it is not stored."""

    def own_bytes(self, owner: str) -> int:
        """Bytes that only this owner holds."""
        return self._held_bytes(owner, shared=False)

    def shared_bytes(self, owner: str) -> int:
        """Bytes that this owner holds together with others."""
        return self._held_bytes(owner, shared=True)

    def sharers(self, owner: str) -> dict[str, int]:
        """The bytes that this owner shares with each other owner."""
        from objectstore import accounting  # for reports only

        common = accounting.shared_by(self.holdings(), owner)
        return {
            other: sum(self.nbytes(digest) for digest in digests)
            for other, digests in common.items()
        }

    def report(self) -> StoreReport:
        """The stored parameters by owner, as a report to print."""
        from objectstore import accounting  # as above

        return accounting.report(self.holdings(), self.digests(), self.nbytes)

    def close(self) -> None:
        """Stop using the store; parameters handed out stay valid."""
        self._closed = True

    def _held_bytes(self, owner: str, *, shared: bool) -> int:
        holdings = self.holdings()
        others = [digests for name, digests in holdings.items() if name != owner]
        elsewhere: frozenset[str] = frozenset().union(*others)
        mine = holdings.get(owner, frozenset())
        return sum(self.nbytes(digest) for digest in mine if (digest in elsewhere) is shared)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("this store was closed", where=repr(self))

    def _count(self, *, puts: int = 0, hits: int = 0, maps: int = 0) -> None:
        with self._lock:
            self.stats.puts += puts
            self.stats.hits += hits
            self.stats.maps += maps


class MemoryStore(Store):
    """A store in the memory of this process: the embedded default."""

    def __init__(self) -> None:
        super().__init__()
        self._parameters: dict[str, Parameter] = {}
        #: Tuples: a set of a few digests takes ten times as much, for each owner.
        self._holdings: dict[str, tuple[str, ...]] = {}
        self._counts: dict[str, int] = {}

    def put(self, parameter: Parameter) -> str:
        """Store a parameter and return its digest."""
        self._check_open()
        with self._lock:
            stored = parameter.digest in self._parameters
            self._parameters.setdefault(parameter.digest, parameter)
            self._count(puts=1, hits=int(stored))
        return parameter.digest

    def get(self, digest: str) -> Parameter:
        """The parameter of this digest."""
        self._check_open()
        parameter = self._parameters.get(digest)
        if parameter is None:
            raise MissingBlob("no such parameter is stored", where=repr(self), found=str(digest))
        return parameter

    def __contains__(self, digest: object) -> bool:
        return digest in self._parameters

    def digests(self) -> list[str]:
        """All stored digests, held or not."""
        self._check_open()
        with self._lock:
            return sorted(self._parameters)

    def holdings(self) -> dict[str, frozenset[str]]:
        """For each owner the digests it holds."""
        self._check_open()
        with self._lock:
            return {owner: frozenset(digests) for owner, digests in self._holdings.items()}

    def hold(self, owner: str, items: Iterable[str | Parameter]) -> None:
        """Add parameters to an owner, all or none."""
        self._check_open()
        requested = list(items)
        with self._lock:
            for item in requested:
                if isinstance(item, str):
                    self.get(item)
            digests = {item if isinstance(item, str) else self.put(item) for item in requested}
            before = self._holdings.get(owner, ())
            more = tuple(digests.difference(before))
            for digest in more:
                self._counts[digest] = self._counts.get(digest, 0) + 1
            self._holdings[owner] = before + more

    def release(self, owner: str) -> int:
        """Remove an owner and free the parameters left without one; returns the bytes freed."""
        self._check_open()
        with self._lock:
            return sum(self._drop_holder(digest) for digest in self._holdings.pop(owner, ()))

    def gc(self) -> int:
        """Free all parameters without an owner; returns the bytes freed."""
        self._check_open()
        with self._lock:
            free = [digest for digest in self._parameters if digest not in self._counts]
            return sum(self._parameters.pop(digest).nbytes for digest in free)

    def fsck(self, *, repair: bool = False) -> FsckReport:
        """Compute every digest again, which detects overwritten memory."""
        self._check_open()
        with self._lock:
            stored = dict(self._parameters)
        problems = [
            f"{digest}: content has another digest"
            for digest in sorted(stored)
            if _digest_of(stored[digest]) != digest
        ]
        return FsckReport(checked=len(stored), problems=tuple(problems))

    def nbytes(self, digest: str) -> int:
        """The size of a stored parameter; 0 if it is not stored."""
        parameter = self._parameters.get(digest)
        return 0 if parameter is None else parameter.nbytes

    def close(self) -> None:
        """Stop using the store and forget its parameters; those handed out stay valid."""
        super().close()
        with self._lock:
            self._parameters.clear()
            self._holdings.clear()
            self._counts.clear()

    def __repr__(self) -> str:
        return "MemoryStore()"

    def _drop_holder(self, digest: str) -> int:
        """Drop one holder of a digest; returns the bytes freed, 0 if it has others."""
        self._counts[digest] -= 1
        if self._counts[digest]:
            return 0
        del self._counts[digest]
        return self._parameters.pop(digest).nbytes


def _digest_of(parameter: Parameter) -> str:
    """The digest, computed from the current content."""
    if isinstance(parameter, Strings):
        return strings_digest(*(array_digest(blob.array) for blob in parameter.blobs()))
    return array_digest(parameter.array)
