"""The floor of gRPC: the least server on the stack of ours that echoes messages.

It has no HPACK, windows or limits: every block of headers means the same to it. The last of its
arguments is the port.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import Any

import uvloop

_HEAD = struct.Struct(">IBI")
_PREFACE, _DATA, _HEADERS, _SETTINGS, _PING = 24, 0, 1, 4, 6


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    return b"%c%c%b%c%b" % (0, len(name), name, len(value), value)


_BEGIN = _literal(b":status", b"200") + _literal(b"content-type", b"application/grpc")
_END = _literal(b"grpc-status", b"0")
#: As large as windows can be, for the connection and for its streams.
_WIDE = _frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, (1 << 31) - 1))
_WIDE += _frame(8, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65535))


class Bare(asyncio.Protocol):
    """Answers each message with itself."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        self.transport: Any = transport
        self.rest, self.skip = b"", _PREFACE
        transport.write(_WIDE)  # type: ignore[attr-defined]  # it is one that writes

    def data_received(self, data: bytes) -> None:
        """Bytes of frames."""
        data, at = self.rest + data, 0
        out: list[bytes] = []
        if self.skip:
            data, self.skip = data[self.skip :], 0
        end = len(data)
        while end - at >= 9:
            length, flags, stream = _HEAD.unpack_from(data, at)
            kind, stop = length & 255, at + 9 + (length >> 8)
            if stop > end:
                break
            if kind == _DATA and flags & 1:
                out += (
                    _frame(_HEADERS, 4, stream, _BEGIN),
                    _frame(_DATA, 0, stream, data[at + 9 : stop]),
                    _frame(_HEADERS, 5, stream, _END),
                )
            elif kind in {_SETTINGS, _PING} and not flags & 1:
                out.append(_frame(kind, 1, 0, data[at + 9 : stop] if kind == _PING else b""))
            at = stop
        self.rest = data[at:]
        if out:
            self.transport.write(b"".join(out))


async def main(port: int) -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[-1])))
