"""The code cache: compiled stages by cache key, in memory per process and on disk for all.

The key is the digest of the emitted source and of what compiles it, and an entry's name has the
processor too, so an entry is never stale: a changed emitter leads to another key. Entries appear by
rename and carry a checksum; a damaged or truncated entry is rebuilt. What neither memory nor disk
has may be in a pack, compiled ahead of time for a level of processor (oven.compiler.packs).

An entry is machine code that this process will run. So the directory and every entry must belong to
the user (or to root) and be writable by no other user; otherwise they are not read, and the code is
compiled instead.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from objectstore import combine, system
from objectstore.system import at_fork
from oven import debug
from oven.compiler import estimate, levels, machine, packs, written
from oven.compiler.machine import MachineCode

#: The folder of the packs that come with a release.
RELEASED = Path(__file__).parent / "packs"
MOST_BYTES = 512 << 20
"""Size limit of the cache: entries take about ten kilobytes, one per structure of a stage."""

_MAGIC = b"PRETZELC"
# Another layout of entries, or of the stage ABI, is another format: old entries are not found.
_FORMAT = "stage-abi-4"
_HEAD = struct.Struct("<8s16sHI")
# Writes between two checks of the cache's size: a check reads the whole directory.
_WRITES_A_LOOK = 256
# A hit renews an entry's time stamp once a day, so that the oldest entries are the least used.
_RENEWED_SECONDS = 86_400.0
_ABANDONED_SECONDS = 3_600.0
_CALLING = ("call_", "c_call_", "stack_")


@dataclass
class Counters:
    """Counters of the cache in this process."""

    compiled: int = 0
    compile_seconds: float = 0.0
    from_disk: int = 0
    from_packs: int = 0
    from_memory: int = 0
    rebuilt: int = 0


counters = Counters()
_addresses: dict[str, int] = {}
_locks: dict[str, threading.Lock] = {}
_lock = threading.Lock()
#: Held while the compiler works: a fork in between would leave its child a locked compiler.
_compiling = threading.RLock()
_writes = 0


def _after_fork() -> None:
    """After a fork, locks held by other threads stay locked in the child; replace them."""
    global _lock  # noqa: PLW0603 (as above)
    _lock = threading.Lock()
    _locks.clear()
    _compiling.release()


at_fork(before=_compiling.acquire, after_in_parent=_compiling.release, after_in_child=_after_fork)


# --- looking up ---------------------------------------------------------------------------------


# Many plans of one structure are loaded in a row, and each needs the key several times.
@lru_cache(256)
def key(source: str) -> str:
    """The cache key of this source, on machines of all kinds."""
    words = [_portable_words()] if source.startswith(machine.PORTABLE) else []
    return combine(compilers(), *words, source)


def made_of(*inputs: str | bytes) -> str:
    """The cache key of what is made of these by the sources that machine code depends on."""
    return combine(compilers(), *inputs)


@cache
def compilers() -> str:
    """Text of what machine code depends on besides its source and the processor."""
    asked = os.environ.get("PRETZEL_COMPILER", "")  # for code of all kinds
    return f"{_FORMAT} {machine.version()} {asked} {_vocabulary()}"


def toolchain() -> str:
    """Text of everything that machine code depends on besides its source."""
    return f"{machine.fingerprint()} {compilers()}"


def _vocabulary() -> str:
    """Digest of the intrinsics' source, as they are compiled with emitted code."""
    here = Path(__file__).parent
    names = ("levels", "native", "lowering", "numba_compiler", "kinds", "written")
    texts = [here / f"{name}.py" for name in names] + sorted(here.glob("functions*.py"))
    intrinsics = sorted((here / "intrinsics").glob("*.py"))
    return combine(*(path.read_bytes() for path in (*texts, *intrinsics)))


@cache
def _portable_words() -> str:
    """Digest of what is different in portable code, for the keys of its sources."""
    return combine((Path(__file__).parent / "portable.py").read_bytes())


def address(source: str, name: str) -> int:
    """The address of the function `name` of this source, compiled unless the cache has it."""
    return machine_code(key(source), name, lambda unique: _compile(source, name, unique))


@lru_cache(64)
def function_key(function: Callable[..., object]) -> str:
    """The cache key of a function of ours, found without its text: see oven.compiler.written."""
    return made_of(function.__name__, written.inputs(function))


def function_address(function: Callable[..., object]) -> int:
    """The address of the code of a function of ours, which may call addresses, unlike a plan's."""
    name = function.__name__

    def build(unique: str) -> MachineCode:
        from oven.compiler import native, source_check  # loading code needs no compiler
        from oven.compiler.intrinsics.vocabulary import vocabulary

        text = written.text(function).replace(f"def {name}(", f"def {unique}(", 1)
        source_check.vet(text, unique, vocabulary())
        return native.compile_source(text, unique)

    return machine_code(function_key(function), name, build)


