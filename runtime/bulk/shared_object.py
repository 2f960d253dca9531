"""A shared object of one function that jumps to an address of this process.

DuckDB gives its C API to extensions, which are shared objects that it loads by path. What it should
call is a function of ours that exists already, so the file holds a jump and nothing that would
have to be compiled or linked. It is good for this process only.
"""

from __future__ import annotations

import platform
import struct
import sys

_PAGE = 0x1000
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_EXECUTE, _WRITE, _READ = 1, 2, 4
_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT = 4, 5, 6, 10, 11
_HEADERS, _HEADER, _SYMBOL = 64, 56, 24
#: By machine: its number in ELF, and a jump to the address that follows these bytes.
_MACHINES = {
    "x86_64": (62, bytes.fromhex("ff2500000000")),  # jmp [rip]
    "aarch64": (183, bytes.fromhex("5000005800021fd6")),  # ldr x16, 8; br x16
}


def is_possible() -> bool:
    """Whether this machine loads such files."""
    return sys.platform == "linux" and platform.machine() in _MACHINES


def shared_object(function: str, address: int) -> bytes:
    """The bytes of an ELF file for this machine that exports `function`."""
    machine, jump = _MACHINES[platform.machine()]
    names = b"\0" + function.encode() + b"\0"
    code = (jump + struct.pack("<Q", address)).ljust(16, b"\0")
    start = _HEADERS + 4 * _HEADER
    places = _places(start, len(code), 2 * _SYMBOL, len(names))
    code_at, symbols_at, names_at, hash_at, end = places
    symbols = bytes(_SYMBOL) + struct.pack("<IBBHQQ", 1, 0x12, 0, 1, code_at, len(code))
    table = struct.pack("<5I", 1, 2, 1, 0, 0)  # one bucket, which has the second symbol
    tags = {_HASH: hash_at, _STRTAB: names_at, _SYMTAB: symbols_at, _STRSZ: len(names)}
    tags |= {_SYMENT: _SYMBOL, 0: 0}
    dynamic = b"".join(struct.pack("<QQ", *each) for each in tags.items())
    parts = ((code, code_at), (symbols, symbols_at), (names, names_at), (table, hash_at))
    made = bytearray(_PAGE + len(dynamic))
    made[:_HEADERS] = struct.pack(
        *("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, machine, 1, 0, _HEADERS, 0),
        *(0, _HEADERS, _HEADER, 4, 64, 0, 0),
    )
    headers = (
        (_LOAD, _READ | _EXECUTE, 0, end, _PAGE),
        (_LOAD, _READ | _WRITE, _PAGE, len(dynamic), _PAGE),
        (_DYNAMIC, _READ | _WRITE, _PAGE, len(dynamic), 8),
        (_STACK, _READ | _WRITE, 0, 0, 16),
    )
    made[_HEADERS:start] = b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, align)
        for kind, flags, at, size, align in headers
    )
    for part, at in parts:
        made[at : at + len(part)] = part
    made[_PAGE:] = dynamic
    return bytes(made)


def _places(start: int, *sizes: int) -> tuple[int, ...]:
    """Where parts of these sizes go, and where the last one, a hash table, begins and ends."""
    places = []
    for size in sizes:
        start = -(-start // 16) * 16
        places.append(start)
        start += size
    start = -(-start // 16) * 16
    return (*places, start, start + 20)
