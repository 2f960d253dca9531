"""`Blob`: an immutable n-dimensional array named by its content.

Every fitted number of every pipeline lives in a blob. Values are brought into one canonical form first (C order,
little-endian, one of twelve dtypes), so that equal content has one digest and, in one process, is one object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from objectstore.digest import array_digest, check_digest
from objectstore.errors import UnstorableValue
from objectstore.interning import Interned

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, DTypeLike, NDArray

ALIGNMENT = 64
"""Bytes: a cache line and the widest vector register; every blob's data starts at a multiple of it."""

DTYPES: Final[dict[str, np.dtype[np.generic]]] = {
    text: np.dtype(text)
    for text in ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
}
"""The canonical dtypes by the text that stands for them in headers and files."""


class Blob:
    """An immutable array named by its content. Make one with `Blob.of`; equal content is the same object."""

    __slots__ = ("__weakref__", "array", "digest")

    array: NDArray[np.generic]
    """The values: read-only, C order, little-endian, aligned to 64 bytes."""
    digest: str
    """The name: 32 hex characters over dtype, shape and bytes."""

    def __init__(self, array: NDArray[np.generic], digest: str) -> None:
        # Only `of` and `view` may call this: they alone know that array and digest belong together.
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "digest", digest)

    @staticmethod
    def of(values: ArrayLike | Blob, dtype: DTypeLike | None = None) -> Blob:
        """The blob with these values, converted to ``dtype`` first when one is given.

        The values are copied: whoever made them may go on writing to them. Only an array that is itself a blob's is
        used as it is.
        """
        if isinstance(values, Blob):
            if dtype is None or np.dtype(dtype) == values.dtype:
                return values
            values = values.array
        array = _frozen(_canonical(values, dtype))
        return _BLOBS.keep_first(Blob(array, array_digest(array)))

    @staticmethod
    def view(array: NDArray[np.generic], digest: str) -> Blob:
        """Wrap an array, without copying, whose digest the caller has verified: a mapped file.

        From now on it stands for its content in this process, so that a later `Blob.of` of the same values uses the
        mapped pages.
        """
        check_digest(digest, "Blob.view")
        if array.dtype.str not in DTYPES or not array.flags.c_contiguous or array.flags.writeable:
            raise UnstorableValue(
                "a blob can only view a canonical read-only array",
                "Blob.view",
                f"{array.dtype.str}, c_contiguous={array.flags.c_contiguous}, writeable={array.flags.writeable}",
                "use Blob.of, which converts and copies",
            )
        return _BLOBS.keep_last(Blob(array, digest))

    @staticmethod
    def live(digest: str) -> Blob | None:
        """The blob of this digest if somebody in this process has it."""
        return _BLOBS.find(digest)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The canonical dtype."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape; ``()`` for a single number."""
        return self.array.shape

    @property
    def nbytes(self) -> int:
        """Bytes of values."""
        return self.array.nbytes

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[np.generic]:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.array)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Blob) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Blob is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Blob is immutable: cannot delete {name!r}")

    def __reduce__(
        self,
    ) -> tuple[Callable[[NDArray[np.generic]], Blob], tuple[NDArray[np.generic]]]:
        # Copies meet again in the table of live blobs, so copy.copy and copy.deepcopy give the same object.
        return Blob.of, (self.array,)

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"Blob({self.dtype.name}[{shape}], {self.digest[:4]}…)"


_BLOBS: Final[Interned[Blob]] = Interned()


def _canonical(values: ArrayLike, dtype: DTypeLike | None) -> NDArray[np.generic]:
    """The values as an array of one of our dtypes, in C order."""
    if isinstance(values, np.ma.MaskedArray):
        raise UnstorableValue(
            "a masked array cannot be stored",
            "Blob.of",
            "a mask",
            "fill it first: values.filled(...)",
        )
    try:
        array = np.asarray(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnstorableValue(
            "these values do not form an array",
            "Blob.of",
            str(error),
            "pass numbers in rows of equal length",
        ) from error
    return np.asarray(array, dtype=_canonical_dtype(array), order="C")


def _canonical_dtype(array: NDArray[np.generic]) -> np.dtype[np.generic]:
    """The dtype of ours with the same values, whatever the byte order."""
    little = array.dtype.newbyteorder("<").str
    if little in DTYPES:
        return DTYPES[little]
    texts = array.dtype.kind in "OUST"
    raise UnstorableValue(
        f"an array of {array.dtype} cannot be stored in a blob",
        "Blob.of",
        f"dtype {array.dtype}, shape {array.shape}",
        "texts go into a string table: Strings.of(values)"
        if texts
        else "convert to bool, int8..int64, uint8..uint64, float16, float32 or float64 first",
    )


def _frozen(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """An aligned copy that nobody can write to: its memory is only reachable through a read-only buffer."""
    room = np.empty(array.nbytes + ALIGNMENT, dtype=np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    part = room[start : start + array.nbytes]
    # Through != 0 every true becomes the byte 1, so that two equal boolean arrays have equal bytes.
    source = array != 0 if array.dtype.kind == "b" else array
    part.view(array.dtype).reshape(array.shape)[...] = source
    frozen = np.frombuffer(part.data.toreadonly(), dtype=array.dtype)
    return frozen.reshape(array.shape)