def machine_code(digest: str, name: str, build: Callable[[str], MachineCode]) -> int:
    """The address of the code of this digest, made by `build(symbol)` unless the cache has it.

    Symbols share one name space in a process, and entries come from many processes: so a function's
    symbol contains its digest.
    """
    cached = find(digest, name)
    if cached is not None:
        return cached
    with _lock:
        lock = _locks.setdefault(digest, threading.Lock())
    with lock:
        if digest not in _addresses:
            made = _collect if _collected is not None else _compiled_and_kept
            _addresses[digest] = made(digest, f"{name}_{digest}", build)
        return _addresses[digest]


def _compiled_and_kept(digest: str, unique: str, build: Callable[[str], MachineCode]) -> int:
    with _compiling:  # a child must not get the half of an import
        machine.check()
        start = time.perf_counter()
        compiled = build(unique)
        seconds = time.perf_counter() - start
    counters.compiled += 1
    counters.compile_seconds += seconds
    estimate.learn(compiled.source, seconds)
    debug.say(1, f"compiled {unique} in {seconds * 1e3:.0f} ms")
    for kept, code in _kept(digest, compiled).items():
        _keep(kept, compiled.symbol.encode("ascii"), code)
    return machine.load(compiled.code, compiled.symbol)


def data(digest: str, make: Callable[[], bytes]) -> bytes:
    """The text that `make` makes of this digest's inputs, kept and found in packs as code is."""
    if _collected is not None:
        _collected[digest] = packs.PackedFunction(packs.DATA, make())
        return _collected[digest].code
    symbol = f"data_{digest}"
    found = _entry(digest, symbol)
    if found is not None:
        return found.code
    for pack in _packs(machine.fingerprint(), directory()):
        packed = pack.data(digest)
        if packed is not None:
            return packed
    made = make()
    _keep(digest, symbol.encode("ascii"), made)
    return made


def find(digest: str, name: str) -> int | None:
    """The address of the code of this digest, None if neither memory nor disk has it (yet)."""
    loaded = _addresses.get(digest)
    if loaded is not None:
        counters.from_memory += 1
        return loaded
    if _collected is not None:
        return None
    with _lock:
        lock = _locks.setdefault(digest, threading.Lock())
    if not lock.acquire(blocking=False):
        return None  # another thread loads or compiles it, which may take seconds
    try:
        if digest not in _addresses:
            loaded = _from_disk(digest, f"{name}_{digest}") or _from_packs(digest)
            if loaded is None:
                return None
            _addresses[digest] = loaded
        return _addresses[digest]
    finally:
        lock.release()


def here(digest: str) -> bool:
    """True if this process has the code of this digest."""
    return digest in _addresses


def _compile(source: str, name: str, unique: str) -> MachineCode:
    from oven.compiler import native, source_check  # loading code needs no compiler
    from oven.compiler.intrinsics.vocabulary import vocabulary

    text = source.replace(f"def {name}(", f"def {unique}(", 1)
    if source.startswith(machine.PORTABLE):
        from oven.compiler import portable

        return portable.compile_source(text, unique)
    # A stage may not call addresses, as its text may come from a file.
    words = {word for word in vocabulary() if not word.startswith(_CALLING)}
    source_check.vet(text, unique, words)
    return native.compile_source(text, unique)


def _kept(digest: str, compiled: MachineCode) -> dict[str, bytes]:
    """The code by its key. numba's has a key of its own, and no code is under the usual one.

    What numba compiles is known only after our lowering has refused it.
    """
    if not compiled.by_numba:
        return {digest: compiled.code}
    return {digest: b"", _by_numba(digest): compiled.code}


def _by_numba(digest: str) -> str:
    return combine(digest, _numba_version())


@cache
def _numba_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # it takes 20 ms

    try:
        return f"numba {version('numba')}"
    except PackageNotFoundError:
        return "no numba"


# --- collecting ---------------------------------------------------------------------------------

#: What is compiled while it is only collected, for a pack.
_collected: dict[str, packs.PackedFunction] | None = None


def collect(work: Callable[[], object]) -> dict[str, packs.PackedFunction]:
    """The code that `work` compiles and that is not loaded; nothing is looked up in the cache."""
    global _collected  # noqa: PLW0603 (a mode of this process, which does nothing else then)
    _collected = {}
    try:
        work()
        return _collected
    finally:
        _collected = None
        _addresses.clear()


