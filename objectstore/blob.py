"""`Blob`: an immutable n-dimensional array named by its content.

Every fitted number of every pipeline lives in a blob. Values are brought into one canonical
form first (C order, little-endian, one of twelve dtypes), so that equal content has one digest
and, in one process, is one object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from objectstore.digest import array_digest, check_digest
from objectstore.errors import UnstorableValue
from objectstore.interning import Interned

ALIGNMENT = 64
"""Bytes: a cache line and the widest vector register; a blob's data starts at a multiple of it."""

MAX_DIMENSIONS = 8
"""More than any fitted parameter has; it gives files a table of contents with fixed records."""

DTYPES: Final[dict[str, np.dtype[np.generic]]] = {
    text: np.dtype(text)
    for text in "|b1 |i1 <i2 <i4 <i8 |u1 <u2 <u4 <u8 <f2 <f4 <f8".split()  # noqa: SIM905  # shorter
}
"""The canonical dtypes by the text that stands for them in digests and files."""


class Blob:
    """An immutable array named by its content: made by `Blob.of`, equal content is one object."""

    __slots__ = ("__weakref__", "array", "digest")

    array: NDArray[np.generic]
    """The values: read-only, C order, little-endian, aligned to 64 bytes."""
    digest: str
    """The name: 32 hexadecimal characters over dtype, shape and bytes."""

    def __init__(self, array: NDArray[np.generic], digest: str) -> None:
        # For `of` and `view` only: they alone know that array and digest belong together.
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "digest", digest)

    @staticmethod
    def of(values: ArrayLike | Blob, dtype: DTypeLike | None = None) -> Blob:
        """The blob with these values, converted to `dtype` first when one is given.

        The values are copied, because the caller may go on writing to them (an array that is marked
        read-only can be made writeable again by its owner).
        """
        if isinstance(values, Blob):
            if dtype is None or np.dtype(dtype) == values.dtype:
                return values
            values = values.array
        array = _canonical(values, dtype)
        # `!= 0` makes every true the byte 1, so that equal boolean arrays have equal bytes.
        array = frozen(array != 0 if array.dtype.kind == "b" else array)
        return _BLOBS.keep_first(Blob(array, array_digest(array)))

    @staticmethod
    def view(array: NDArray[np.generic], digest: str, *, preferred: bool = False) -> Blob:
        """Wrap, without copying, a canonical array whose digest the caller has verified.

        A `preferred` blob becomes the live one for its content even if there is one already, so
        that a later `Blob.of` of the same values uses the pages that all processes share.
        """
        check_digest(digest, "Blob.view")
        if not _is_canonical(array):
            raise UnstorableValue(
                "a blob can only view a canonical read-only array",
                where="Blob.view",
                found=f"dtype {array.dtype.str}, {array.ndim} dimensions\n{array.flags}",
                hint="use Blob.of, which converts and copies",
            )
        blob = Blob(array, digest)
        return _BLOBS.keep_last(blob) if preferred else _BLOBS.keep_first(blob)

    @staticmethod
    def live(digest: str) -> Blob | None:
        """The live blob of this digest in this process, None if there is none."""
        return _BLOBS.find(digest)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The canonical dtype."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape; `()` for a single number."""
        return self.array.shape

    @property
    def nbytes(self) -> int:
        """Bytes of values."""
        return self.array.nbytes

    def __array__(
        self,
        dtype: DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001  # numpy's protocol
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
        # A copy is looked up in the table of live blobs: copy.deepcopy gives the same object.
        return Blob.of, (self.array,)

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"Blob({self.dtype.name}[{shape}], {self.digest[:4]}…)"


_BLOBS: Final[Interned[Blob]] = Interned()


def aligned_room(nbytes: int) -> NDArray[np.uint8]:
    """Fresh memory that begins at a multiple of `ALIGNMENT`."""
    memory = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


class _ReadOnly:
    """Read-only memory for arrays, by numpy's array interface; keeps its owner alive."""

    __slots__ = ("__array_interface__", "__weakref__", "kept")

    __array_interface__: dict[str, object]
    kept: object


def only_read(
    address: int, dtype: DTypeLike, shape: tuple[int, ...], kept: object = None
) -> NDArray[Any]:
    """An array over memory at this address, which is valid as long as `kept` lives.

    It cannot be made writeable: its base is not an array, and has no buffer.
    """
    memory = _ReadOnly()
    memory.kept = kept
    memory.__array_interface__ = {
        "version": 3,
        "data": (address, True),
        "typestr": np.dtype(dtype).str,
        "shape": shape,
    }
    array = np.asarray(memory)
    del memory.__array_interface__  # asked once, and larger than all else here
    return array


def _canonical(values: ArrayLike, dtype: DTypeLike | None) -> NDArray[np.generic]:
    """The values as an array of one of our dtypes, in C order."""
    if isinstance(values, np.ma.MaskedArray):
        raise UnstorableValue(
            "a masked array cannot be stored",
            where="Blob.of",
            found=f"dtype {values.dtype}, shape {values.shape} with a mask",
            hint="fill the masked places first: values.filled(...)",
        )
    try:
        array = np.asarray(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnstorableValue(
            "these values do not form an array",
            where="Blob.of",
            found=str(error),
            hint="pass numbers in rows of equal length",
        ) from error
    return np.asarray(array, dtype=_canonical_dtype(array), order="C")


def _canonical_dtype(array: NDArray[np.generic]) -> np.dtype[np.generic]:
    """Our dtype with the same values, in any byte order."""
    little = array.dtype.newbyteorder("<").str
    if little in DTYPES and array.ndim <= MAX_DIMENSIONS:
        return DTYPES[little]
    hint = "convert to bool, int8..int64, uint8..uint64, float16, float32 or float64 first"
    if array.dtype.kind in "OUST":
        hint = "texts go into a string table: Strings.of(values)"
    if array.ndim > MAX_DIMENSIONS:
        hint = f"reshape to at most {MAX_DIMENSIONS} dimensions"
    raise UnstorableValue(
        "this array cannot be stored in a blob",
        where="Blob.of",
        found=f"dtype {array.dtype}, shape {array.shape}",
        hint=hint,
    )


def _is_canonical(array: NDArray[np.generic]) -> bool:
    """True if an array can be a blob as it is."""
    flags = array.flags
    return (
        array.dtype.str in DTYPES
        and array.ndim <= MAX_DIMENSIONS
        and flags.c_contiguous
        and flags.aligned
        and not flags.writeable
    )


def frozen(array: NDArray[np.generic]) -> NDArray[Any]:
    """An aligned copy that cannot be written: its memory has a read-only buffer only."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    address = memory.ctypes.data
    start = -address % ALIGNMENT
    np.copyto(np.ndarray(array.shape, array.dtype, memory, start), array)
    return only_read(address + start, array.dtype, array.shape, memory)
