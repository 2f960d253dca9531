"""Bodies of handlers: values to JSON, JSON to typed values."""

from __future__ import annotations

from typing import Any

import msgspec

from runtime.http.codec.array_pieces import LARGE
from runtime.http.codec.codec_json import decoded
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.problems import HttpError


def json(value: object, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """A value as the body of a response."""
    return Response(msgspec.json.encode(value), status, headers=headers)


def body_of(request: Request, decoder: msgspec.json.Decoder[Any]) -> Any:
    """The body by a decoder; an empty body counts as an empty object."""
    if len(request.body) > LARGE:  # nobody else is answered while it is decoded
        found = f"{len(request.body)} bytes"
        raise HttpError(f"bodies of this path have up to {LARGE} bytes", 413, found=found)
    return decoded(request.body or b"{}", decoder, decoder.type)
