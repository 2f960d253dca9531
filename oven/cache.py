"""Compiled stages by content: in memory for this process, on disk for all of them.

The key is the digest of the emitted source, the CPU's features and the compilers' versions, so an
entry is never stale: a changed emitter asks for another key. Files appear by rename and carry a
checksum; one that is damaged, or was cut off by a crash, is rebuilt.
"""

from __future__ import annotations

import os
import struct
import threading
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

from objectstore.digest import combine
from oven import machine

_MAGIC = b"PRETZELC"
# Another layout of entries, or of the stage ABI, is another format: old entries are not found.
_FORMAT = "stage-abi-3"
_HEAD = struct.Struct("<8s16sHI")


@dataclass
class Counters:
    """What the cache did in this process."""

    compiled: int = 0
    from_disk: int = 0
    from_memory: int = 0
    rebuilt: int = 0


counters = Counters()
_addresses: dict[str, int] = {}
_locks: dict[str, threading.Lock] = {}
_lock = threading.Lock()


def directory() -> Path:
    """Where entries live: PRETZEL_CACHE, or the user's cache directory."""
    chosen = os.environ.get("PRETZEL_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pretzel"


@cache
def _toolchain() -> str:
    return f"{_FORMAT} {machine.fingerprint()} numba {version('numba')}"


def key(source: str) -> str:
    """The name of this source's machine code on this machine."""
    return combine(_toolchain(), source)


def address(source: str, name: str) -> int:
    """Where the compiled function `name` of this source is; compiled only if nobody has yet."""
    digest = key(source)
    found = _addresses.get(digest)
    if found is not None:
        counters.from_memory += 1
        return found
    with _lock:
        lock = _locks.setdefault(digest, threading.Lock())
    with lock:
        if digest not in _addresses:
            _addresses[digest] = _from_disk(digest) or _compiled(digest, source, name)
        return _addresses[digest]


def _from_disk(digest: str) -> int | None:
    path = directory() / digest[:2] / f"{digest}.o"
    try:
        entry = path.read_bytes()
    except OSError:
        return None
    parts = _parse(entry)
    if parts is None:
        counters.rebuilt += 1
        return None
    counters.from_disk += 1
    return machine.load(parts[1], parts[0])


def _parse(entry: bytes) -> tuple[str, bytes] | None:
    """(symbol, object code), or None for anything but an entry written whole."""
    if len(entry) < _HEAD.size:
        return None
    magic, check, symbol_size, size = _HEAD.unpack_from(entry)
    body = entry[_HEAD.size :]
    if magic != _MAGIC or len(body) != symbol_size + size or _checksum(body) != check:
        return None
    return body[:symbol_size].decode("ascii", "replace"), body[symbol_size:]


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _compiled(digest: str, source: str, name: str) -> int:
    from oven.native import compile_source  # numba is imported only to compile

    # Symbols share one name space in a process, and entries come from many processes: a function
    # is called after its source.
    unique = f"{name}_{digest}"
    made = compile_source(source.replace(f"def {name}(", f"def {unique}(", 1), unique)
    counters.compiled += 1
    _keep(digest, made.symbol.encode("ascii"), made.code)
    return machine.load(made.code, made.symbol)


def _keep(digest: str, symbol: bytes, code: bytes) -> None:
    """Write an entry so that readers see all of it or nothing; a full disk costs only speed."""
    body = symbol + code
    folder = directory() / digest[:2]
    temporary = folder / f".{digest}.{os.getpid()}.{threading.get_ident()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        head = _HEAD.pack(_MAGIC, _checksum(body), len(symbol), len(code))
        temporary.write_bytes(head + body)
        temporary.replace(folder / f"{digest}.o")
    except OSError:
        temporary.unlink(missing_ok=True)
