"""Rows as dicts, by machine code and by Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oven.entry import builtin
from oven.entry.zipmap import zipmap
from tests.oven.entry.answers import leaks_nothing

LABELS: dict[str, list[Any]] = {
    "strings": ["no", "né", "yes"],
    "numbers": [3, 1, -7],
    "equal": ["a", "b", "a"],
    "many": list(range(40)),
    "one": ["only"],
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("rows", [0, 1, 2, 1000])
def test_each_row_is_a_dict(name: str, rows: int) -> None:
    keys = LABELS[name]
    block = np.random.default_rng(0).normal(size=(rows, len(keys))).astype(np.float32)
    made = zipmap(keys)
    if keys == sorted(set(keys)):
        assert type(made).__name__ == "builtin_function_or_method"
    want = [dict(zip(keys, row, strict=True)) for row in block.tolist()]
    assert made(block) == want
    assert made(np.asfortranarray(block)) == want
    assert made(np.repeat(block, 2, axis=0)[::-2]) == want[::-1]
    assert made(block.astype(np.float64)) == want  # by Python
    if want:
        assert list(made(block)[0]) == sorted(want[0])  # as onnxruntime's maps have them
        assert all(type(value) is float for value in made(block)[0].values())


def test_other_widths_are_refused() -> None:
    for block in (np.zeros((2, 3), np.float32), np.zeros((2, 1))):
        with pytest.raises(ValueError, match="zip"):
            zipmap(["a", "b"])(block)


def test_nothing_is_leaked() -> None:
    keys = ["".join(["a", str(place)]) for place in range(3)]
    leaks_nothing(zipmap(keys), [np.ones((50, 3), np.float32)], keys)


def test_where_there_is_no_such_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "entry_code", lambda _: None)
    assert zipmap(["a", "b"])(np.array([[1, 2]], np.float32)) == [{"a": 1.0, "b": 2.0}]
