"""`Strings`: an immutable table of texts named by its content: dictionaries, class labels.

Texts are kept as one run of UTF-8 bytes and the positions at which they begin, which native code
reads without Python objects. Lone surrogates are kept too, so every Python text comes back as it
was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final, cast, overload

import numpy as np
from numpy.typing import NDArray

from objectstore.blob import Blob
from objectstore.digest import strings_digest
from objectstore.errors import DamagedBlob, UnstorableValue
from objectstore.interning import Interned

_ENCODING: Final = ("utf-8", "surrogatepass")

# Bytes decoded at a time when a table is checked: enough to be fast, too few to matter in memory.
_CHECKED_AT_ONCE: Final = 1 << 20


class Strings:
    """An immutable table of texts named by its content: equal content is one object."""

    __slots__ = ("__weakref__", "_data", "_offsets", "digest")

    _offsets: Blob
    _data: Blob
    digest: str
    """The name: 32 hexadecimal characters over both arrays."""

    def __init__(self, offsets: Blob, data: Blob) -> None:
        # For `of` and `from_blobs` only: they alone know that the arrays fit together.
        object.__setattr__(self, "_offsets", offsets)
        object.__setattr__(self, "_data", data)
        object.__setattr__(self, "digest", strings_digest(offsets.digest, data.digest))

    @staticmethod
    def of(texts: Iterable[str | bytes]) -> Strings:
        """The table of these texts, in this order. Byte strings are read as UTF-8."""
        if isinstance(texts, Strings):
            return texts
        if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
            raise UnstorableValue(
                "a string table is made from several texts",
                where="Strings.of",
                found=f"{type(texts).__name__} {texts!r:.80}",
                hint="pass a list of texts",
            )
        encoded = [
            text.encode(*_ENCODING) if type(text) is str else _encoded(text, row)
            for row, text in enumerate(texts)
        ]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return _TABLES.keep_first(Strings(Blob.of(offsets), Blob.of(data)))

    @staticmethod
    def from_blobs(
        offsets: Blob, data: Blob, where: str, *, trusted: bool = False, preferred: bool = False
    ) -> Strings:
        """The table over two arrays read from a file; an error unless they form one.

        The positions are always checked, because native code follows them. The bytes of a
        `trusted` file are not decoded to see whether they are texts.
        """
        cuts = cast("NDArray[np.int64]", offsets.array)
        run = cast("NDArray[np.uint8]", data.array)
        problem = _offsets_problem(cuts, run) or ("" if trusted else _text_problem(cuts, run))
        if problem:
            raise DamagedBlob("these arrays do not form a string table", where=where, found=problem)
        table = Strings(offsets, data)
        return _TABLES.keep_last(table) if preferred else _TABLES.keep_first(table)

    @staticmethod
    def live(digest: str) -> Strings | None:
        """The live table of this digest in this process, None if there is none."""
        return _TABLES.find(digest)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The offset of each text in `data`, and the end of the last one: n + 1 offsets."""
        return cast("NDArray[np.int64]", self._offsets.array)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The UTF-8 bytes of all texts, one after the other."""
        return cast("NDArray[np.uint8]", self._data.array)

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
        raw = self.data.tobytes()
        cuts: list[int] = self.offsets.tolist()
        return (str(raw[start:end], *_ENCODING) for start, end in pairwise(cuts))

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
        start, end = self.offsets[index], self.offsets[index + 1]
        return str(self.data[start:end].tobytes(), *_ENCODING)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Strings) and self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Strings are immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Strings are immutable: cannot delete {name!r}")

    def __reduce__(self) -> tuple[Callable[[list[str]], Strings], tuple[list[str]]]:
        # A copy is looked up in the table of live tables: copy.deepcopy gives the same object.
        return Strings.of, (self.to_list(),)

    def __repr__(self) -> str:
        return f"Strings({len(self)}, {self.digest[:4]}…)"


Parameter = Blob | Strings
"""A parameter of a store."""

_TABLES: Final[Interned[Strings]] = Interned()


def live_parameter(digest: str) -> Parameter | None:
    """The live blob or table of this digest in this process, None if there is none."""
    blob = Blob.live(digest)
    return Strings.live(digest) if blob is None else blob


def _encoded(text: str | bytes, row: int) -> bytes:
    """A text's bytes; byte strings must be UTF-8 already."""
    if isinstance(text, str):
        return text.encode(*_ENCODING)
    if not isinstance(text, bytes):
        raise UnstorableValue(
            "a string table holds texts only",
            where=f"Strings.of, row {row}",
            found=f"{type(text).__name__} {text!r:.80}",
            hint="convert it to str; numbers go into a Blob",
        )
    try:
        text.decode(*_ENCODING)
    except UnicodeDecodeError as error:
        raise UnstorableValue(
            "these bytes are not UTF-8", where=f"Strings.of, row {row}", found=str(error)
        ) from error
    return bytes(text)


def _offsets_problem(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> str:
    """The problem with the offsets as boundaries of texts; empty if they are valid."""
    if offsets.dtype != np.int64 or data.dtype != np.uint8 or offsets.ndim != 1 or data.ndim != 1:
        return f"offsets {offsets.dtype}{offsets.shape}, data {data.dtype}{data.shape}"
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(data):
        return f"the positions do not span the {len(data)} bytes"
    # Compared, not subtracted: a difference could overflow.
    if not np.all(offsets[1:] >= offsets[:-1]):
        return "the positions decrease"
    return ""


def _text_problem(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> str:
    """The problem with the bytes as UTF-8; empty if valid. Decodes bounded runs of whole texts."""
    first, rows = 0, len(offsets) - 1
    while first < rows:
        start = int(offsets[first])
        # The texts that end within the run, but at least one.
        within = int(np.searchsorted(offsets, start + _CHECKED_AT_ONCE, side="right")) - 1
        last = max(first + 1, within)
        try:
            data[start : offsets[last]].tobytes().decode(*_ENCODING)
        except UnicodeDecodeError as error:
            return f"rows {first} to {last - 1}: {error.reason} at byte {start + error.start}"
        first = last
    begins = offsets[:-1][offsets[:-1] < len(data)]
    if np.any((data[begins] & 0xC0) == 0x80):
        return "a text begins inside a character"
    return ""
