"""The place of a key in a split: the same in every process and on every machine."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from runtime.routing.row import MANY, refuse

#: Places are whole numbers below this one, so that shares need no rounding.
PLACES = 1 << 64


def place(key: object, salt: str) -> int | None:
    """The place of a key among `PLACES`; None for a missing key, which is in no split.

    Whole numbers have the place of their decimal text, whichever type holds them: a client that
    sends "17" and one that sends 17 or 17.0 mean the same user.
    """
    text = _text(key)
    if text is None:
        return None
    salted = f"{len(salt)}:{salt}{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(salted, digest_size=8).digest(), "little")


def _text(key: object) -> str | None:
    """A key as text; None for None and NaN."""
    if isinstance(key, (np.generic, np.ndarray)) and key.ndim == 0:
        key = key.item()
    match key:
        case None:
            return None
        case str():
            return key
        case float() if key != key:  # noqa: PLR0124 (NaN is the number that differs from itself)
            return None
        case float() if key.is_integer():
            return str(int(key))
        case bool() | int() | float():
            return str(key)
    if key is MANY:
        refuse("a column of several rows")
    return None if _is_missing(key) else refuse(type(key).__name__)


def _is_missing(key: object) -> bool:
    """Whether it is what pandas calls NA or NaT."""
    try:
        return bool(key != key)  # noqa: PLR0124 (what is missing does not equal itself)
    except TypeError:  # NA is neither true nor false
        return True
    except ValueError:  # an array is not missing
        return False
