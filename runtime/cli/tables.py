"""Converts columns of text from a CSV file to the types of a model's inputs.

| input | columns of the file |
|---|---|
| Vector of n | all n columns, by position; with a header its names are not looked at |
| Record | by name, others are left out; by position where the model was fitted without names |
| Text, Scalar, Category | the column of the input's name, or the only one |

An empty cell is a missing value, and so are NA, null and the like: NaN for numbers and words, as
pandas reads them for the frames that models are trained on. Documents are taken as they are. A
column of whole numbers with a missing value or a fraction is one of floats, as in such a frame.
Every error names the cell: file, line, column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import nearest
from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from runtime.cli.errors import BadTable

Row = Sequence[str]
#: The type of a column that the model's library wants to be there, and nothing reads.
UNREAD = "unread"
#: What pandas reads as missing.
MISSING = {
    *("", "#N/A", "#N/A N/A", "#NA", "<NA>", "N/A", "n/a", "NA", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN"),
}
#: A hint for columns that the model does not read.
KEEP = "`predict` does not read those that `--keep NAME` copies"
_TRUE, _FALSE = {"true", "t", "1", "yes"}, {"false", "f", "0", "no"}


class CsvColumn:
    """One column that the model reads: its index in the file, and how its cells are parsed."""

    __slots__ = ("dtype", "index", "name", "read")

    def __init__(self, name: str, index: int, dtype: str, *, document: bool = False) -> None:
        self.name, self.index, self.dtype = name, index, dtype
        self.read = (lambda text: text or math.nan) if document else _reader(dtype)

    def values(self, rows: Sequence[Row], where: Where) -> Any:
        """The cells of this column, as an array."""
        texts = [row[self.index] for row in rows]
        if self.dtype == UNREAD:
            # A column of any kind, as numbers where all are.
            try:
                return np.array([_number(text) for text in texts], np.float64)
            except ValueError:
                return np.array([_word(text) for text in texts], object)
        if self.dtype.startswith("float") and not any("_" in text for text in texts):
            try:
                return np.array(texts, np.dtype(self.dtype))
            except ValueError:  # a missing value, or text that is not a number
                pass
        if self.dtype.startswith(("int", "uint")) and (floats := _floats(texts)) is not None:
            return floats
        try:
            values = [self._cell(text, number, where) for number, text in enumerate(texts)]
        except BadTable:
            # The culprit is no number at all, rather than one that another cell would allow.
            odd = next((n for n, text in enumerate(texts) if not _is_number(text)), None)
            if odd is not None and self.dtype.startswith(("int", "uint")):
                self._cell(texts[odd], odd, where)
            raise
        return np.array(values, object if self.dtype == "string" else self.dtype)

    def _cell(self, text: str, number: int, where: Where) -> Any:
        try:
            return self.read(text)
        except (ValueError, OverflowError):
            raise BadTable(
                f"this is not a valid {self.dtype}",
                where=where(number, self.index, self.name),
                found=repr(text[:60]),
                hint="an empty cell is a missing value" if self.dtype[0] == "f" else None,
            ) from None


Where = Callable[[int, int, str], str]


def _word(text: str) -> Any:
    return math.nan if text in MISSING else text


def _is_number(text: str) -> bool:
    try:
        _number(text)
    except ValueError:
        return False
    return True


def _reader(dtype: str) -> Callable[[str], Any]:
    if dtype in {"string", UNREAD}:
        return _word
    if dtype == "bool":
        return _boolean
    if dtype.startswith("float"):
        return _number
    limits = np.iinfo(dtype)
    return lambda text: _integer(text, limits)


def _number(text: str) -> float:
    word = text.strip().lower()
    if text.strip() in MISSING:
        return math.nan
    if word in ("true", "false"):  # data frames write booleans so; models take them as 1 and 0
        return float(word == "true")
    return float(_digits(word)) if word else float("nan")


def _digits(text: str) -> str:
    """The text of a number; Python also reads `1_0` and the digits of other scripts, pandas not."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text


