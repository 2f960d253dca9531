"""Content digests: the name of a parameter is a hash of its canonical bytes.

A digest is BLAKE2b with 128 bits, written as 32 lower-case hexadecimal characters. 128 bits keep accidental collisions
out of reach (2**64 parameters before one is likely) and halve the size of keys. Every hashed part is preceded by its
length, so that two different sequences of parts never hash the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from objectstore.errors import BadDigest

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGEST_CHARS = 32
"""Length of a digest as text."""

_DIGEST_BYTES = DIGEST_CHARS // 2
_HEX = frozenset("0123456789abcdef")

# Changing how content is hashed changes every name in every store: these tags then get another number.
_ARRAY_TAG = "pretzel-array-1"
_STRINGS_TAG = "pretzel-strings-1"


def combine(*parts: str | bytes) -> str:
    """Digest of a sequence of texts and byte strings; ``("ab", "c")`` and ``("a", "bc")`` differ."""
    return _digest(
        part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts
    )


def array_digest(array: NDArray[np.generic]) -> str:
    """Digest of a canonical array: dtype, shape and bytes. Bit identity: NaN payloads and -0.0 count."""
    state = blake2b(digest_size=_DIGEST_BYTES)
    state.update(array_header(array))
    state.update(array.reshape(-1).view(np.uint8))
    return state.hexdigest()


def array_header(array: NDArray[np.generic]) -> bytes:
    """What is hashed ahead of an array's bytes."""
    shape = ",".join(map(str, array.shape))
    return f"{_ARRAY_TAG};{array.dtype.str};{shape};".encode("ascii")


def strings_digest(offsets: str, data: str) -> str:
    """Digest of a string table from the digests of its two arrays."""
    return combine(_STRINGS_TAG, offsets, data)


def bytes_digest(data: bytes | memoryview) -> str:
    """Digest of plain bytes (an archive's manifest)."""
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def is_digest(text: object) -> bool:
    """Whether this is the text of a digest."""
    return isinstance(text, str) and len(text) == DIGEST_CHARS and _HEX.issuperset(text)


def check_digest(text: str, where: str) -> str:
    """The text itself if it is a digest, an error otherwise: digests become file names."""
    if not is_digest(text):
        raise BadDigest(
            "this is not a digest",
            where,
            repr(text)[:80],
            f"a digest is {DIGEST_CHARS} lower-case hex characters",
        )
    return text


def _digest(parts: Iterable[bytes]) -> str:
    state = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()
