"""A small HTTP client for load: complete requests built beforehand, answers by length."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from bench.histogram import Histogram


class Connection:
    """One persistent connection."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        """Connect."""
        self._read, self._write = await asyncio.open_connection("127.0.0.1", self._port)

    async def __aenter__(self) -> Connection:
        """Connect; hang up at the end in any case."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def ask(self, request: bytes) -> bytes:
        """Send a request and read its answer's body."""
        self._write.write(request)
        try:
            head = (await self._read.readuntil(b"\r\n\r\n")).lower()
        except asyncio.IncompleteReadError as problem:
            raise ConnectionError("it hung up without an answer") from problem
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            size = int((head + b"content-length: 0\r\n").split(b"content-length:")[1].split()[0])
            said = await self._read.readexactly(size)
            raise ConnectionError(f"{head[:40]!r} {said[:200]!r}")
        if b"content-length:" not in head:
            made = b""
            while size := int(await self._read.readuntil(b"\r\n"), 16):
                made += (await self._read.readexactly(size + 2))[:-2]
            await self._read.readuntil(b"\r\n")
            return made
        return await self._read.readexactly(int(head.split(b"content-length:")[1].split()[0]))

    def close(self) -> None:
        """Hang up."""
        self._write.close()


def answer(port: int, request: bytes) -> list[float]:
    """The numbers of the first output of one answer."""

    async def once() -> bytes:
        async with Connection(port) as connection:
            return await connection.ask(request)

    said: dict[str, Any] = json.loads(asyncio.run(once()))
    return [float(each) for each in said["outputs"][0]["data"]]


def race(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Histogram:
    """Times of requests: each connection sends its next request after its last answer."""
    times = Histogram()

    async def one(number: int, end: float) -> None:
        index = number
        async with Connection(port) as connection:
            while time.perf_counter() < end:
                start = time.perf_counter_ns()
                await connection.ask(requests[index % len(requests)])
                times.add([time.perf_counter_ns() - start])
                index += connections

    async def every() -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(one(number, end) for number in range(connections)))

    asyncio.run(every())
    return times
