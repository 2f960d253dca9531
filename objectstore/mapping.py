"""Read-only memory over files: what a parameter's array is a view of.

The standard library's `mmap` keeps a file descriptor open for every mapping, and a machine that
serves thousands of parameters would run out of them (1,024 by default). The system call itself
needs none once it has returned, so it is made through ctypes, which numpy has loaded anyway.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from typing import TYPE_CHECKING
from weakref import finalize

import numpy as np

from objectstore.blob import aligned_room
from objectstore.errors import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALL = 4096
"""A file of at most one page is read: mapping it would cost as much memory as it saves."""

# The same numbers on Linux and macOS.
_PROT_READ = 1
_MAP_SHARED = 1
_MADV_DONTNEED = 4
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
    room = aligned_room(len(data))
    room[:] = np.frombuffer(data, dtype=np.uint8)
    return np.frombuffer(room.data.toreadonly(), dtype=np.uint8)


def release(buffer: NDArray[np.uint8]) -> None:
    """Let the kernel take back the pages of a file that `read_only` has mapped.

    Nothing changes but what the process is said to take: whoever reads a page again has it again,
    at the price of a fault. Memory that is no mapping is left alone.
    """
    address = buffer.ctypes.data
    size = _mappings.get(address)
    if size is not None:
        _libc().madvise(address, size, _MADV_DONTNEED)  # advice: nothing is lost if it is refused


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
    pages = (ctypes.c_ubyte * size).from_address(address)
    # Arrays keep `pages` alive; when the last is gone the mapping goes too. Not at exit, though:
    # arrays may outlive that, and the kernel unmaps everything anyway.
    finalize(pages, _unmap, address).atexit = False
    _mappings[address] = size
    return np.frombuffer(memoryview(pages).cast("B").toreadonly(), dtype=np.uint8)


def _unmap(address: int) -> None:
    # Forgotten first: memory that is given out at this address next is not to be released.
    _libc().munmap(address, _mappings.pop(address))


#: What is mapped where, and how long it is.
_mappings: dict[int, int] = {}

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
