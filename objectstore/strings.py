"""`Strings`: an immutable table of texts named by its content; dictionaries and class labels live in one.

Texts are kept as one run of UTF-8 bytes and the positions at which they begin, which native code reads without Python
objects. Lone surrogates are kept as well (``surrogatepass``), so every Python text comes back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, overload

import numpy as np

from objectstore.blob import Blob
from objectstore.digest import strings_digest
from objectstore.errors import DamagedBlob, UnstorableValue
from objectstore.interning import Interned

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_ENCODING: Final = ("utf-8", "surrogatepass")

# Bytes decoded at a time when a table is checked: large enough to be fast, small enough not to double the memory.
_CHECKED_AT_ONCE: Final = 1 << 20


class Strings:
    """An immutable table of texts named by its content. Make one with `Strings.of`; equal content is the same object."""

    __slots__ = ("__weakref__", "_data", "_offsets", "digest")

    _offsets: Blob
    _data: Blob
    digest: str
    """The name: 32 hex characters over both arrays."""

    def __init__(self, offsets: Blob, data: Blob) -> None:
        # Only `of` and `from_blobs` may call this: they alone know that the arrays fit together.
        object.__setattr__(self, "_offsets", offsets)
        object.__setattr__(self, "_data", data)
        object.__setattr__(self, "digest", strings_digest(offsets.digest, data.digest))

    @staticmethod
    def of(texts: Iterable[str | bytes]) -> Strings:
        """The table of these texts, in this order. Byte strings are read as UTF-8."""
        if isinstance(texts, Strings):
            return texts
        if isinstance(texts, (str, bytes)):
            raise UnstorableValue(
                "a string table is made from several texts",
                "Strings.of",
                repr(texts)[:80],
                "pass a list",
            )
        encoded = [_encoded(text, row) for row, text in enumerate(texts)]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return _TABLES.keep_first(Strings(Blob.of(offsets), Blob.of(data)))

    @staticmethod
    def from_blobs(offsets: Blob, data: Blob, where: str = "Strings.from_blobs") -> Strings:
        """The table over two arrays read from a file; `DamagedBlob` unless they form one."""
        problem = _offsets_problem(offsets.array, data.array) or _text_problem(
            offsets.array, data.array
        )
        if problem:
            raise DamagedBlob("these arrays do not form a string table", where, problem)
        return _TABLES.keep_last(Strings(offsets, data))

    @staticmethod
    def live(digest: str) -> Strings | None:
        """The table of this digest if somebody in this process has it."""
        return _TABLES.find(digest)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each text begins in `data`, and the end of the last: n + 1 positions."""
        return self._offsets.array  # type: ignore[return-value]  # dtype was fixed by of/from_blobs

    @property
    def data(self) -> NDArray[np.uint8]:
        """The UTF-8 bytes of all texts, one after the other."""
        return self._data.array  # type: ignore[return-value]  # dtype was fixed by of/from_blobs

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self._offsets.nbytes + self._data.nbytes

    def blobs(self) -> tuple[Blob, Blob]:
        """The two arrays behind the table: offsets and data."""
        return self._offsets, self._data

    def to_list(self) -> list[str]:
        """All texts."""
        return list(self)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __iter__(self) -> Iterator[str]:
        raw = self._data.array.tobytes()
        cuts: list[int] = self.offsets.tolist()
        return (str(raw[start:end], *_ENCODING) for start, end in zip(cuts, cuts[1:], strict=False))

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self._text(index) for index in range(*row.indices(len(self)))]
        index = row + len(self) if row < 0 else row
        if not 0 <= index < len(self):
            raise IndexError(f"row {row} of a table of {len(self)} texts")
        return self._text(index)

    def _text(self, index: int) -> str:
        start, end = self._offsets.array[index], self._offsets.array[index + 1]
        return str(self._data.array[start:end].tobytes(), *_ENCODING)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Strings) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Strings are immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Strings are immutable: cannot delete {name!r}")

    def __reduce__(self) -> tuple[Callable[[list[str]], Strings], tuple[list[str]]]:
        # Copies meet again in the table of live tables, so copy.copy and copy.deepcopy give the same object.
        return Strings.of, (self.to_list(),)

    def __repr__(self) -> str:
        return f"Strings({len(self)}, {self.digest[:4]}…)"


Parameter = Blob | Strings
"""What a store keeps."""

_TABLES: Final[Interned[Strings]] = Interned()


def _encoded(text: str | bytes, row: int) -> bytes:
    """A text's bytes; byte strings must be valid already."""
    if isinstance(text, str):
        return text.encode(*_ENCODING)
    if not isinstance(text, bytes):
        raise UnstorableValue(
            "a string table holds texts only",
            f"Strings.of, row {row}",
            f"{type(text).__name__} {text!r:.80}",
            "convert it to str, or numbers to a Blob",
        )
    try:
        text.decode(*_ENCODING)
    except UnicodeDecodeError as error:
        raise UnstorableValue(
            "these bytes are not UTF-8", f"Strings.of, row {row}", str(error)
        ) from error
    return bytes(text)


def _offsets_problem(offsets: NDArray[np.generic], data: NDArray[np.generic]) -> str:
    """Why the positions do not cut the bytes into texts; empty when they do."""
    if offsets.dtype != np.int64 or data.dtype != np.uint8 or offsets.ndim != 1 or data.ndim != 1:
        return f"offsets {offsets.dtype}{offsets.shape}, data {data.dtype}{data.shape}"
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(data):
        return f"offsets do not span the {len(data)} bytes"
    # Compared, not subtracted: a difference could overflow.
    if not bool(np.all(offsets[1:] >= offsets[:-1])):
        return "offsets decrease"
    return ""


def _text_problem(offsets: NDArray[np.generic], data: NDArray[np.generic]) -> str:
    """Why the bytes are not texts; empty when they are. Decodes a bounded run of whole texts at a time."""
    first, rows = 0, len(offsets) - 1
    while first < rows:
        # The texts that end within the next run, but at least one.
        run_end = int(offsets[first]) + _CHECKED_AT_ONCE
        last = max(first + 1, int(np.searchsorted(offsets, run_end, side="right")) - 1)
        start, end = int(offsets[first]), int(offsets[last])
        try:
            data[start:end].tobytes().decode(*_ENCODING)
        except UnicodeDecodeError as error:
            return f"rows {first}..{last - 1}: {error.reason} at byte {start + error.start}"
        first = last
    begins = offsets[:-1][offsets[:-1] < len(data)]
    if np.any((data[begins] & 0xC0) == 0x80):
        return "a text begins inside a character"
    return ""
