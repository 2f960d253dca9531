"""The floor: an asyncio protocol on uvloop that answers every request with the same bytes."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import uvloop

BODY = json.dumps({"outputs": [{"name": "probabilities", "data": [0.5, 0.5]}]}).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)


class Echo(asyncio.Protocol):
    """Finds the end of each request by its length and looks no further."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        # uvloop's transports are not of asyncio's class, only of its kind.
        self._transport, self._waiting = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole."""
        self._waiting += data
        while (end := self._waiting.find(b"\r\n\r\n")) >= 0:
            head = self._waiting[:end].lower()
            size = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self._waiting) < end + 4 + size:
                return
            self._waiting = self._waiting[end + 4 + size :]
            self._transport.write(ANSWER)


async def main() -> None:
    """Serve until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", int(sys.argv[3]))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
