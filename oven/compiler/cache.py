"""Compiled stages by content: in memory for this process, on disk for all of them.

The key is the digest of the emitted source, the CPU's features and the compilers' versions, so an
entry is never stale: a changed emitter asks for another key. Entries appear by rename and carry a
checksum; one that is damaged, or was cut off by a crash, is rebuilt.

An entry is machine code that this process will run. So the directory must belong to the user (or to
root) and nobody else may write to it, and the same holds for every entry; what does not is never
read, and the code is compiled instead.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from objectstore.digest import combine
from oven import debug
from oven.compiler import machine

MOST_BYTES = 512 << 20
"""Of all entries together: at some ten kilobytes each, more shapes than a machine ever serves."""

_MAGIC = b"PRETZELC"
# Another layout of entries, or of the stage ABI, is another format: old entries are not found.
_FORMAT = "stage-abi-3"
_HEAD = struct.Struct("<8s16sHI")
# How often a process looks at the size of the cache: a look reads the whole directory.
_WRITES_A_LOOK = 256
# A hit renews an entry's age once a day, so that the least used ones are the oldest.
_RENEWED_SECONDS = 86_400.0
_ABANDONED_SECONDS = 3_600.0
_TEXT = re.compile(r"\b(text|wrap)_")
_VERSION = re.compile(r'"version": "([^"]+)"')
_CALLING = ("call_", "c_call_", "stack_")


@dataclass
class Counters:
    """What the cache did in this process."""

    compiled: int = 0
    compile_seconds: float = 0.0
    from_disk: int = 0
    from_memory: int = 0
    rebuilt: int = 0


class Code(Protocol):
    """Relocatable machine code and the function in it to call."""

    @property
    def symbol(self) -> str:
        """The function's name."""
        ...

    @property
    def code(self) -> bytes:
        """The object file."""
        ...


counters = Counters()
_addresses: dict[str, int] = {}
_locks: dict[str, threading.Lock] = {}
_lock = threading.Lock()
_writes = 0


# --- looking up ---------------------------------------------------------------------------------


@lru_cache(maxsize=256)  # plans of one shape come in crowds, and each asks several times
def key(source: str) -> str:
    """The name of this source's machine code on this machine."""
    return combine(toolchain(), *([_text_words()] if _TEXT.search(source) else []), source)


@cache
def toolchain() -> str:
    """What machine code depends on besides its source."""
    return f"{_FORMAT} {machine.fingerprint()} numba {_numba()} {_vocabulary()}"


def _numba() -> str:
    """The version of numba, read where it lies: importing what could tell takes long."""
    found = find_spec("numba")
    if found is not None and found.origin is not None:
        beside = Path(found.origin).with_name("_version.py")
        text = beside.read_text("utf-8") if beside.exists() else ""
        stated = _VERSION.search(text)
        if stated is not None:
            return stated[1]
    from importlib.metadata import version

    return version("numba")


def _vocabulary() -> str:
    """The words of emitted code are compiled with it, so their text is part of every key."""
    here = Path(__file__).parent
    texts = [here / name for name in ("native.py", "functions.py", "functions_tanh.py")]
    intrinsics = sorted((here / "intrinsics").glob("*.py"))
    return combine(*(path.read_bytes() for path in (*texts, *intrinsics)))


@cache
def _text_words() -> str:
    """The words for text are part of the keys of only those sources that use them."""
    here = Path(__file__).parent / "intrinsics"
    names = ("more.py", "text.py", "patterns.py", "counts.py")
    return combine(*((here / name).read_bytes() for name in names))


def address(source: str, name: str) -> int:
    """Where the compiled function `name` of this source is; compiled only if nobody has yet."""
    return machine_code(key(source), name, lambda unique: _compile(source, name, unique))


def machine_code(digest: str, name: str, build: Callable[[str], Code]) -> int:
    """The address of the code of this digest; `build(symbol)` makes it if nobody has yet.

    Symbols share one name space in a process, and entries come from many processes: so a function
    is called after its digest.
    """
    found = find(digest, name)
    if found is not None:
        return found
    with _lock_of(digest):
        if digest not in _addresses:
            _addresses[digest] = _built(digest, f"{name}_{digest}", build)
        return _addresses[digest]


def find(digest: str, name: str) -> int | None:
    """The address of the code of this digest, where somebody has made it already."""
    found = _addresses.get(digest)
    if found is not None:
        counters.from_memory += 1
        return found
    with _lock_of(digest):
        if digest not in _addresses:
            found = _from_disk(digest, f"{name}_{digest}")
            if found is None:
                return None
            _addresses[digest] = found
        return _addresses[digest]


def here(digest: str) -> bool:
    """Whether this process has the code of this digest."""
    return digest in _addresses


def _lock_of(digest: str) -> threading.Lock:
    with _lock:
        return _locks.setdefault(digest, threading.Lock())


