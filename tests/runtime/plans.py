"""Small plans for tests of the runtime, and plans that fail in chosen ways."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import flour
import oven
from flour import Flow
from flour.core.types import Type
from oven import Plan

WIDTH = 4


def shift_flow(offset: float, width: int = WIDTH) -> Flow:
    """x + offset, and its maximum: whoever sees an answer knows which plan gave it."""
    moved = flour.vector("x", width).add([offset] * width)
    return flour.outputs(moved=moved, top=moved.max())


def shift(offset: float, width: int = WIDTH) -> Plan:
    """The plan of `shift_flow`; one piece of machine code for all of them."""
    return oven.bake(shift_flow(offset, width))


def offset_of(answers: dict[str, Any], data: NDArray[np.float64]) -> float:
    """By how much the plan that answered has moved the data."""
    moved = np.asarray(answers["moved"])
    assert moved.shape == data.shape
    offsets = np.unique(moved - data)
    assert len(offsets) == 1, "one plan has answered all rows"
    return float(offsets[0])


WORDS = [f"word{n:03d}" for n in range(300)]


def documents(count: int, length: int = 200, seed: int = 0) -> list[str]:
    """Texts over the vocabulary of `text_flow`."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, length)) for _ in range(count)]


def text_flow(seed: int) -> Flow:
    """Texts to word counts, the same for every seed, and a linear score of the seed's own."""
    counts = flour.text("document").tokenize().word_ngrams(WORDS, 1, 1)
    weights = np.random.default_rng(seed).normal(size=(1, len(WORDS)))
    return flour.outputs(score=counts.linear(weights, [0.0]))


def record_flow() -> Flow:
    """Three named columns, one of them strings."""
    number = flour.Scalar()
    kinds: dict[str, Type] = {"age": number, "income": number, "city": flour.Category()}
    row = flour.record("row", kinds)
    return flour.outputs(
        both=row.columns(["age", "income"]).multiply([2.0]), city=row.field("city")
    )
