"""Read-only memory over files: what a parameter's array is a view of.

The standard library's `mmap` keeps a file descriptor open for every mapping, and a machine that
serves thousands of parameters would run out of them (1,024 by default). The system call itself
needs none once it has returned, so it is made through ctypes, which numpy has loaded anyway.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from objectstore.blob import aligned_room, only_read
from objectstore.errors import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALL = 4096
"""A file of at most one page is read: mapping it would cost as much memory as it saves."""

AT_ONCE = 256 << 10
"""Of a file, so many bytes that code reads come into memory at once, whoever needs them when: a
fault for each part of them would be most of what the first call takes."""

MOST_APART = 8192
"""Arrays that have a mapping of their own pages; a process may have 65,530 mappings by default."""

# The same numbers on Linux and macOS.
_PROT_READ = 1
_MAP_SHARED = 1
_MADV_DONTNEED = 4
# Linux alone.
_MADV_DONTDUMP = 16
_MADV_POPULATE_READ = 22
_MAP_FAILED = ctypes.c_void_p(-1).value


def read_only(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """The bytes of a regular file, aligned and not writeable; mapped unless the file is small."""
    # Not blocking: opening a pipe that somebody put in the place of a file must not hang.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise StoreError("this is not a regular file", where=os.fspath(path))
        if found.st_size <= SMALL:
            return frozen_bytes(_read(descriptor, found.st_size))
        return _mapped(descriptor, found.st_size)
    finally:
        os.close(descriptor)


def frozen_bytes(data: bytes | bytearray | memoryview) -> NDArray[np.uint8]:
    """A copy of bytes that is aligned and that nobody can write to."""
    return frozen(np.frombuffer(data, dtype=np.uint8))


def frozen(array: NDArray[np.generic]) -> NDArray[Any]:
    """A copy of an array in C order that is aligned and that nobody can write to."""
    room = aligned_room(array.nbytes)
    room[:] = array.reshape(-1).view(np.uint8)
    return only_read(room.ctypes.data, array.dtype, array.shape, room.base)


def release(buffer: NDArray[np.uint8]) -> None:
    """Let the kernel take back the pages of a file that `read_only` has mapped.

    Nothing changes but what the process is said to take: whoever reads a page again has it again,
    at the price of a fault. Memory that is no mapping is left alone.
    """
    address = buffer.ctypes.data
    known = _mappings.get(address)
    if known is not None:
        _advise(address, known.size, _MADV_DONTNEED)


def settle(
    buffer: NDArray[np.uint8], arrays: Iterable[NDArray[np.generic]], most: int | None = AT_ONCE
) -> bool:
    """Have what code reads of a mapped file come without its neighbours, and now if it is little.

    Little is what has at most so many bytes, or anything with None. Whether there is more, which
    comes as it is read.

    The kernel maps what lies around a page that is read, up to the ends of the mapping. So the
    pages of each array become a mapping, which they are when they differ in any property: here, in
    that a core dump does without them, as they are in the file.
    """
    address = buffer.ctypes.data
    known = _mappings.get(address)
    if known is None or sys.platform != "linux":
        return False
    spans = _spans(arrays, address, address + known.size)
    for start, end in spans:
        if len(_apart) < MOST_APART:
            _advise(start, end - start, _MADV_DONTDUMP)
            known.apart.append(start)
            _apart.add(start)
    if most is not None and sum(end - start for start, end in spans) > most:
        return True
    for start, end in spans:
        _advise(start, end - start, _MADV_POPULATE_READ)
    return False


def _spans(
    arrays: Iterable[NDArray[np.generic]], first: int, last: int
) -> Sequence[tuple[int, int]]:
    """The pages of these arrays between two addresses, those that touch as one."""
    page = mmap.PAGESIZE
    found: list[tuple[int, int]] = []
    for start, nbytes in sorted((array.ctypes.data, array.nbytes) for array in arrays):
        if not first <= start < last:
            continue  # not in this file: a copy, or another plan's
        begin, end = start - start % page, -(-(start + nbytes) // page) * page
        if found and begin <= found[-1][1]:
            begin, end = found[-1][0], max(found.pop()[1], end)
        found.append((begin, end))
    return found


def _advise(address: int, size: int, advice: int) -> None:
    _libc().madvise(address, size, advice)  # advice: nothing is lost if it is refused


def _read(descriptor: int, size: int) -> bytes:
    """At most `size` bytes; fewer when the file shrinks meanwhile, which the reader will notice."""
    parts: list[bytes] = []
    while size and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _mapped(descriptor: int, size: int) -> NDArray[np.uint8]:
    """The file's pages, shared with every other process that maps it, until no array needs them."""
    libc = _libc()
    address = libc.mmap(None, size, _PROT_READ, _MAP_SHARED, descriptor, 0)
    if address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    buffer = only_read(address, np.uint8, (size,))
    # Arrays keep the base alive; when the last is gone the mapping goes too. Not at exit, though:
    # arrays may outlive that, and the kernel unmaps everything anyway.
    finalize(buffer.base, _unmap, address).atexit = False
    _mappings[address] = _Mapping(size)
    return buffer


def _unmap(address: int) -> None:
    # Forgotten first: memory that is given out at this address next is not to be released.
    known = _mappings.pop(address)
    _apart.difference_update(known.apart)
    _libc().munmap(address, known.size)


@dataclass(slots=True)
class _Mapping:
    """How long a mapping is, and where in it the pages of arrays begin that are mapped apart."""

    size: int
    apart: list[int] = field(default_factory=list)


#: What is mapped where.
_mappings: dict[int, _Mapping] = {}
#: Where pages begin that are mapped apart, in all mappings.
_apart: set[int] = set()

_LIBC: list[ctypes.CDLL] = []


def _libc() -> ctypes.CDLL:
    """The C library with the two calls declared; loaded when first needed."""
    if not _LIBC:
        if sys.platform == "win32":
            raise StoreError("files can be mapped on POSIX systems only", where="objectstore")
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        libc.madvise.restype = ctypes.c_int
        libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        libc.munmap.restype = ctypes.c_int
        libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        _LIBC.append(libc)
    return _LIBC[0]