def _collect(digest: str, unique: str, build: Callable[[str], MachineCode]) -> int:
    compiled = build(unique)
    assert _collected is not None
    for kept, code in _kept(digest, compiled).items():
        _collected[kept] = packs.PackedFunction(compiled.symbol, code)
    return ctypes.cast(_refusal(), ctypes.c_void_p).value or 0


@cache
def _refusal() -> Any:
    """Stands for all code meanwhile, as code for another processor cannot run: refuses all rows."""
    return machine.STAGE(lambda *_: 1)


# --- entries ------------------------------------------------------------------------------------


def directory() -> Path:
    """The cache's folder: PRETZEL_CACHE, or `pretzel` among the user's caches."""
    chosen = os.environ.get("PRETZEL_CACHE")
    if chosen:
        return _path_of(os.path.expanduser(chosen))  # noqa: PTH111 (as below)
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 (pathlib raises where there is no home)
    return _path_of(f"{caches}/pretzel")


_path_of = lru_cache(1)(Path)  # making a path takes a tenth of the time of loading a linear plan


def _path(digest: str) -> Path:
    return directory() / digest[:2] / f"{digest}.{_processor(machine.fingerprint())}.o"


@cache
def _processor(fingerprint: str) -> str:
    """A short name for the processor, as folders can be shared by machines of several kinds."""
    return combine(fingerprint)[:8]


def _entry(digest: str, unique: str) -> packs.PackedFunction | None:
    """The entry of the cache's folder under this digest."""
    path = _path(digest)
    if not trusted(directory()):
        return None
    try:
        entry = read_entry(path)
    except OSError:
        return None
    found = _parse(entry, unique)
    if found is None:
        counters.rebuilt += 1
        debug.say(1, f"cache entry {path.name} is damaged: it is built again")
    return found


def _parse(entry: bytes, unique: str) -> packs.PackedFunction | None:
    """The function of an entry; None unless this is its complete entry."""
    if len(entry) < _HEAD.size:
        return None
    magic, check, symbol_size, size = _HEAD.unpack_from(entry)
    body = entry[_HEAD.size :]
    symbol = body[:symbol_size].decode("ascii", "replace")
    whole = magic == _MAGIC and len(body) == symbol_size + size and checksum(body) == check
    return packs.PackedFunction(symbol, body[symbol_size:]) if whole and unique in symbol else None


def _from_disk(digest: str, unique: str) -> int | None:
    entry = _entry(digest, unique)
    if entry is None:
        return None
    if not entry.code:
        return _from_disk(_by_numba(digest), unique)
    try:
        loaded = machine.load(entry.code, entry.symbol)
    except LookupError:
        counters.rebuilt += 1
        return None
    counters.from_disk += 1
    debug.say(1, f"loaded {unique} from the cache")
    return loaded


#: Packs of plans' files that are trusted, by the keys of functions that are not loaded yet.
carried: dict[str, packs.Pack] = {}


def offer(pack: packs.Pack) -> None:
    """Let code be found in this pack, too."""
    carried.update({digest: pack for digest in pack if digest not in _addresses})


def at_hand() -> tuple[packs.Pack, ...]:
    """The packs of this processor: those of the user's folder and of the release."""
    return _packs(machine.fingerprint(), directory())


def _from_packs(digest: str) -> int | None:
    for function in _in_packs(digest):
        try:
            loaded = machine.load(function.code, function.symbol)
        except LookupError:
            continue  # it is compiled instead, as what is damaged is
        counters.from_packs += 1
        return loaded
    return None


def _in_packs(digest: str) -> Iterator[packs.PackedFunction]:
    """Entries of the packs under this digest."""
    known = at_hand()
    offered = carried.pop(digest, None)
    for pack in known if offered is None else (*known, offered):
        try:
            function = pack.find(digest)
            if function is not None and not function.code:
                function = pack.find(_by_numba(digest))
        except packs.Refused as problem:
            _warn(f"{pack.path or 'the code in a plan'}: {problem}; code is compiled instead")
            continue
        if function is not None:
            yield function


