"""Read-only memory maps of files; the arrays of parameters are views of them.

The standard library's `mmap` keeps a file descriptor open for every mapping, and a machine that
serves thousands of parameters would run out of them (1,024 by default). The system call itself
needs none once it has returned, so it is made through ctypes, which numpy has loaded anyway.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from objectstore import system
from objectstore.blob import frozen, only_read
from objectstore.errors import StoreError

SMALL = 4096
"""A file of at most one page is read: mapping it would cost as much memory as it saves."""

AT_ONCE = 256 << 10
"""Arrays of a file up to this many bytes in all are read into memory when a plan is loaded: page
faults, one for each part, would be most of the time of the first call."""

MOST_APART = 8192
"""Most arrays with a mapping of their own; a process may have 65,530 mappings by default."""

# The same numbers on Linux and macOS.
_PROT_READ = 1
_MAP_SHARED = 1
_MADV_DONTNEED = 4
# On Linux only.
_MADV_DONTDUMP = 16
_MADV_POPULATE_READ = 22
_MAP_FAILED = ctypes.c_void_p(-1).value


def read_only(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """The bytes of a regular file, aligned and not writeable; mapped unless the file is small."""
    descriptor = os.open(path, system.READ)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StoreError("this is not a regular file", where=os.fspath(path))
        if status.st_size <= SMALL:
            return frozen_bytes(_read(descriptor, status.st_size))
        return _map(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def frozen_bytes(data: bytes | bytearray | memoryview) -> NDArray[np.uint8]:
    """An aligned, read-only copy of bytes."""
    return frozen(np.frombuffer(data, dtype=np.uint8))


def release(buffer: object) -> None:
    """Let the kernel reclaim the pages of a file that `read_only` has mapped.

    Only the resident size of the process changes: reading a page again costs a fault. Memory that
    is not a mapping is left alone.
    """
    address = buffer.ctypes.data if isinstance(buffer, np.ndarray) else 0
    mapping = _mappings.get(address)
    if mapping is not None:
        _advise(address, mapping.size, _MADV_DONTNEED)


def settle(
    buffer: NDArray[np.uint8], arrays: Iterable[NDArray[np.generic]], most: int | None = AT_ONCE
) -> bool:
    """Map arrays of a file apart from their neighbours, and read them now if they are small.

    Arrays of at most `most` bytes in all are read now, any number of bytes with None. Returns
    whether they were larger, and are read page by page when needed.

    When a page is read, the kernel also maps the pages around it, up to the ends of the mapping. So
    each array's pages become a mapping of their own. The kernel splits a mapping where a property
    differs: here the pages are left out of core dumps, as they are in the file anyway.
    """
    address = buffer.ctypes.data
    mapping = _mappings.get(address)
    if mapping is None or not system.LINUX:
        return False
    spans = _spans(arrays, address, address + mapping.size)
    for start, end in spans:
        if len(_apart) < MOST_APART:
            _advise(start, end - start, _MADV_DONTDUMP)
            mapping.apart.append(start)
            _apart.add(start)
    if most is not None and sum(end - start for start, end in spans) > most:
        return True
    for start, end in spans:
        _advise(start, end - start, _MADV_POPULATE_READ)
    return False


def _spans(
    arrays: Iterable[NDArray[np.generic]], first: int, last: int
) -> Sequence[tuple[int, int]]:
    """The page ranges of these arrays between two addresses, adjacent ones joined."""
    page = mmap.PAGESIZE
    spans: list[tuple[int, int]] = []
    for start, nbytes in sorted((array.ctypes.data, array.nbytes) for array in arrays):
        if not first <= start < last:
            continue  # not in this file: a copy, or another plan's
        begin, end = start - start % page, -(-(start + nbytes) // page) * page
        if spans and begin <= spans[-1][1]:
            begin, end = spans[-1][0], max(spans.pop()[1], end)
        spans.append((begin, end))
    return spans


def _advise(address: int, size: int, advice: int) -> None:
    _libc().madvise(address, size, advice)  # advice: a refusal does no harm


def _read(descriptor: int, size: int) -> bytes:
    """At most `size` bytes; fewer if the file shrinks meanwhile, which `decode` detects."""
    parts: list[bytes] = []
    while size and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _map(descriptor: int, size: int) -> NDArray[np.uint8]:
    """The file's pages, shared with every other process that maps it, until no array needs them."""
    libc = _libc()
    if libc is None:
        return system.mapped(descriptor, size)
    address = libc.mmap(None, size, _PROT_READ, _MAP_SHARED, descriptor, 0)
    if address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    buffer = only_read(address, np.uint8, (size,))
    # Arrays keep the base alive; when the last one is freed, the file is unmapped. Not at exit:
    # arrays may still be in use then, and the kernel unmaps everything anyway.
    finalize(buffer.base, _unmap, address).atexit = False
    _mappings[address] = _MappedArrays(size)
    return buffer


def _unmap(address: int) -> None:
    # Removed from the table first: the address may be reused at once, and is not ours then.
    mapping = _mappings.pop(address)
    _apart.difference_update(mapping.apart)
    _libc().munmap(address, mapping.size)


@dataclass(slots=True)
class _MappedArrays:
    """The size of a mapping, and the first pages of the arrays in it that are mapped apart."""

    size: int
    apart: list[int] = field(default_factory=list)


#: Mappings by address.
_mappings: dict[int, _MappedArrays] = {}
#: First pages of all arrays that are mapped apart, of all mappings.
_apart: set[int] = set()


@cache
def _libc() -> Any:
    """The C library with the calls declared; None where it has none of them."""
    libc = system.c_library()
    if not hasattr(libc, "madvise"):
        return None
    libc.mmap.restype = ctypes.c_void_p
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = (ctypes.c_void_p, size, number, number, number, ctypes.c_long)
    libc.madvise.argtypes = (ctypes.c_void_p, size, number)
    libc.munmap.argtypes = (ctypes.c_void_p, size)
    return libc
