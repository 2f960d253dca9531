"""Answers as JSON, column by column: the same bytes as an object for each row gives."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from runtime.http.codec.codec_json import encode
from runtime.http.codec.row_texts import encoded_column, encoded_rows

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
