"""A request of HTTP/1.1 and its answer, over streams of asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter


class Reply(NamedTuple):
    """An answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


async def asked(
    reader: StreamReader,
    writer: StreamWriter,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> tuple[Reply, bool]:
    """The answer, and True if the connection can be used again.

    Where there is none it raises OSError, EOFError, ValueError, or asyncio's LimitOverrunError.
    """
    lines = [f"{method} {target} HTTP/1.1", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join((*lines, "\r\n")).encode("latin-1")
    writer.write(head + body)
    await writer.drain()
    status = 100
    while status < 200:  # what comes before the answer says nothing to a client
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = text[:-4].split("\r\n")
        status = int(line[9:12])
    pairs = (each.partition(":") for each in lines)
    fields = {name.lower(): value.strip() for name, _, value in pairs}
    ends = "close" in fields.get("connection", "").lower() or line[:8] != "HTTP/1.1"
    answer, pieces = b"", list[bytes]()
    if "chunked" in fields.get("transfer-encoding", "").lower():
        while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        while await reader.readuntil(b"\r\n") != b"\r\n":
            """A trailer, which means nothing here."""
        answer = b"".join(pieces)
    elif "content-length" in fields and method != "HEAD" and status != 304:
        answer = await reader.readexactly(int(fields["content-length"]))
    elif not (method == "HEAD" or status in {204, 304}):
        answer, ends = await reader.read(-1), True
    return Reply(status, fields, answer), not ends
