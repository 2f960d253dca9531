"""The floor: the least server on the stack of ours that reads and writes the same JSON.

It keeps the target and the headers, as any server has to; it has no routes, limits or models. The
last of its arguments is the port.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httptools
import msgspec
import uvloop


class Input(msgspec.Struct):
    """A tensor that came."""

    name: str
    shape: list[int]
    datatype: str
    data: list[float]


class Asked(msgspec.Struct):
    """A request."""

    inputs: list[Input]


class Output(msgspec.Struct):
    """A tensor that goes."""

    name: str
    datatype: str
    shape: list[int]
    data: list[Any]


class Answer(msgspec.Struct):
    """A response."""

    model_name: str
    model_version: str
    outputs: list[Output]


decode = msgspec.json.Decoder(Asked).decode
encode = msgspec.json.Encoder().encode


class Echo(asyncio.Protocol):
    """Answers with some of the numbers that came."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        self.transport: Any = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        self.url, self.headers, self.body = b"", dict[bytes, bytes](), list[bytes]()

    def on_url(self, url: bytes) -> None:
        """Some of its target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        """Some of its body."""
        self.body.append(body)

    def on_message_complete(self) -> None:
        """The request is complete: answer it."""
        keep = self.parser.should_keep_alive()
        data = decode(b"".join(self.body)).inputs[0].data
        made = [
            Output("probabilities", "FP64", [1, 3], data[:3]),
            Output("scores", "FP64", [1, 3], data[3:6]),
            Output("label", "BYTES", [1], ["c"]),
        ]
        body = encode(Answer("m", "1", made))
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        if not keep:
            self.transport.close()


async def main(port: int) -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[-1])))
