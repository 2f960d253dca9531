"""The least server on the same stack that reads the same request and writes the same answer.

It keeps the target and the headers, as any server has to; it has no routes, limits or models. Run
as a script with a port, by test_bench_http.py.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httptools
import msgspec
import uvloop


class Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: list[float]


class Asked(msgspec.Struct):
    inputs: list[Input]


class Output(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    data: list[Any]


class Answer(msgspec.Struct):
    model_name: str
    model_version: str
    outputs: list[Output]


decode = msgspec.json.Decoder(Asked).decode
encode = msgspec.json.Encoder().encode


class Echo(asyncio.Protocol):
    """Answers with some of the numbers that came."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_begin(self) -> None:
        self.url, self.headers, self.body = b"", dict[bytes, bytes](), list[bytes]()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        keep = self.parser.should_keep_alive()
        data = decode(b"".join(self.body)).inputs[0].data
        made = [
            Output("label", "BYTES", [1], ["c"]),
            Output("probabilities", "FP64", [1, 3], data[:3]),
            Output("scores", "FP64", [1, 3], data[3:6]),
        ]
        body = encode(Answer("m", "1", made))
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        if not keep:
            self.transport.close()


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1])))