@lru_cache(maxsize=4)
def _packs(_fingerprint: str, folder: Path) -> tuple[packs.Pack, ...]:
    """The packs for this processor: those of the user, then that of the release."""
    level = levels.best(machine.triple(), machine.features())
    if level is None:
        return ()
    found = []
    folders = [folder, RELEASED] if trusted(folder) else [RELEASED]
    for path in (each / f"{level.name}.pack" for each in folders):
        try:
            found.append(packs.read(path, level.name, compilers()))
        except (FileNotFoundError, NotADirectoryError):
            # Warn of a user's folder that has packs, and none of this processor's level.
            others = [
                each.name for each in levels.LEVELS if (path.parent / f"{each.name}.pack").exists()
            ]
            if others and path.parent != RELEASED:
                _warn(
                    f"the packs in {path.parent} are not used: they are for {', '.join(others)},"
                    f" and code here is for {level.name}; code is compiled instead"
                    f" (pretzel warm FOLDER --cpu {level.name} makes it ahead)"
                )
        except (packs.Refused, OSError, ValueError, TypeError, KeyError) as problem:
            said = f"{path} is not used: {problem}; code is compiled instead"
            if path.parent == RELEASED and isinstance(problem, packs.Outdated):
                debug.say(1, said)  # a checkout in which the compiler was edited
            else:
                _warn(said)
    return tuple(found)


def read_entry(path: Path) -> bytes:
    """An entry's bytes; empty if another user could have written it."""
    descriptor = os.open(path, system.READ | system.NO_LINK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or system.doubt_of(status):
            return b""
        if time.time() - status.st_mtime > _RENEWED_SECONDS:
            with suppress(OSError):  # a read-only cache stays as it is
                os.utime(path)
        return file.read()


def checksum(body: bytes) -> bytes:
    """Digest that an entry is checked by."""
    return blake2b(body, digest_size=16).digest()


def _keep(digest: str, symbol: bytes, code: bytes) -> None:
    body = symbol + code
    head = _HEAD.pack(_MAGIC, checksum(body), len(symbol), len(code))
    if write_entry(_path(digest), head + body):
        _evict_sometimes()


def write_entry(path: Path, entry: bytes) -> bool:
    """Write an entry so that readers see all of it or nothing; a full disk costs only speed."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.{threading.get_ident()}")
    try:
        directory().mkdir(mode=0o700, parents=True, exist_ok=True)
        if not trusted(directory()):
            return False
        # Remove what would keep an entry from being written: a file as its folder, a folder as it.
        if path.parent.is_dir() and path.is_dir() and not path.is_symlink():
            import shutil  # what is damaged like this is rare, and importing it takes milliseconds

            shutil.rmtree(path)
        elif path.parent.exists() and not path.parent.is_dir():
            path.parent.unlink()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_bytes(entry)
        temporary.chmod(0o644)  # independent of the umask: no other user may write
        temporary.replace(path)
    except OSError:
        _drop(temporary)
        return False
    return True


# --- permissions --------------------------------------------------------------------------------


def trusted(folder: Path) -> bool:
    """True if only we (or root) can have put entries into this directory; warns if not."""
    try:
        status = folder.stat()
    except OSError:
        return False
    doubt = system.doubt_of(status) if stat.S_ISDIR(status.st_mode) else "it is no folder"
    if doubt:
        _warn(f"the code cache {folder} is not used: {doubt}")
    return not doubt


@cache
def _warn(text: str) -> None:
    """Warn, once in a process."""
    warnings.warn(text, RuntimeWarning, stacklevel=2)


# --- size ---------------------------------------------------------------------------------------


def _evict_sometimes() -> None:
    """After the first write, and then regularly, drop entries beyond the size limit."""
    global _writes  # noqa: PLW0603 (a count of this process)
    with _lock:
        _writes += 1
        due = _writes % _WRITES_A_LOOK == 1
    if due:
        evict(MOST_BYTES)


def evict(most: int) -> None:
    """Drop the entries not used for longest until the rest take at most `most` bytes."""
    drop_oldest(_entries(), most)  # a process that has the code loaded does not need the file


def drop_oldest(entries: Sequence[tuple[Path, os.stat_result]], most: int) -> None:
    """Remove the files not used for longest until the rest take at most `most` bytes."""
    total = sum(status.st_size for _, status in entries)
    for path, status in sorted(entries, key=lambda entry: entry[1].st_mtime):
        if total <= most:
            return
        _drop(path)
        total -= status.st_size


def usage() -> tuple[int, int]:
    """The number of entries in the cache's folder, and their bytes."""
    entries = _entries()
    return len(entries), sum(status.st_size for _, status in entries)


def _entries() -> list[tuple[Path, os.stat_result]]:
    """Every entry; removes abandoned temporary files on the way."""
    entries = []
    for path, status in files(directory()):
        if path.suffix == ".o" and not path.name.startswith("."):
            entries.append((path, status))
        elif time.time() - status.st_mtime > _ABANDONED_SECONDS:
            _drop(path)
    return entries


def files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The files in the folders below this one that other processes have not removed."""
    for path in folder.glob("??/*"):
        with suppress(OSError):
            yield path, path.stat()


def _drop(path: Path) -> None:
    with suppress(OSError):  # a read-only cache stays as it is
        path.unlink(missing_ok=True)
