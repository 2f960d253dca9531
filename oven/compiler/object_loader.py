"""Loads the simple object files that our compiler writes, without the compiler's own loader.

The compiler's own loader keeps a copy of each object file, its tables of symbols and a page for
each of its sections, and brings ten megabytes of itself into memory to load the first. Object files
of our compiler need none of that: they hold code, constants, and 64-bit addresses of both and of
functions of the C library. So an object is copied into one block of memory, its addresses are
written there, and the block is made executable and no longer writable.

Only ELF for x86-64 is supported. For any other object `link` returns None, and the compiler's
loader takes over: see oven.compiler.machine.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from functools import cache
from typing import NamedTuple

from objectstore import system

_MAGIC = b"\x7fELF\x02\x01\x01"
_RELOCATABLE, _X86_64 = 1, 62
_WRITTEN, _ALLOCATED = 1, 2  # section flags: writable; in memory at run time
_BITS, _SYMBOLS, _RELOCATIONS = 1, 2, 4
_UNWIND = 0x70000001  # tables for unwinding exceptions: none passes through our code
_ADDRESS = 1  # the one supported relocation: a 64-bit address
_UNDEFINED, _RESERVED = 0, 0xFF00
_WRITABLE, _EXECUTABLE = 1 | 2, 1 | 4  # readable, too; `mmap` of Windows has no such names

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")


class _NotPlain(Exception):
    """This object needs the compiler's loader."""


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
    """An object file: its sections, its symbols and its relocations."""

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
        """The offset of the table of sections, and the number of sections."""
        header = _HEADER.unpack_from(self._code)
        if header[0][: len(_MAGIC)] != _MAGIC or header[1:3] != (_RELOCATABLE, _X86_64):
            raise _NotPlain("not an object file for x86-64")
        if header[11] != _SECTION.size or not 0 < header[12] < _RESERVED:
            raise _NotPlain("sections of another form")
        return header[6], header[12]

    def _symbols(self, section: _Section) -> list[_Symbol]:
        names = self.content(self.sections[section.link])
        return [
            _Symbol(names[name : names.index(b"\0", name)].decode("ascii"), section_number, value)
            for name, _, _, section_number, value, _ in _SYMBOL.iter_unpack(self.content(section))
        ]

    def content(self, section: _Section) -> bytes:
        """The bytes of a section."""
        content = self._code[section.offset : section.offset + section.size]
        if len(content) != section.size:
            raise _NotPlain("the file ends in a section")
        return content

    def relocations(self) -> list[tuple[int, int, _Symbol, int]]:
        """Each relocation: section number, offset in it, symbol and addend."""
        relocations = []
        for section in self.sections:
            if section.kind == _RELOCATIONS and self.sections[section.info].kind != _UNWIND:
                for offset, info, addend in _RELOCATION.iter_unpack(self.content(section)):
                    if info & 0xFFFFFFFF != _ADDRESS:
                        raise _NotPlain("an address that is not a word of its own")
                    relocations.append((section.info, offset, self.symbols[info >> 32], addend))
        return relocations


def link(code: bytes, symbol: str) -> int | None:
    """Load object code; return the function's address, None if it needs the compiler's loader."""
    if not system.LINUX:
        return None
    try:
        return _load(_Object(code), symbol)
    except (_NotPlain, LookupError, OSError, ValueError, struct.error):
        return None


def _load(parsed: _Object, symbol: str) -> int:
    image, offsets = _layout(parsed)
    function = next((target for target in parsed.symbols if target.name == symbol), None)
    if function is None or function.section not in offsets:
        raise _NotPlain("the function is not in it")
    relocations = parsed.relocations()
    # All lookups that can fail come first: the block below is never freed.
    outside = {
        target.name: _function(target.name) for _, _, target, _ in relocations if not target.section
    }
    # New pages of memory, and their address.
    size = len(image)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    pages = mmap.mmap(-1, size, flags=flags, prot=_WRITABLE)
    block, base = pages, ctypes.addressof(ctypes.c_char.from_buffer(pages))

    def address(target: _Symbol) -> int:
        return (
            outside[target.name]
            if not target.section
            else base + offsets[target.section] + target.value
        )

    for number, offset, target, addend in relocations:
        struct.pack_into(
            "<Q", image, offsets[number] + offset, (address(target) + addend) & (2**64 - 1)
        )
    block[: len(image)] = bytes(image)
    if _process().mprotect(base, len(block), _EXECUTABLE):
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")
    _blocks.append(block)
    return address(function)


def _layout(parsed: _Object) -> tuple[bytearray, dict[int, int]]:
    """The sections that code needs as one block, and the offset of each by its number."""
    image, offsets = bytearray(), dict[int, int]()
    for number, section in enumerate(parsed.sections):
        if not section.flags & _ALLOCATED or not section.size or section.kind == _UNWIND:
            continue
        plain = section.kind == _BITS and not section.flags & _WRITTEN
        if not plain or section.alignment > mmap.PAGESIZE:
            raise _NotPlain("memory besides code and constants")
        image += bytes(-len(image) % max(section.alignment, 1))
        offsets[number] = len(image)
        image += parsed.content(section)
    return image, offsets


@cache
def _function(name: str) -> int:
    """The address of a C function in this process."""
    function = getattr(_process(), name, None)
    address = None if function is None else ctypes.cast(function, ctypes.c_void_p).value
    if address is None:
        raise _NotPlain(f"this process has no {name}")
    return address


@cache
def _process() -> ctypes.CDLL:
    process = system.c_library()
    process.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return process


#: Blocks of code, kept alive: functions in them may be called as long as the process lives.
_blocks: list[mmap.mmap] = []


def _protect(address: int, size: int) -> None:
    if _process().mprotect(address, size, _EXECUTABLE):
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")
