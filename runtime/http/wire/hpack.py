"""Header blocks of HTTP/2 (HPACK, RFC 7541): a decoder, and the blocks of responses.

Blocks of responses use no table, so each is a constant, or a few constants put together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

#: The size of the dynamic table, as HTTP/2 has it where nothing else is agreed on.
TABLE_BYTES = 4096
#: Most header fields of a request, over any version of HTTP.
MOST_FIELDS = 128
#: The bytes of an entry besides its name and value.
_ENTRY_BYTES = 32

Field = tuple[bytes, bytes]

_VALUES = {
    ":method": ("GET", "POST"),
    ":path": ("/", "/index.html"),
    ":scheme": ("http", "https"),
    ":status": ("200", "204", "206", "304", "400", "404", "500"),
    "accept-encoding": ("gzip, deflate",),
}
_NAMES = (
    ":authority :method :path :scheme :status accept-charset accept-encoding accept-language "
    "accept-ranges accept access-control-allow-origin age allow authorization cache-control "
    "content-disposition content-encoding content-language content-length content-location "
    "content-range content-type cookie date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified link location "
    "max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server "
    "set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate"
)
#: The static table; fields count from 1.
STATIC: tuple[Field, ...] = (
    (b"", b""),
    *((n.encode(), v.encode()) for n in _NAMES.split() for v in _VALUES.get(n, ("",))),
)

#: Lengths of the Huffman codes of all bytes and the end, a letter each: A is 5 bits. Codes are
#: numbered by length, and among those of a length by byte.
_LENGTHS = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDCD"
    "IOIJBKABABABBBACCBBBABCBAABCCCCCKGJIXPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQSRSSP"
    "RRRSRRSVVPORSRUVVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWVZ"
)


def _codes() -> tuple[list[tuple[int, int]], dict[tuple[int, int], int]]:
    """Bytes by the next 8 bits, with their code's length; those of longer codes by length, code."""
    short, long = [(0, 0)] * 256, {}
    lengths = [ord(letter) - ord("A") + 5 for letter in _LENGTHS]
    code = before = 0
    for byte in sorted(range(256), key=lambda each: (lengths[each], each)):
        length = lengths[byte]
        code, before = code << (length - before), length
        if length <= 8:
            for rest in range(1 << (8 - length)):
                short[code << (8 - length) | rest] = byte, length
        else:
            long[length, code] = byte
        code += 1
    return short, long


_SHORT, _LONG = _codes()


class HpackError(Exception):
    """A block that cannot be decoded; what follows it on its connection cannot be, either."""


def huffman(data: bytes) -> bytes:
    """The text behind its Huffman codes."""
    out = bytearray()
    bits = count = 0  # bits that were not used yet
    for each in data:
        bits, count = bits << 8 | each, count + 8
        while count >= 8:
            byte, length = _SHORT[bits >> (count - 8)]
            if not length:
                byte, length = _long(bits, count)
                if not length:
                    break  # the code goes on
            out.append(byte)
            count -= length
            bits &= (1 << count) - 1
    while 0 < count < 8:
        byte, length = _SHORT[bits << (8 - count) | (1 << (8 - count)) - 1]
        if not 0 < length <= count:
            break
        out.append(byte)
        count -= length
        bits &= (1 << count) - 1
    if count > 7 or bits != (1 << count) - 1:
        raise HpackError("the end of a Huffman text is not padded with ones")
    return bytes(out)


def _long(bits: int, count: int) -> tuple[int, int]:
    """The byte of a code of more than 8 bits, and its length; 0 if it is not all there."""
    for length in range(10, min(count, 30) + 1):
        byte = _LONG.get((length, bits >> (count - length)))
        if byte is not None:
            return byte, length
    if count >= 30:
        raise HpackError("no Huffman code")
    return 0, 0


class HeaderDecoder:
    """Decodes the blocks of one connection, in order."""

    __slots__ = ("_at", "_block", "_entries", "_limit", "_size", "changes")

    def __init__(self) -> None:
        self._entries: deque[Field] = deque()  # the newest first
        self._size, self._limit = 0, TABLE_BYTES
        self._block, self._at = b"", 0
        #: How often the table was changed: a block means the same until it is.
        self.changes = 0

    def decode(self, block: bytes, most: int) -> list[Field] | None:
        """The fields of a block; None if they are too many, or beyond `most` bytes in all.

        Far beyond that it is refused: a byte can stand for a whole entry of the table.
        """
        self._block, self._at = block, 0
        fields: list[Field] | None = []
        size, end = 0, len(block)
        while self._at < end:
            first = block[self._at]
            if first & 0x80:
                field = self._field(self._integer(0x7F))
            elif first & 0x40:
                field = self._literal(0x3F)
                self._add(field)
            elif first & 0x20:
                if size or self._resize(self._integer(0x1F)):
                    raise HpackError("the table is resized where it may not be, or beyond 4,096")
                continue
            else:
                field = self._literal(0x0F)
            size += len(field[0]) + len(field[1]) + _ENTRY_BYTES
            if size > 2 * most:
                raise HpackError("the headers are too large")
            if size > most or (fields is not None and len(fields) == MOST_FIELDS):
                fields = None  # what follows may still change the table
            elif fields is not None:
                fields.append(field)
        return fields

    def _integer(self, mask: int) -> int:
        block, at = self._block, self._at
        value = block[at] & mask
        at += 1
        if value == mask:
            for shift in (0, 7, 14, 21, 28):
                if at >= len(block) or shift == 28:
                    raise HpackError("a number is cut off, or too large")
                value += (block[at] & 0x7F) << shift
                at += 1
                if not block[at - 1] & 0x80:
                    break
        self._at = at
        return value

    def _field(self, index: int) -> Field:
        if 0 < index < len(STATIC):
            return STATIC[index]
        if not 0 < index < len(STATIC) + len(self._entries):
            raise HpackError("there is no such entry in the table")
        return self._entries[index - len(STATIC)]

    def _literal(self, mask: int) -> Field:
        index = self._integer(mask)
        return (self._field(index)[0] if index else self._text()), self._text()

    def _text(self) -> bytes:
        if self._at >= len(self._block):
            raise HpackError("a text is cut off")
        packed = self._block[self._at] & 0x80
        length = self._integer(0x7F)
        start, self._at = self._at, self._at + length
        if self._at > len(self._block):
            raise HpackError("a text is cut off")
        text = self._block[start : self._at]
        return huffman(text) if packed else text

    def _add(self, field: Field) -> None:
        self.changes += 1
        self._entries.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + _ENTRY_BYTES
        self._evict()

    def _resize(self, limit: int) -> bool:
        """Set the table's size; True if it is too large."""
        self.changes += 1
        self._limit = limit
        self._evict()
        return limit > TABLE_BYTES

    def _evict(self) -> None:
        while self._size > self._limit:
            name, value = self._entries.pop()
            self._size -= len(name) + len(value) + _ENTRY_BYTES


def encoded(fields: Iterable[tuple[str, str]]) -> bytes:
    """A block of these fields, which changes no table."""
    return b"".join(b"\0" + _text(name.lower()) + _text(value) for name, value in fields)


def _text(text: str) -> bytes:
    data = text.encode("latin-1", "replace")
    size = len(data)
    return (bytes((size,)) if size < 0x7F else b"\x7f" + varint(size - 0x7F)) + data


def varint(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first, as HPACK and protobuf write it."""
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*digits, value))
