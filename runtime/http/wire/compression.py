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
#: Bytes that are unpacked at once.
_PIECE = 256 << 10
#: A body that is longer than this may be so many times as long as it was when it was packed: a
#: table whose values repeat is packed to a 200th.
_MUCH, _RATIO = 16 << 20, 100
#: A body that is longer than this is not copied.
_LITTLE = 1 << 20
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
        content, ended = _inflated(request.body, _WINDOW[name], most)
        if name == "deflate" and content is None:  # some send it without its header
            content, ended = _inflated(request.body, -zlib.MAX_WBITS, most)
        if content is None or not ended:
            raise HttpError(f"the body is no {name} data, or cut off")
        if len(content) > most:
            raise HttpError(f"a body may have {most} bytes when it is unpacked", 413)
        request.body = content


def _inflated(
    body: bytes | memoryview, window: int, most: int
) -> tuple[bytes | memoryview | None, bool]:
    """The content up to the limit, and whether the stream was complete.

    gzip has members, one behind the other; behind any other stream there is nothing. It is made in
    pieces, between which other threads have their turn.
    """
    made, rest, at, members = bytearray(), b"", 0, _MEMBERS if window == _WINDOW["gzip"] else 1
    stream = zlib.decompressobj(window)
    while len(made) <= most and (rest or at < len(body)):
        if stream.eof:
            members -= 1
            stream = zlib.decompressobj(window)
        if not members:
            return None, False
        piece = rest or body[at : at + _PIECE]
        at += 0 if rest else len(piece)
        try:
            made += stream.decompress(piece, _PIECE)
        except zlib.error:
            return None, False
        rest = stream.unconsumed_tail or stream.unused_data
        if len(made) > max(_MUCH, _RATIO * len(body)):
            what = f"a body of more than 16 MiB is packed to a {_RATIO}th at most"
            raise HttpError(what, 413, hint="send it unpacked, or in several requests")
    if len(made) <= most:
        made += stream.flush()
    whole = bytes(made) if len(made) <= _LITTLE else memoryview(made).toreadonly()
    return whole, len(made) > most or stream.eof


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