def _compile(source: str, name: str, unique: str) -> Code:
    from oven.compiler import driver, native, source_check  # numba is imported only to compile

    text = source.replace(f"def {name}(", f"def {unique}(", 1)
    words = native.vocabulary()
    # Only the text that runs the stages may call addresses.
    stage = {word for word in words if not word.startswith(_CALLING)}
    source_check.vet(text, unique, words if name == driver.NAME else stage)
    return native.compile_source(text, unique)


def _built(digest: str, unique: str, build: Callable[[str], Code]) -> int:
    start = time.perf_counter()
    made = build(unique)
    seconds = time.perf_counter() - start
    counters.compiled += 1
    counters.compile_seconds += seconds
    debug.say(1, f"compiled {unique} in {seconds * 1e3:.0f} ms")
    _keep(digest, made.symbol.encode("ascii"), made.code)
    return machine.load(made.code, made.symbol)


# --- entries ------------------------------------------------------------------------------------


def directory() -> Path:
    """Where entries live: PRETZEL_CACHE, or .cache/pretzel in the user's home."""
    chosen = os.environ.get("PRETZEL_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "pretzel"


def _path(digest: str) -> Path:
    return directory() / digest[:2] / f"{digest}.o"


def _from_disk(digest: str, unique: str) -> int | None:
    path = _path(digest)
    if not trusted(directory()):
        return None
    try:
        entry = read_entry(path)
    except OSError:
        return None
    parts = _parse(entry, unique)
    if parts is None:
        counters.rebuilt += 1
        debug.say(1, f"cache entry {path.name} is damaged: it is built again")
        return None
    try:
        found = machine.load(parts[1], parts[0])
    except LookupError:
        counters.rebuilt += 1
        return None
    counters.from_disk += 1
    debug.say(1, f"loaded {unique} from the cache")
    return found


def read_entry(path: Path) -> bytes:
    """An entry's bytes; nothing if it is not one that only we can have written."""
    # Not blocking: opening a pipe that somebody put in the place of an entry must not hang.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or not _ours(found):
            return b""
        if time.time() - found.st_mtime > _RENEWED_SECONDS:
            _renew(path)
        return file.read()


def _renew(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        return  # a cache that is read only stays as it is


def _parse(entry: bytes, unique: str) -> tuple[str, bytes] | None:
    """(symbol, object code), or None for anything but this function's entry, written whole."""
    if len(entry) < _HEAD.size:
        return None
    magic, check, symbol_size, size = _HEAD.unpack_from(entry)
    body = entry[_HEAD.size :]
    if magic != _MAGIC or len(body) != symbol_size + size or _checksum(body) != check:
        return None
    symbol = body[:symbol_size].decode("ascii", "replace")
    return (symbol, body[symbol_size:]) if unique in symbol else None


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _keep(digest: str, symbol: bytes, code: bytes) -> None:
    body = symbol + code
    head = _HEAD.pack(_MAGIC, _checksum(body), len(symbol), len(code))
    if write_entry(_path(digest), head + body):
        _look_at_size()


def write_entry(path: Path, entry: bytes) -> bool:
    """Write an entry so that readers see all of it or nothing; a full disk costs only speed."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.{threading.get_ident()}")
    try:
        directory().mkdir(mode=0o700, parents=True, exist_ok=True)
        if not trusted(directory()):
            return False
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_bytes(entry)
        temporary.chmod(0o644)  # whatever the umask: nobody else may write
        temporary.replace(path)
    except OSError:
        _drop(temporary)
        return False
    return True


# --- whom to trust ------------------------------------------------------------------------------


def trusted(place: Path) -> bool:
    """Whether only we (or root) can have put entries into this directory; warns if not."""
    try:
        found = place.stat()
    except OSError:
        return False
    if stat.S_ISDIR(found.st_mode) and _ours(found):
        return True
    _warn(place)
    return False


def _ours(found: os.stat_result) -> bool:
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


@cache
def _warn(place: Path) -> None:
    warnings.warn(
        f"the code cache {place} is not used: others can write to it (chmod go-w it)",
        RuntimeWarning,
        stacklevel=2,
    )


# --- how much to keep ---------------------------------------------------------------------------


def _look_at_size() -> None:
    """Now and then, starting with the first entry written, drop what is too much."""
    global _writes  # noqa: PLW0603 (a count of this process)
    with _lock:
        _writes += 1
        due = _writes % _WRITES_A_LOOK == 1
    if due:
        evict(MOST_BYTES)


def evict(most: int) -> None:
    """Drop the entries not used for longest until the rest take at most `most` bytes."""
    entries = [(found.st_mtime, found.st_size, path) for path, found in _entries()]
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= most:
            return
        # A process that has the code loaded does not need the file.
        _drop(path)
        total -= size


def _entries() -> list[tuple[Path, os.stat_result]]:
    """Every entry; what dead writers left behind is swept up on the way."""
    found = []
    for path in directory().glob("??/*"):
        try:
            state = path.stat()
        except OSError:
            continue  # another process was faster
        if path.suffix == ".o" and not path.name.startswith("."):
            found.append((path, state))
        elif time.time() - state.st_mtime > _ABANDONED_SECONDS:
            _drop(path)
    return found


def _drop(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # a cache that is read only stays as it is