def _floats(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Numbers of which some are missing or have a fraction; None where all are whole."""
    if all(text.strip().lstrip("+-").isdecimal() for text in texts):
        return None
    try:
        return np.array([_number(text) for text in texts], np.float64)
    except ValueError:
        return None  # the cell that is no number is told when it is read as a whole one


def _boolean(text: str) -> bool:
    low = text.strip().lower()
    if low not in _TRUE | _FALSE:
        raise ValueError(text)
    return low in _TRUE


def _integer(text: str, limits: Any) -> int:
    value = int(_digits(text))
    if not limits.min <= value <= limits.max:
        raise OverflowError(text)
    return value


class Schema:
    """The columns of a file that a model reads, and their conversion to its data."""

    def __init__(
        self,
        inputs: Mapping[str, Type],
        header: Row | None,
        width: int,
        file: str,
        apart: Collection[str] = (),
    ) -> None:
        """Columns `apart` are not read by position where there are more than the model reads."""
        if len(inputs) != 1:
            raise BadTable(
                "a model with several inputs takes JSON lines, not CSV",
                where=file,
                found=", ".join(inputs),
                hint='lines like {"input name": row, ...} in a .jsonl file',
            )
        self._input, self._kind = next(iter(inputs.items()))
        self._file, self._header, self._width = file, header, width
        self._apart = apart
        self.columns = self._columns()

    def _columns(self) -> list[CsvColumn]:
        match self._kind:
            case Vector(width, dtype):
                names = self._header or [str(index + 1) for index in range(self._width)]
                places = self._places(width)
                return [CsvColumn(names[index], index, dtype) for index in places]
            case Record(fields, _, unread):
                if self._header is None or self._by_position():
                    found: Sequence[int | None] = self._places(len(fields))
                else:
                    found = [self._index(name, optional=name in unread) for name, _ in fields]
                return [
                    CsvColumn(
                        *(name, index, self._dtype(kind, name, unread)),
                        document=isinstance(kind, Text),
                    )
                    for index, (name, kind) in zip(found, fields, strict=True)
                    if index is not None
                ]
        dtype = _dtype(self._kind, self._input, self._file)
        document = isinstance(self._kind, Text)
        return [CsvColumn(self._input, self._only(), dtype, document=document)]

    def _dtype(self, kind: Type, name: str, unread: Sequence[str]) -> str:
        return UNREAD if name in unread else _dtype(kind, name, self._file)

    def _places(self, width: int) -> Sequence[int]:
        """The indices of so many columns that are read by position."""
        apart = self._apart if self._width > width else ()
        names = self._header or ("",) * self._width
        found = [index for index, name in enumerate(names) if name not in apart]
        if len(found) == width:
            return found
        more = f"the model was trained without names, and reads columns by position; {KEEP}"
        separator = "if the cells are separated by another character, name it with --separator"
        what = f"the model reads {width} columns, this file has {len(found)}"
        hint = more if len(found) > width else separator
        raise wrong_header(what, self._header, self._file, hint)

    def _index(self, name: str, *, optional: bool) -> int | None:
        assert self._header is not None, "columns go by name"
        if optional:  # nothing looks at its values
            return self._header.index(name) if name in self._header else None
        if name in self._header:
            return place_of(name, self._header, self._file)
        hint = nearest(name, self._header)
        raise wrong_header(f"column {name!r} is missing", self._header, self._file, hint)

    def _by_position(self) -> bool:
        """True if columns go by position: the model was fitted without names, and none agrees."""
        kind = self._kind
        named = isinstance(kind, Record) and bool(set(kind.names) & set(self._header or ()))
        return isinstance(kind, Record) and kind.positional and not named

    def _only(self) -> int:
        """The index of the only column of the input."""
        if self._header is not None and self._input in self._header:
            return place_of(self._input, self._header, self._file)
        if self._width != 1:
            what = f"the model reads one column, this file has {self._width}"
            hint = f"call the one it should read {self._input!r} in the header"
            raise wrong_header(what, self._header, self._file, hint)
        return 0

    def data(self, rows: Sequence[Row], where: Where) -> Any:
        """A block of rows, as the model takes it."""
        arrays = [column.values(rows, where) for column in self.columns]
        match self._kind:
            case Vector():
                return np.stack(arrays, axis=1)
            case Record():
                names = [column.name for column in self.columns]
                return dict(zip(names, arrays, strict=True))
            case Text():
                return [text if isinstance(text, str) else "" for text in arrays[0]]
        return arrays[0]

    def looks_like_header(self, first: Row) -> bool:
        """True if a first line is a header: true unless all number columns have numbers in it."""
        read = [column for column in self.columns if column.dtype not in ("string", "bool")]
        for column in read:
            try:
                column.read(first[column.index])
            except (ValueError, OverflowError):
                return True
        return not read


def wrong_header(what: str, header: Row | None, file: str, hint: str | None) -> BadTable:
    """An error about the columns of a file."""
    found = ", ".join(header or ())[:200] or None
    return BadTable(what, where=f"{file}:1", found=found, hint=hint)


def place_of(name: str, header: Row, file: str) -> int:
    """The index of a column that a header has, once."""
    if header.count(name) > 1:
        hint = "rename all but one of them: columns are found by name"
        raise wrong_header(f"several columns have the name {name!r}", header, file, hint)
    return header.index(name)


def _dtype(kind: Type, name: str, file: str) -> str:
    match kind:
        case Scalar(dtype) | Category(dtype):
            return dtype
        case Text():
            return "string"
    raise BadTable(
        f"column {name!r} holds {kind}, which cannot be written as CSV",
        where=file,
        hint="use JSON lines",
    )
