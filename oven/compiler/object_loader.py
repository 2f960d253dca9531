"""Object code made executable by ourselves, where it is as plain as what we compile.

The compiler's own loader keeps a copy of each object file, its tables of symbols and a page for
each of its sections, and brings ten megabytes of itself into memory to load the first. What our
compiler writes needs none of that: code, constants, and addresses of both and of functions of the
C library, each in a word of its own. So an object is laid into one block of memory, its addresses
are written there, and the block becomes executable and can never be written again.

Only ELF for x86-64 is known here. For anything that is not as plain, `link` answers None, and the
compiler's loader does it: see oven.compiler.machine.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from functools import cache
from typing import NamedTuple

_MAGIC = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64 = 1, 62
_WRITTEN, _ALLOCATED = 1, 2  # a section that code writes to; one that is there when it runs
_BITS, _SYMBOLS, _RELOCATIONS = 1, 2, 4
_UNWIND = 0x70000001  # what leads an exception out of code: none comes through ours
_ADDRESS = 1  # the one relocation: a word becomes an address
_UNDEFINED, _RESERVED = 0, 0xFF00
_WRITABLE = mmap.PROT_READ | mmap.PROT_WRITE
_EXECUTABLE = mmap.PROT_READ | mmap.PROT_EXEC

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")


class _NotPlain(Exception):
    """This object has something that only the compiler's loader understands."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


class _Symbol(NamedTuple):
    name: str
    section: int
    value: int


class _Object:
    """What an object file says: its sections, its symbols and the words that become addresses."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        start, count = self._head()
        raw = _SECTION.iter_unpack(code[start : start + count * _SECTION.size])
        self.sections = [_Section(*fields) for fields in raw]
        self.symbols = [
            symbol
            for section in self.sections
            if section.kind == _SYMBOLS
            for symbol in self._symbols(section)
        ]

    def _head(self) -> tuple[int, int]:
        """Where the table of sections is, and how many there are."""
        found = _HEADER.unpack_from(self._code)
        if found[0][: len(_MAGIC)] != _MAGIC or found[1:3] != (_RELOCATABLE, _X86_64):
            raise _NotPlain("not an object file for x86-64")
        if found[11] != _SECTION.size or not 0 < found[12] < _RESERVED:
            raise _NotPlain("sections of another form")
        return found[6], found[12]

    def _symbols(self, section: _Section) -> list[_Symbol]:
        names = self.content(self.sections[section.link])
        return [
            _Symbol(names[name : names.index(b"\0", name)].decode("ascii"), where, value)
            for name, _, _, where, value, _ in _SYMBOL.iter_unpack(self.content(section))
        ]

    def content(self, section: _Section) -> bytes:
        """The bytes of a section."""
        found = self._code[section.offset : section.offset + section.size]
        if len(found) != section.size:
            raise _NotPlain("the file ends in a section")
        return found

    def relocations(self) -> list[tuple[int, int, _Symbol, int]]:
        """Each word that becomes an address: its section and place, what of, and how far on."""
        found = []
        for section in self.sections:
            if section.kind == _RELOCATIONS and self.sections[section.info].kind != _UNWIND:
                for place, info, more in _RELOCATION.iter_unpack(self.content(section)):
                    if info & 0xFFFFFFFF != _ADDRESS:
                        raise _NotPlain("an address that is not a word of its own")
                    found.append((section.info, place, self.symbols[info >> 32], more))
        return found


def link(code: bytes, symbol: str) -> int | None:
    """The address of a function of this object code, for good; None where it is not plain."""
    if sys.platform != "linux":
        return None
    try:
        return _linked(_Object(code), symbol)
    except (_NotPlain, LookupError, OSError, ValueError, struct.error):
        return None


def _linked(found: _Object, symbol: str) -> int:
    image, places = _laid(found)
    wanted = next((one for one in found.symbols if one.name == symbol), None)
    if wanted is None or wanted.section not in places:
        raise _NotPlain("the function is not in it")
    relocations = found.relocations()
    # Everything that can be missing is looked for before there is memory that stays for good.
    outside = {one.name: _function(one.name) for _, _, one, _ in relocations if not one.section}
    room, base = _room(len(image))

    def address(one: _Symbol) -> int:
        return outside[one.name] if not one.section else base + places[one.section] + one.value

    for number, place, one, more in relocations:
        struct.pack_into("<Q", image, places[number] + place, (address(one) + more) & (2**64 - 1))
    room[: len(image)] = bytes(image)
    _protect(base, len(room))
    _kept.append(room)
    return address(wanted)


def _laid(found: _Object) -> tuple[bytearray, dict[int, int]]:
    """What code needs in one block, and where in it each section is, by number."""
    image, places = bytearray(), dict[int, int]()
    for number, section in enumerate(found.sections):
        if not section.flags & _ALLOCATED or not section.size or section.kind == _UNWIND:
            continue
        plain = section.kind == _BITS and not section.flags & _WRITTEN
        if not plain or section.alignment > mmap.PAGESIZE:
            raise _NotPlain("memory besides code and constants")
        image += bytes(-len(image) % max(section.alignment, 1))
        places[number] = len(image)
        image += found.content(section)
    return image, places


@cache
def _function(name: str) -> int:
    """Where a function is that this process has, as code of C would find it."""
    found = getattr(_process(), name, None)
    address = None if found is None else ctypes.cast(found, ctypes.c_void_p).value
    if address is None:
        raise _NotPlain(f"this process has no {name}")
    return address


@cache
def _process() -> ctypes.CDLL:
    made = ctypes.CDLL(None, use_errno=True)
    made.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return made


#: Blocks of code; functions in them may be called as long as the process lives.
_kept: list[mmap.mmap] = []


def _room(size: int) -> tuple[mmap.mmap, int]:
    """Memory of its own pages, and where it is."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    room = mmap.mmap(-1, size, flags=flags, prot=_WRITABLE)
    return room, ctypes.addressof(ctypes.c_char.from_buffer(room))


def _protect(address: int, size: int) -> None:
    if _process().mprotect(address, size, _EXECUTABLE):
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")
