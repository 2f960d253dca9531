"""Bodies of handlers: values to JSON, JSON to typed values."""

from __future__ import annotations

from typing import Any

import msgspec

from runtime.http.codec.codec_json import decoded
from runtime.http.wire.messages import Request, Response


def json(value: object, status: int = 200) -> Response:
    """A value as the body of a response."""
    return Response(msgspec.json.encode(value), status)


def body_of(request: Request, decoder: msgspec.json.Decoder[Any]) -> Any:
    """The body by a decoder; an empty body counts as an empty object."""
    return decoded(request.body or b"{}", decoder, decoder.type)
