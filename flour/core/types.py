"""Types of the values along the edges of a program: one per row, or one for all rows.

    Scalar(dtype)                   a number, a bool or a string
    Category(dtype, digits)         a value out of an open set, to be encoded before arithmetic
    Text(encoding, errors)          a document, perhaps as bytes
    Tokens()                        a document cut into words
    Pairs(separator, lenient, keys) names, any number of them, each with a number
    Vector(width, dtype, sparse)    `width` values of one dtype
    Record({name: type})            named columns
    Whole(kind)                     one value for all rows: a tensor of any shape, a sequence, a map
    Later()                         not known until the models that a graph names are put in

`dtype` is a numpy name ("float32", "int64", "bool", ...) or "string".
"""

from __future__ import annotations

import codecs
import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import DamagedProgram, ParameterError

FLOATS = ("float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTS, "bool", "string")
# A width beyond this is a damaged file or a mistake: 2**31 float64 are 16 GiB a row.
MAX_WIDTH = 2**31 - 1
_WIDTH = f"the number of columns, from 0 to {MAX_WIDTH}"


def dtype_name(dtype: object) -> str:
    """The canonical name of a numpy dtype (any kind of text becomes "string")."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    try:
        found = np.dtype(dtype)  # type: ignore[call-overload]  # any dtype-like, checked below
    except TypeError:
        raise ParameterError("this is not a dtype", found=repr(dtype)[:40], hint=_KINDS) from None
    return _numpy_name(found)


@lru_cache(256)  # numpy works it out each time, and loading a plan asks a hundred times
def _numpy_name(found: np.dtype[Any]) -> str:
    name = "string" if found.kind in "UO" else str(found.newbyteorder("=").name)
    if name not in DTYPES:
        raise ParameterError(f"values of dtype {found} have no place in a program", hint=_KINDS)
    return name


_KINDS = "use one of " + ", ".join(DTYPES)


def width_of(kind: Type) -> int:
    """The number of columns of values of a type."""
    if isinstance(kind, Record):
        return len(kind.fields)
    return kind.width if isinstance(kind, Vector) else 1


@lru_cache(4096)
def promote(*dtypes: str) -> str:
    """The dtype numpy gives to arithmetic between columns of these dtypes."""
    if "string" in dtypes:
        return "string"
    return dtype_name(np.result_type(*(np.dtype(name) for name in dtypes)))


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number, bool or string per row.

    Of a program's input, `given` says that whole numbers are read in their own dtype, as numpy's
    functions of int8 are not those of floats; equal numbers are columns of one function.
    """

    dtype: str = "float64"
    given: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"Scalar(dtype={self.dtype!r}{_more(self.given)})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))

    def __str__(self) -> str:
        return self.dtype


@dataclass(frozen=True, slots=True)
class Category:
    """One value out of an open set per row; encode it before doing arithmetic.

    With `digits`, whole numbers are read as the strings of their digits, bools as those of 0 and 1.
    """

    dtype: str = "string"
    digits: bool = False

    def __repr__(self) -> str:
        return f"Category(dtype={self.dtype!r}{', digits=True' if self.digits else ''})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))

    def __str__(self) -> str:
        return f"Category[{self.dtype}]"


@dataclass(frozen=True, slots=True, repr=False)
class Text:
    """One document per row; where an `encoding` is named, rows may also be bytes in it.

    Of bytes that have no meaning there, "strict" `errors` refuse the row, "ignore" drops them,
    "replace" puts U+FFFD in their place.
    """

    encoding: str = ""
    errors: str = "strict"

    def __post_init__(self) -> None:
        if self.errors not in DECODE_ERRORS:
            hint = "one of " + ", ".join(map(repr, DECODE_ERRORS))
            found = repr(self.errors)[:40]
            raise ParameterError("bytes cannot be decoded like that", found=found, hint=hint)
        object.__setattr__(self, "encoding", _encoding(self.encoding) if self.encoding else "")
        if not self.encoding:
            object.__setattr__(self, "errors", "strict")

    def __str__(self) -> str:
        return "Text"

    def __repr__(self) -> str:
        return f"Text({self.encoding!r}, {self.errors!r})" if self.encoding else "Text()"


#: Ways to treat bytes that the encoding does not have.
DECODE_ERRORS = ("strict", "ignore", "replace")


@lru_cache(256)
def _encoding(name: str) -> str:
    """Python's own name of an encoding of text."""
    try:
        found = codecs.lookup(name).name
        b"-".decode(found)
    except UnicodeError:
        return found  # it is one, though not of this byte
    except (LookupError, TypeError, ValueError):
        raise ParameterError(
            "this is no encoding of text",
            found=repr(name)[:40],
            hint="such as 'utf-8', 'latin-1', 'cp1252', 'utf-16'",
        ) from None
    return found


@dataclass(frozen=True, slots=True)
class Tokens:
    """One list of words per row."""

    def __str__(self) -> str:
        return "Tokens"


#: The dtype of the keys of maps; "" where rows are more than maps to numbers.
MAP_KEYS = ("", "string", "int64")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names with a number each per row: a mapping of any keys, or a list of pairs.

    A string in a number's place is part of the name, behind `separator`, and its number is one.
    `lenient` rows may have None for NaN, and lists of strings. With `keys`, rows are ONNX's maps:
    from "string" or "int64" to numbers, and nothing else. Whole numbers go by their digits.
    """

    separator: str = "="
    lenient: bool = False
    keys: str = ""

    def __post_init__(self) -> None:
        if self.keys not in MAP_KEYS:
            hint = "one of " + ", ".join(map(repr, MAP_KEYS))
            raise ParameterError("no maps have such keys", found=repr(self.keys)[:40], hint=hint)

    def __str__(self) -> str:
        return "Pairs"


@dataclass(frozen=True, slots=True)
class Vector:
    """`width` values of one dtype per row; `sparse` ones store only what is not zero."""

    width: int
    dtype: str = "float64"
    sparse: bool = False
    given: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        size = f"width={self.width!r}, dtype={self.dtype!r}, sparse={self.sparse!r}"
        return f"Vector({size}{_more(self.given)})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        try:
            object.__setattr__(self, "width", index(self.width))
        except TypeError:
            found = repr(self.width)[:40]
            raise ParameterError("a width is a whole number", found=found, hint=_WIDTH) from None
        if not 0 <= self.width <= MAX_WIDTH:
            raise ParameterError(
                f"a vector cannot have {self.width} columns", found=str(self.width), hint=_WIDTH
            )

    def __str__(self) -> str:
        return f"Vector[{self.width}, {self.dtype}{', sparse' if self.sparse else ''}]"

    def having(
        self, *, width: int | None = None, dtype: str | None = None, sparse: bool | None = None
    ) -> Vector:
        """This type with some of its facts changed."""
        if (width, dtype, sparse, self.given) == (None, self.dtype, self.sparse, 0):
            return self
        return Vector(
            self.width if width is None else width,
            self.dtype if dtype is None else dtype,
            self.sparse if sparse is None else sparse,
        )


@dataclass(frozen=True, slots=True)
class Record:
    """Named columns; `positional` ones were fitted on a plain array and go by position too.

    Nothing reads the `unread` columns, so data may come without them.
    """

    fields: tuple[tuple[str, Type], ...]
    positional: bool = False
    unread: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in the order they were fitted in."""
        return tuple(name for name, _ in self.fields)

    def __getitem__(self, name: str) -> Type:
        return dict(self.fields)[name]

    def __str__(self) -> str:
        return "{" + ", ".join(f"{name}: {kind}" for name, kind in self.fields) + "}"


@dataclass(frozen=True, slots=True)
class Whole:
    """One value for all rows at once, as ONNX names its kind; a column of one element holds it."""

    kind: str = "tensor(float)"

    def __post_init__(self) -> None:
        if not _WHOLE.fullmatch(str(self.kind)):
            raise ParameterError(
                "this is no kind of ONNX value",
                found=repr(self.kind)[:80],
                hint="such as tensor(float), seq(map(int64,tensor(float)))",
            )

    def __str__(self) -> str:
        return f"Whole[{self.kind}]"


_WHOLE = re.compile(r"[a-z][a-z0-9_(),]{0,199}")


@dataclass(frozen=True, slots=True)
class Later:
    """The answer of a model that is known by its name: its type is known when the model is."""

    def __str__(self) -> str:
        return "Later"


Type = Scalar | Category | Text | Tokens | Pairs | Vector | Record | Whole | Later


def to_data(kind: Type) -> list[Any]:  # noqa: PLR0911 (one for each kind)
    """A type as plain JSON data."""
    match kind:
        case Record(fields, positional, unread):
            columns = [[name, to_data(sub)] for name, sub in fields]
            return ["Record", columns, positional, *([list(unread)] if unread else [])]
        case Vector(width, dtype, sparse, given):
            return ["Vector", width, dtype, sparse, *([given] if given else [])]
        case Scalar(dtype, given):
            return ["Scalar", dtype, *([given] if given else [])]
        case Category(dtype, digits):
            return ["Category", dtype, *([True] if digits else [])]
        case Whole(name):
            return ["Whole", name]
        case Pairs(separator, lenient, keys):
            return ["Pairs", separator, lenient, *([keys] if keys else [])]
        case Text(encoding, errors) if encoding:
            return ["Text", encoding, errors]
        case _:
            return [type(kind).__name__]


def from_data(data: Any) -> Type:  # noqa: PLR0911 (one for each kind)
    """The type described by `to_data`; anything else is a DamagedProgram."""
    match data:
        case ["Record", list(fields), bool(positional), *rest] if len(rest) < 2:
            pairs = tuple((_name(pair), from_data(pair[1])) for pair in fields)
            return Record(pairs, positional, _names(rest[0]) if rest else ())
        case ["Vector", int(width), str(dtype), bool(sparse), *rest] if (
            dtype in DTYPES and 0 <= width <= MAX_WIDTH and not isinstance(width, bool)
        ):
            return Vector(width, dtype, sparse, _given(rest))
        case ["Scalar", str(dtype), *rest] if dtype in DTYPES:
            return Scalar(dtype, _given(rest))
        case ["Category", str(dtype), *rest] if dtype in DTYPES and rest in ([], [True]):
            return Category(dtype, bool(rest))
        case ["Whole", str(name)] if _WHOLE.fullmatch(name):
            return Whole(name)
        case ["Pairs", str(separator), bool(lenient), *rest] if rest in ([], *_MAPS):
            return Pairs(separator, lenient, *rest)
        case ["Text", str(encoding), str(errors)] if encoding:
            return _text(encoding, errors)
        case ["Text" | "Tokens" | "Later" as name]:
            return Text() if name == "Text" else Tokens() if name == "Tokens" else Later()
    raise DamagedProgram("this is not a type", found=repr(data)[:80])


def _more(given: int) -> str:
    """The end of a type's text, which digests are of: one without it is as it always was."""
    return f", given={given}" if given else ""


def _given(rest: list[Any]) -> int:
    if len(rest) > 1 or not all(type(each) is int and each > 0 for each in rest):
        raise DamagedProgram("this is not a type", found=repr(rest)[:80])
    return sum(rest)


_MAPS = tuple([keys] for keys in MAP_KEYS if keys)


def _text(encoding: str, errors: str) -> Text:
    """Documents in this encoding, which this Python may not know."""
    try:
        return Text(encoding, errors)
    except ParameterError as problem:
        raise DamagedProgram(problem.what, found=problem.found, hint=problem.hint) from None


def _name(pair: object) -> str:
    if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
        return pair[0]
    raise DamagedProgram("a record's field is a name and a type", found=repr(pair)[:80])


def _names(data: object) -> tuple[str, ...]:
    if isinstance(data, list) and all(isinstance(name, str) for name in data):
        return tuple(data)
    raise DamagedProgram("column names are strings", found=repr(data)[:80])


# --- how large numbers are -----------------------------------------------------------------------
# Extents say where a check for NaN or infinity is needed behind a step; a few levels tell sizes
# apart.

LARGEST = float(np.finfo(np.float64).max)
#: The largest number that float32 does not round to infinity.
LARGEST_SINGLE = float(np.nextafter(2.0**128 - 2.0**103, 0))
#: Numbers beyond are not expected: docs/reference/scikit-learn.md excepts them.
EXPECTED = 1e200
_LEVELS = (
    *(1.0, 1e5, 1e10, 1e15, 1e25, 1e30, 1e34, LARGEST_SINGLE, 1e80, 1e140, 1e210, 1e250),
    *(1e290, LARGEST, np.inf),
)


class Extent(NamedTuple):
    """The numbers that a node may hold: NaN or not, and magnitudes up to `largest`."""

    nan: bool = True
    largest: float = np.inf
    #: They are counts: whole numbers that are not negative.
    counts: bool = False

    @property
    def finite(self) -> bool:
        """True if every number is finite."""
        return not self.nan and self.largest <= LARGEST


#: Any number, NaN and infinity too.
ANYTHING = Extent()


def extent_of(values: NDArray[Any]) -> Extent:
    """The extent of an array, or of numbers at most this large in magnitude."""
    sizes = np.abs(values)
    largest = float(np.maximum.reduce(sizes, axis=None, initial=0.0))
    if nan := math.isnan(largest):
        largest = float(np.fmax.reduce(sizes, axis=None, initial=0.0))
    return Extent(nan, level(largest))


def level(largest: float) -> float:
    """The least of the levels that a magnitude does not exceed."""
    return _LEVELS[bisect_left(_LEVELS, largest)]


def union(extents: Sequence[Extent]) -> Extent:
    """The extent of numbers that are in one of these."""
    return Extent(
        any(each.nan for each in extents),
        max((each.largest for each in extents), default=0.0),
        all(each.counts for each in extents),
    )
