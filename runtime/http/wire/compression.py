"""Bodies in gzip and deflate, both ways; a body that is too large unpacked is refused early."""

from __future__ import annotations

import zlib

from runtime.http.wire.messages import Request, Response
from runtime.http.wire.problems import HttpError

_WINDOW = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS, "x-gzip": zlib.MAX_WBITS | 16}
#: The fastest level: a higher one would delay other requests for longer than it saves.
_LEVEL = 1
#: Most encodings on top of each other; more would only cost time.
_LAYERS = 3
#: Most members of a gzip stream: what is behind each is copied.
_MEMBERS = 64
#: Compressed bodies of more bytes are decompressed on a thread: they may be thousands of times as
#: long.
SOON = 4 << 10


def unpack(request: Request, most: int) -> None:
    """Replace a compressed body by its content."""
    names = (request.header("content-encoding") or "").lower().split(",")
    if len(names) > _LAYERS:
        raise HttpError("a body is not packed so often", 415, found=f"{len(names)} times")
    for name in reversed([each.strip() for each in names]):
        if name in {"", "identity"}:
            continue
        if name not in _WINDOW:
            raise HttpError(
                "this content encoding is not known",
                415,
                found=name[:40],
                hint="gzip, deflate or none",
                headers={"Accept-Encoding": "gzip, deflate"},
            )
        try:
            content, ended = _inflated(request.body, _WINDOW[name], most)
            if name == "deflate" and content is None:  # some send it without its header
                content, ended = _inflated(request.body, -zlib.MAX_WBITS, most)
        except zlib.error:
            content, ended = None, False
        if content is None or not ended:
            raise HttpError(f"the body is no {name} data, or cut off")
        if len(content) > most:
            raise HttpError(f"a body may have {most} bytes when it is unpacked", 413)
        request.body = content


def _inflated(body: bytes | memoryview, window: int, most: int) -> tuple[bytes | None, bool]:
    """The content up to the limit, and whether the stream was complete.

    gzip has members, one behind the other; behind any other stream there is nothing.
    """
    parts: list[bytes] = []
    size, rest = 0, body
    for _ in range(_MEMBERS if window == _WINDOW["gzip"] else 1):
        stream = zlib.decompressobj(window)
        try:
            parts.append(stream.decompress(rest, most + 1 - size))
        except zlib.error:
            return None, False
        size += len(parts[-1])
        rest = stream.unused_data
        if size > most or not rest:
            return b"".join(parts), size > most or stream.eof
    return None, False


def pack(request: Request, response: Response) -> Response:
    """The response, compressed if the client accepts it."""
    # The encoding that a client prefers among ours.
    header = request.header("accept-encoding") or ""
    weights: dict[str, float] = {}
    for part in header.lower().split(","):
        name, _, weight = part.partition(";")
        weights[name.strip()] = _weight(weight)
    best = max(("gzip", "deflate"), key=lambda each: weights.get(each, weights.get("*", 0.0)))
    if weights.get(best, weights.get("*", 0.0)) <= 0 or response.status != 200:
        return response
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW[best])
    body = stream.compress(response.body) + stream.flush()
    encoding = (("Content-Encoding", best), ("Vary", "Accept-Encoding"))
    headers = (*response.headers, *encoding)
    return Response(body, response.status, response.content_type, headers)


def _weight(text: str) -> float:
    name, _, value = text.strip().partition("=")
    try:
        return float(value) if name.strip() == "q" else 1.0
    except ValueError:
        return 0.0
