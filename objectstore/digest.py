"""Content digests: the name of a parameter is a hash of its canonical bytes.

A digest is BLAKE2b with 128 bits, written as 32 lower-case hexadecimal characters. That keeps
accidental collisions out of reach (2**64 parameters before one is likely) and keys short. Every
hashed part is preceded by its length or ends in a mark, so that no two different sequences of
parts hash the same bytes.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from objectstore.errors import BadDigest

DIGEST_CHARS = 32
"""Length of a digest as text."""

DIGEST_BYTES = DIGEST_CHARS // 2
"""Length of a digest as bytes."""

_HEX = frozenset("0123456789abcdef")

# Another way of hashing content changes every name in every store: these tags change with it.
_ARRAY_TAG = "pretzel-array-1"
_STRINGS_TAG = "pretzel-strings-1"


def combine(*parts: str | bytes) -> str:
    """Digest of a sequence of texts and byte strings; ("ab", "c") and ("a", "bc") differ."""
    state = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def array_digest(array: NDArray[np.generic]) -> str:
    """Digest of a canonical array: dtype, shape, bytes. NaN payloads and -0.0 count as bytes."""
    shape = ",".join(map(str, array.shape))
    header = f"{_ARRAY_TAG};{array.dtype.str};{shape};"  # no dtype or shape contains its last mark
    state = blake2b(header.encode("ascii"), digest_size=DIGEST_BYTES)
    state.update(array.reshape(-1).data)
    return state.hexdigest()


def strings_digest(offsets: str, data: str) -> str:
    """Digest of a string table from the digests of its two arrays."""
    return combine(_STRINGS_TAG, offsets, data)


def is_digest(text: object) -> bool:
    """True if this is the text of a digest."""
    return isinstance(text, str) and len(text) == DIGEST_CHARS and _HEX.issuperset(text)


def check_digest(text: str, where: str) -> str:
    """The text itself if it is a digest, an error otherwise: digests become file names."""
    if is_digest(text):
        return text
    raise BadDigest(
        "this is not a digest",
        where=where,
        found=f"{text!r:.80}",
        hint=f"a digest is {DIGEST_CHARS} lower-case hexadecimal characters",
    )
