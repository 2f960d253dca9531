"""Bodies in gzip and deflate, both ways; what unpacks to more than is allowed is refused early."""

from __future__ import annotations

import zlib

from runtime.http.messages import Request, Response
from runtime.http.problems import HttpError

_WINDOW = {"gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS, "x-gzip": zlib.MAX_WBITS | 16}
#: The fastest: more would hold up other requests for longer than it saves this one.
_LEVEL = 1
#: More would be there for no other reason than the work.
_LAYERS = 3
#: A packed body of more bytes may be thousands of times as long, and is unpacked on a thread.
SOON = 4 << 10


def unpack(request: Request, most: int) -> None:
    """Replace a packed body by what it holds."""
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
        request.body = _unpacked(request.body, name, most)


def _unpacked(body: bytes, name: str, most: int) -> bytes:
    try:
        made, ended = _inflated(body, _WINDOW[name], most)
        if name == "deflate" and made is None:  # some send it without its header
            made, ended = _inflated(body, -zlib.MAX_WBITS, most)
    except zlib.error:
        made, ended = None, True
    if made is None or not ended:
        raise HttpError(f"the body is no {name} data, or cut off")
    if len(made) > most:
        raise HttpError(f"a body may have {most} bytes when it is unpacked", 413)
    return made


def _inflated(body: bytes, window: int, most: int) -> tuple[bytes | None, bool]:
    """What was packed, as far as that is allowed, and whether it came to its end."""
    stream = zlib.decompressobj(window)
    try:
        made = stream.decompress(body, most + 1)
    except zlib.error:
        return None, False
    return made, len(made) > most or stream.eof


def pack(request: Request, response: Response) -> Response:
    """The response packed as the client accepts it, if it does."""
    name = _accepted(request.header("accept-encoding") or "")
    if name is None or response.status != 200:
        return response
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW[name])
    body = stream.compress(response.body) + stream.flush()
    known = (("Content-Encoding", name), ("Vary", "Accept-Encoding"))
    headers = (*response.headers, *known)
    return Response(body, response.status, response.content_type, headers)


def _accepted(header: str) -> str | None:
    """The packing that a client prefers among ours."""
    weights: dict[str, float] = {}
    for part in header.lower().split(","):
        name, _, weight = part.partition(";")
        weights[name.strip()] = _weight(weight)
    best = max(("gzip", "deflate"), key=lambda each: weights.get(each, weights.get("*", 0.0)))
    return best if weights.get(best, weights.get("*", 0.0)) > 0 else None


def _weight(text: str) -> float:
    name, _, value = text.strip().partition("=")
    try:
        return float(value) if name.strip() == "q" else 1.0
    except ValueError:
        return 0.0
