"""Answers as JSON with an object for each row, written column by column.

    encoded_rows({"label": labels, "probabilities": p}, ("no", "yes"))
    b'[{"label":"no","probabilities":{"no":0.9,"yes":0.1}},...]'

Numbers are written by native code, a column or a table at once, and words once for each that is
different; what stands between them is the same in all rows. An object of Python's for each row and
number costs ten times as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runtime.http.codec.codec_json import encode, encoded_values

#: Rows that are written at a time: others can have the GIL in between.
_PIECE = 2048
#: An output: an array, a list of rows, or outputs by name.
_Values: TypeAlias = "Mapping[str, _Values] | Sequence[Any] | NDArray[Any]"
#: The texts of a column, one for each row; or what all rows have there.
_Part = list[bytes] | bytes


def encoded_rows(answers: Mapping[str, Any], classes: Sequence[object]) -> bytes:
    """An array of an object for each row; `classes` name the columns of the probabilities."""
    return _array(answers, classes)


def encoded_lines(answers: Mapping[str, Any], classes: Sequence[object]) -> list[bytes]:
    """An object for each row; JSON has no bare line feeds, so one can stand between two rows."""
    values = _dense(answers)
    rows = _length(values)
    return _rows(values, rows, classes, b"\n").split(b"\n") if rows else []


def encoded_column(values: _Values) -> bytes:
    """An array of an output's values."""
    return _array(values, ())


def named(row: object, classes: Sequence[object]) -> object:
    """The probabilities of a row by class, where there is a class for each."""
    if isinstance(row, list) and len(row) == len(classes) > 0:
        return dict(zip(classes, row, strict=True))
    return row


def _array(values: _Values, classes: Sequence[object]) -> bytes:
    values = _dense(values)
    rows = _length(values)
    pieces = (
        _rows(_some(values, slice(start, start + _PIECE)), min(_PIECE, rows - start), classes)
        for start in range(0, rows, _PIECE)
    )
    return b"[%b]" % b",".join(pieces)


def _rows(values: _Values, rows: int, classes: Sequence[object], between: bytes = b",") -> bytes:
    """Rows with commas, or something else, between."""
    parts: list[_Part] = []
    for part in [*_parts(values, classes), between]:
        if isinstance(part, bytes) and parts and isinstance(last := parts[-1], bytes):
            parts[-1] = last + part
        else:
            parts.append(part)
    texts: list[bytes] = [b""] * (len(parts) * rows)
    for place, each in enumerate(parts):
        texts[place :: len(parts)] = [each] * rows if isinstance(each, bytes) else each
    texts[-1] = texts[-1][:-1]
    return b"".join(texts)


def _parts(values: _Values, classes: Sequence[object], name: str = "") -> Iterator[_Part]:
    """Parts that a row is put together of."""
    if isinstance(values, Mapping):
        before = b"{"
        for key, part in values.items():
            yield before + _head(key)
            yield from _parts(part, () if name else classes, key)
            before = b","
        yield b"}" if values else b"{}"
        return
    classes = classes if name == "probabilities" else ()
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        if values.ndim == 1:
            yield _numbers(values)
            return
        width = values.shape[1]
        if values.ndim == 2 and not (len(classes) == width > len({*classes})):
            yield from _table(values, classes if len(classes) == width else ())
            return
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    yield _texts([named(row, classes) for row in listed] if classes else listed)


def _table(values: NDArray[Any], classes: Sequence[object]) -> Iterator[_Part]:
    """A list of numbers in each row, or an object of them."""
    width, texts = values.shape[1], _numbers(values)
    yield b"{" if classes else b"["
    for place in range(width):
        comma = b"," if place else b""
        yield comma + _head(classes[place]) if classes else comma
        yield texts[place::width]
    yield b"}" if classes else b"]"


def _numbers(values: NDArray[Any]) -> list[bytes]:
    return encoded_values(values)[1:-1].split(b",") if values.size else []


def _texts(values: list[Any]) -> list[bytes]:
    """Values of any kind; equal words are written once."""
    if all(type(value) is str for value in values):
        known = {value: encode(value) for value in dict.fromkeys(values)}
        return [known[value] for value in values]
    return [encode(value) for value in values]


def _head(name: object) -> bytes:
    """A name in an object, with its colon; what is no text is written as one."""
    return encode({name: 0})[1:-2]


def _dense(values: _Values) -> _Values:
    if isinstance(values, Mapping):
        return {name: _dense(part) for name, part in values.items()}
    return values.toarray() if hasattr(values, "toarray") else values


def _length(values: _Values) -> int:
    if isinstance(values, Mapping):
        return _length(next(iter(values.values()), ()))
    return len(values)


def _some(values: _Values, rows: slice) -> _Values:
    if isinstance(values, Mapping):
        return {name: _some(part, rows) for name, part in values.items()}
    return values[rows]
