"""Long arrays kept in pieces, so that what grows at its end shares its beginning.

A booster that is trained further is the trees it had and some more: every array of its nodes is
the old one and something behind it. A blob is named by all of its content, so the two would share
nothing. Cut at places that depend on nothing but the number of bytes before them, they share every
piece but the old one's last, in memory, in stores and in files, wherever blobs are shared.

Short arrays stay blobs. Pieces get longer along the array (a sixteenth of what is before them), so
that an array has few of them and the last one is a small part of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from objectstore import Blob, UnstorableValue, combine

#: No piece is shorter: in a store each is a file of its own, with a name in every list.
PIECE_BYTES = 1 << 13
_SHARE = 16


class Pieces:
    """An immutable array of rows whose parts are blobs; joined only while it is read as a whole."""

    __slots__ = ("__weakref__", "_whole", "digest", "parts")

    def __init__(self, parts: Sequence[Blob]) -> None:
        first = parts[0]
        for part in parts:
            if not part.shape or (part.dtype, part.shape[1:]) != (first.dtype, first.shape[1:]):
                raise UnstorableValue(
                    "the pieces of an array have one dtype and rows of one shape",
                    where="Pieces",
                    found=f"{first!r} and {part!r}",
                )
        self.parts = tuple(parts)
        self.digest = combine("Pieces", *(part.digest for part in parts))
        self._whole: weakref.ref[NDArray[np.generic]] | None = None

    @property
    def array(self) -> NDArray[np.generic]:
        """All of it in one piece, which lives as long as others refer to it."""
        found = None if self._whole is None else self._whole()
        if found is None:
            found = np.concatenate([part.array for part in self.parts])
            found.flags.writeable = False
            self._whole = weakref.ref(found)
        return found

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The dtype of all parts."""
        return self.parts[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return (len(self), *self.parts[0].shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of values."""
        return sum(part.nbytes for part in self.parts)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def __array__(
        self,
        dtype: Any = None,
        copy: bool | None = None,  # noqa: FBT001  # numpy's protocol
    ) -> NDArray[np.generic]:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pieces) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"Pieces({self.dtype.name}[{shape}] in {len(self.parts)}, {self.digest[:4]}…)"


#: An array that is in pieces where it is long.
Long: TypeAlias = Blob | Pieces


def in_pieces(value: Any) -> Long:
    """The values as one blob where they are few, else in pieces (pieces stay as they are)."""
    if isinstance(value, Pieces):
        return value
    if isinstance(value, tuple) and value and all(isinstance(part, Blob) for part in value):
        return Pieces(value)
    if isinstance(value, Blob) and value.nbytes <= PIECE_BYTES:
        return value
    array = value if type(value) is np.ndarray else Blob.of(value).array
    cuts = _cuts(len(array), array.nbytes // len(array)) if array.ndim and array.size else [0]
    if len(cuts) == 1:
        return Blob.of(value)
    ends = [*cuts[1:], len(array)]
    # Copies, though a blob is at hand: a piece that is known already takes no memory then.
    return Pieces([Blob.of(array[i:j]) for i, j in zip(cuts, ends, strict=True)])


def whole(value: Long) -> Blob:
    """The array as one blob, for native code, which reads it from one place."""
    return value if isinstance(value, Blob) else Blob.of(value.array)


@contextmanager
def assembled(*values: Long) -> Iterator[None]:
    """Have the arrays whole meanwhile, so that they are joined once, not for each reader."""
    arrays = [value.array for value in values]
    yield
    del arrays


def _cuts(rows: int, row_bytes: int) -> list[int]:
    """At which rows the pieces of so many rows begin."""
    cuts, size = [0], max(PIECE_BYTES // row_bytes, 1)
    while cuts[-1] + size < rows:
        cuts.append(cuts[-1] + size)
        size = max(size, cuts[-1] // _SHARE)
    return cuts


__all__ = ["PIECE_BYTES", "Long", "Pieces", "assembled", "in_pieces", "whole"]
