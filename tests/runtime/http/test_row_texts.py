"""Answers as JSON, as the general encoder writes them: numbers by native code, rows by columns."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from runtime.http.codec import codec_json
from runtime.http.codec.codec_json import encode
from runtime.http.codec.number_texts import LEAST_NUMBERS, written
from runtime.http.codec.row_texts import encoded_column, encoded_rows

pytestmark = pytest.mark.usefixtures("native_readers")
RNG = np.random.default_rng(0)
WORDS = np.array(['a "b"', "Ōsaka\n", "", "x", "1,2"], object)
CLASSES: list[tuple[Any, ...]] = [(), ("no", "yes", 'o"r'), (0, 1, 2), tuple("abcd"), ("a",) * 3]


def listed(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        parts = {name: listed(part) for name, part in value.items()}
        return [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]
    value = value.toarray() if hasattr(value, "toarray") else value
    return value.tolist() if isinstance(value, np.ndarray) else list(value)


def by_row(answers: Mapping[str, Any], classes: tuple[Any, ...]) -> bytes:
    """As it is defined: an object of Python's for each row."""
    rows = listed(answers)
    for row in rows:
        found = row.get("probabilities")
        if isinstance(found, list) and len(found) == len(classes):
            row["probabilities"] = dict(zip(classes, found, strict=True))
    return encode(rows)


def columns(rows: int) -> dict[str, Any]:
    numbers = RNG.normal(size=(rows, 3)) * 10.0 ** RNG.integers(-30, 30, (rows, 3))
    numbers[::7, 1], numbers[1::7, 2] = np.nan, -np.inf
    objects = np.empty(rows, object)
    objects[:] = [[None, 1, "x", 2.5, [1, {"a": None}]][i % 5] for i in range(rows)]
    return {
        "label": RNG.choice(WORDS, rows),
        "text": np.array(WORDS.astype(str))[RNG.integers(0, 5, rows)],
        "list": list(range(rows)),
        "object": objects,
        "bool": numbers[:, 0] > 0,
        "int": RNG.integers(-(2**62), 2**62, rows),
        "big": RNG.integers(2**63, 2**64, rows, np.uint64),
        "float": numbers[:, 1],
        "float32": numbers[:, 0].astype(np.float32),
        "probabilities": numbers,
        "four": RNG.normal(size=(rows, 4)).astype(np.float32),
        "none": np.zeros((rows, 0)),
        "cube": RNG.normal(size=(rows, 2, 3)),
        "words": np.array(["a", "b"], object)[RNG.integers(0, 2, (rows, 2))],
        "sparse": sparse.csr_matrix(np.arange(rows * 2).reshape(rows, 2) % 3),
        "inner": {"probabilities": numbers, "x": {"y": numbers[:, 0]}},
    }


@pytest.mark.parametrize(
    ("rows", "classes"),
    [*itertools.product((0, 1, 2, 333), CLASSES), (2048, CLASSES[1]), (5000, CLASSES[3])],
    ids=str,
)
def test_rows_are_what_objects_are(rows: int, classes: tuple[Any, ...]) -> None:
    every = columns(rows)
    assert encoded_rows(every, classes) == by_row(every, classes)
    for name in every:
        assert encoded_rows({name: every[name]}, classes) == by_row({name: every[name]}, classes)
        assert encoded_column(every[name]) == encode(listed(every[name]))
    for name in ("cube", "words", "list"):  # probabilities of another form
        odd = {"probabilities": every[name]}
        assert encoded_rows(odd, classes[:2]) == by_row(odd, classes[:2])


def test_columns_of_several_lengths_are_no_rows() -> None:
    with pytest.raises(ValueError, match=r"array|assign"):
        encoded_rows({"a": np.zeros(3), "b": np.zeros(2)}, ())


def same(values: NDArray[Any]) -> None:
    expected = msgspec.json.encode(values.tolist())[1:-1].split(b",")
    found = b",".join(written(values)).split(b",")
    assert len(found) == len(expected)
    wrong = [each for each in zip(found, expected, values, strict=True) if each[0] != each[1]]
    assert not wrong


@settings(max_examples=300)
@given(st.lists(st.floats(), min_size=1))
def test_any_number(values: list[float]) -> None:
    same(np.array(values))


@settings(max_examples=300)
@given(st.lists(st.floats(width=32), min_size=1))
def test_short_numbers_are_written_as_the_long_ones_that_they_are(values: list[float]) -> None:
    same(np.array(values, np.float32))


#: Where the form changes, where rounding to the even matters, and what is no number.
EDGES = [
    *(0.0, 1.0, 5e-324, 2.2250738585072009e-308, 2.2250738585072014e-308, 1.7976931348623157e308),
    *(9007199254740991.0, 9007199254740992.0, 9007199254740994.0, 1e23, 8.5e15, 123456789012345.6),
    *(9.5, 99.99, 0.1, 0.3, 2 / 3, 100.0, 120.5, np.inf, np.nan, 4.35, 0.000035689, 2.0**-44),
]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_edges(sign: float) -> None:
    same(sign * np.array(EDGES))
    powers = np.array([float(f"1e{power}") for power in range(-323, 309)])
    for each in (powers, np.nextafter(powers, 0), np.nextafter(powers, np.inf)):
        same(sign * each)
    same(sign * 2.0 ** np.arange(-1074, 1024))


DRAWN = {
    "bits": RNG.integers(0, 1 << 64, 100_000, dtype=np.uint64).view(np.float64),
    "probabilities": RNG.random(100_000),
    "sizes": RNG.normal(size=100_000) * 10.0 ** RNG.integers(-20, 20, 100_000),
    "prices": RNG.integers(-(10**6), 10**6, 100_000) / 100,
    "whole": RNG.integers(-(1 << 60), 1 << 60, 100_000).astype(float),
    "halves": RNG.integers(0, 1 << 53, 50_000) + 0.5,
}


@pytest.mark.parametrize("kind", DRAWN)
def test_many(kind: str) -> None:
    same(DRAWN[kind])


@pytest.mark.parametrize("count", [1, 2, 4095, 4096, 4097, 8192, 10_000])
def test_pieces_meet(count: int) -> None:
    values = DRAWN["sizes"][:count]
    assert np.array_equal(json.loads(b"[%b]" % b",".join(written(values))), values)
    same(DRAWN["sizes"].reshape(-1, 2)[:count, 1])


def test_long_answers_are_written_natively_and_short_ones_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def counted(values: NDArray[Any]) -> list[bytes]:
        asked.append(len(values))
        return written(values)

    monkeypatch.setattr(codec_json, "written", counted)
    for count in (LEAST_NUMBERS - 1, LEAST_NUMBERS):
        values = DRAWN["sizes"][:count].reshape(1, -1)
        assert codec_json.encoded_values(values) == msgspec.json.encode(values[0].tolist())
    assert asked == [LEAST_NUMBERS]
    assert codec_json.encoded_values(np.arange(1000)) == msgspec.json.encode([*range(1000)])
    assert (
        codec_json.encoded_values(np.array(["a"] * 100, object))
        == b'["' + b'","'.join([b"a"] * 100) + b'"]'
    )
