"""The values of one column in the dtype a program was written for, or an error that says where."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import NotDecodable, NotNumeric, WrongDtype
from flour.core.types import Text


def as_dtype(values: NDArray[Any], dtype: str, path: str) -> NDArray[Any]:
    """The values as `dtype`, where that loses nothing; `path` is their location in the data."""
    values = _unwrapped(values)
    if dtype == "string":
        return _strings(values, path)
    if values.dtype.kind == "O" and np.dtype(dtype).kind in "iu":
        values = _integers(values)
    if values.dtype.kind in "OUS":
        values = _numbers(values, path)
    if values.dtype.kind not in "biuf":
        raise WrongDtype(
            f"expected {dtype}", where=path, found=f"dtype {values.dtype}", hint=_CONVERT
        )
    if np.dtype(dtype).kind in "iub" and values.dtype != dtype:
        _whole(values, dtype, path)
    return values.astype(dtype, copy=False)


def in_digits(values: NDArray[Any]) -> NDArray[Any]:
    """The values, whole numbers among them as strings of their digits; bools are 0 and 1."""
    if values.dtype.kind == "b":
        values = values.astype(np.int8)
    if values.dtype.kind in "iu":
        return values.astype(str).astype(object)
    if values.dtype.kind != "O":
        return values
    whole = (int, np.bool_, np.integer)
    cells = np.empty_like(values)
    cells[:] = [str(int(value)) if isinstance(value, whole) else value for value in values]
    return cells


def _unwrapped(values: NDArray[Any]) -> NDArray[Any]:
    """The cells of an object array, without arrays of no dimensions around some of them."""
    if values.dtype.kind != "O" or np.ndarray not in set(map(type, values.flat)):
        return values
    cells = np.empty_like(values)
    for where, value in np.ndenumerate(values):
        cells[where] = value[()] if isinstance(value, np.ndarray) and not value.ndim else value
    return cells


def _whole(values: NDArray[Any], dtype: str, path: str) -> None:
    """Other numbers may stand for whole ones where nothing is lost."""
    if values.dtype.kind == "b":
        return  # bools cannot be compared with bounds beyond int64
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    # No float64 is the largest int64 or uint64, but one is the number after it.
    within = values < float(high) + 1 if values.dtype.kind == "f" else values <= high
    bad = ~((np.floor(values) == values) & (values >= low) & within)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        location = path + "".join(f"[{i}]" for i in where)
        found = str(values[where])
        raise WrongDtype(f"expected {dtype}", where=location, found=found, hint=_CONVERT)


_CONVERT = "convert it before predicting, as before training"


def _integers(values: NDArray[Any]) -> NDArray[Any]:
    """An object array of whole numbers as int64 or uint64, exactly; any other as it is."""
    if not all(map(_is_whole, values.flat)):
        return values
    try:
        exact = np.array([int(value) for value in values.flat]).reshape(values.shape)
    except OverflowError:
        return values
    return exact if exact.dtype.kind in "iu" else values


def _is_whole(value: object) -> bool:
    if isinstance(value, int | np.integer):
        return True
    return isinstance(value, Decimal) and float(value).is_integer()


def _numbers(values: NDArray[Any], path: str) -> NDArray[Any]:
    """An object array that holds only numbers (None is a missing one) as float64."""
    numbers = np.empty(values.shape, np.float64)
    for where, value in np.ndenumerate(values):
        if value is None:
            numbers[where] = np.nan
        elif isinstance(value, int | float | np.number | np.bool_ | Decimal | Fraction):
            numbers[where] = _number(value, where, path)
        elif is_missing(value):
            numbers[where] = np.nan
        else:
            location = path + "".join(f"[{i}]" for i in where)
            raise NotNumeric(
                "expected numbers",
                where=location,
                found=f"{type(value).__name__} {str(value)[:40]!r}",
                hint="encode strings, or convert the column with astype(float)",
            )
    return numbers


def _number(value: Any, where: tuple[int, ...], path: str) -> float:
    try:
        return float(value)
    except OverflowError:
        location = path + "".join(f"[{i}]" for i in where)
        found = f"a whole number of {len(str(abs(value)))} digits"
        raise WrongDtype(
            "this is more than a float64 holds", where=location, found=found, hint=_CONVERT
        ) from None


def _strings(values: NDArray[Any], path: str) -> NDArray[Any]:
    """Strings as an object array of str; None and NaN stay unchanged (missing)."""
    # Values that are all missing (or no values) need not have a dtype of strings.
    if values.dtype.kind == "U" or (values.dtype.kind == "f" and np.isnan(values).all()):
        return values.astype(object)
    if values.dtype.kind != "O":
        raise WrongDtype(
            "expected strings", where=path, found=f"dtype {values.dtype}", hint=_AS_STRINGS
        )
    strings = values.copy()
    for where, value in np.ndenumerate(values):
        if isinstance(value, str) or value is None:
            continue
        if not is_missing(value):
            location = path + "".join(f"[{i}]" for i in where)
            found = f"{type(value).__name__} {value!r}"[:60]
            raise WrongDtype("expected a string", where=location, found=found, hint=_AS_STRINGS)
        strings[where] = np.nan
    return strings


_AS_STRINGS = "the column held strings when it was fitted; None or NaN where one is missing"


def is_missing(value: object) -> bool:
    """NaN, pandas.NA and NaT: the values that are not equal to themselves, or say NA."""
    return type(value).__name__ in {"NAType", "NaTType"} or (
        isinstance(value, float) and value != value  # noqa: PLR0124 (the definition of NaN)
    )


# --- documents ------------------------------------------------------------------------------------


def documents(column: NDArray[Any], kind: Text, path: str) -> NDArray[Any]:
    """The column's documents; what is already a str is never decoded."""
    decoded = _unwrapped(column.astype(object))
    for i, value in enumerate(decoded):
        if not isinstance(value, str):
            decoded[i] = document(value, kind, f"{path}[{i}]")
    return decoded


def document(value: object, kind: Text, where: str) -> str:
    """The document in a value that is no str: bytes are decoded, anything else is an error."""
    if not isinstance(value, bytes):
        found, hint = type(value).__name__, "an empty document is ''"
        raise WrongDtype("expected text", where=where, found=found, hint=hint)
    if not kind.encoding:
        raise WrongDtype("expected text", where=where, found=_short(value), hint=_UNSAID)
    try:
        return value.decode(kind.encoding, kind.errors)
    except UnicodeError as problem:
        raise NotDecodable(
            f"these bytes are no {kind.encoding}",
            where=where,
            found=_spot(value, problem),
            hint="decode or write them anew, or fit with encoding= or with decode_error='replace'",
        ) from problem


_UNSAID = "the input has no encoding (or its readers disagree): decode the bytes first"


def _short(value: bytes) -> str:
    return f"bytes {value[:20]!r}{'...' if len(value) > 20 else ''}"


def _spot(value: bytes, problem: UnicodeError) -> str:
    """The bytes that the codec could not decode."""
    if not isinstance(problem, UnicodeDecodeError):
        return f"{_short(value)}: {problem}"[:120]
    bad = problem.object[problem.start : min(problem.end, problem.start + 4)].hex(" ")
    return f"{bad or 'nothing'} at byte {problem.start} of {len(value)}: {problem.reason}"
