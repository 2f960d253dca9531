"""Documents as the str that programs read: bytes are decoded by the encoding of their input."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from flour.core.errors import NotDecodable, WrongDtype
from flour.core.types import Text


def documents(column: NDArray[Any], kind: Text, path: str) -> NDArray[Any]:
    """The column's documents; what is already a str is never decoded."""
    decoded = column.astype(object)
    for i, value in enumerate(decoded):
        if not isinstance(value, str):
            decoded[i] = document(value, kind, f"{path}[{i}]")
    return decoded


def document(value: object, kind: Text, where: str) -> str:
    """The document in a value that is no str: bytes are decoded, anything else is an error."""
    if not isinstance(value, bytes):
        found, hint = type(value).__name__, "an empty document is ''"
        raise WrongDtype("expected text", where=where, found=found, hint=hint)
    if not kind.encoding:
        raise WrongDtype("expected text", where=where, found=_short(value), hint=_UNSAID)
    try:
        return value.decode(kind.encoding, kind.errors)
    except UnicodeError as problem:
        raise NotDecodable(
            f"these bytes are no {kind.encoding}",
            where=where,
            found=_spot(value, problem),
            hint="decode or write them anew, or fit with encoding= or with decode_error='replace'",
        ) from problem


_UNSAID = "the input has no encoding (or its readers disagree): decode the bytes first"


def _short(value: bytes) -> str:
    return f"bytes {value[:20]!r}{'...' if len(value) > 20 else ''}"


def _spot(value: bytes, problem: UnicodeError) -> str:
    """The bytes that the codec could not decode."""
    if not isinstance(problem, UnicodeDecodeError):
        return f"{_short(value)}: {problem}"[:120]
    bad = problem.object[problem.start : min(problem.end, problem.start + 4)].hex(" ")
    return f"{bad or 'nothing'} at byte {problem.start} of {len(value)}: {problem.reason}"
