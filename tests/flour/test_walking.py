"""Walks of all trees in turns, walks by codes, and leaves that are alike end as they should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oven
from flour.core.types import Vector
from flour.language.flow import outputs, source
from flour.ops.trees import lockstep
from flour.ops.trees.trees import Trees
from objectstore import Blob
from oven.explain import explain
from tests import ensembles
from tests.ensembles import answers_alike
from tests.flour.test_lockstep import LIBRARIES

WIDTH = 4
#: Sets of one category each, wherever two words start: 37, 5, 63, or one that blocks do not have.
ONE = {"near": [0, 1 << 5, 0, 1 << 31, 0], "far": [0, *[0] * 61, 1 << 7, *[0] * 4]}


def packed(op: Trees, held: str) -> lockstep.Packed:
    """The nodes of an ensemble that can be walked in lock-step."""
    made = lockstep.pack(op, op.value.array[:, 0], held)
    assert made is not None
    return made


def of_codes(op: Trees, words: str = "near") -> Trees:
    """The same trees with sets of one category, which what is missing is in no more."""
    sets = np.asarray(op.category.array) >= 0
    changed: dict[str, Any] = {"words": np.array(ONE[words], np.uint32)}
    if words == "far":
        changed["category"] = np.where(sets, 0, -1).astype(np.int32)
        changed["length"] = np.where(sets, 64, 0).astype(np.int32)
    missing = np.asarray(op.missing.array)
    changed["missing"] = np.where(sets, missing // 4 * 4 + 2, missing).astype(np.uint8)
    return op.replace(**{name: Blob.of(value) for name, value in changed.items()})


def rows_of(op: Trees, count: int, dtype: str) -> Any:
    """Rows at thresholds, at codes, between codes, and far out."""
    rng = np.random.default_rng(count)
    codes = [
        0.0,
        -0.0,
        -0.5,
        -1.0,
        4.9,
        5.0,
        5.5,
        6.0,
        36.9,
        37.0,
        63.0,
        63.9,
        64.0,
        1991.0,
        2.0**24,
    ]
    odd = [np.nan, np.inf, -np.inf, 1e-36, 1e30]
    chosen = np.concatenate([np.asarray(op.threshold.array), codes, codes, odd])
    with np.errstate(over="ignore"):
        return rng.choice(chosen, size=(count, WIDTH)).astype(dtype)


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
@pytest.mark.parametrize("kind", ["numbers", "sets", "codes"])
def test_all_trees_in_turns(
    monkeypatch: pytest.MonkeyPatch, library: tuple[dict[str, bool], str], kind: str
) -> None:
    """Chains and stumps among them: some walks end long before others."""
    flags, dtype = library
    monkeypatch.setattr(lockstep, "_NEAR_BYTES", 0)
    monkeypatch.setattr(lockstep, "_DEEP", 0)
    monkeypatch.setattr(lockstep, "_STEPS_A_SET", 1e6)  # no set has a slot
    for seed, trees in enumerate((9, 33)):
        how: dict[str, Any] = {
            "trees": trees,
            "depth": 9,
            "width": WIDTH,
            "sets": kind != "numbers",
        }
        op = ensembles.sums(seed, **how, **flags)
        op = of_codes(op) if kind == "codes" else op
        made = packed(op, "float32" if op.narrow else "float64")
        assert made.in_turns
        assert (made.coded is not None) == (kind == "codes")
        answers_alike(op, rows_of(op, 70, dtype), 1, 3, 70)


def test_few_or_small_trees_are_not_walked_in_turns() -> None:
    """What is near is walked eight trees at a time: nothing is waited for long."""
    many = ensembles.sums(1, trees=30, depth=10, width=WIDTH)
    assert packed(many, "float64").in_turns
    assert not packed(ensembles.sums(1, trees=30, depth=4, width=WIDTH), "float64").in_turns
    assert not packed(ensembles.sums(1, trees=8, depth=12, width=WIDTH), "float64").in_turns
    said = explain(oven.bake(outputs(scores=many(source("X", Vector(WIDTH))))), "stages")
    assert "30 trees, all walked in turns" in said


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
@pytest.mark.parametrize("words", list(ONE))
def test_sets_of_one_category_are_codes(
    monkeypatch: pytest.MonkeyPatch, library: tuple[dict[str, bool], str], words: str
) -> None:
    """A slot holds the code, and nodes of either size have room for the one they ask for."""
    flags, dtype = library
    op = of_codes(ensembles.sums(2, trees=9, depth=5, width=WIDTH, sets=True, **flags), words)
    monkeypatch.setattr(lockstep, "_STEPS_A_SET", 1e6)  # no set has a slot
    for held in ("float32", "float64"):
        assert packed(op, held).coded is not None
        assert packed(op, held).shared is None
    assert packed(op, "float32").shift
    answers_alike(op, rows_of(op, 70, dtype), 1, 3, 70)


def test_sets_that_hold_what_is_missing_are_no_codes() -> None:
    op = of_codes(ensembles.sums(2, trees=9, depth=5, width=WIDTH, sets=True))
    missing = np.where(np.asarray(op.category.array) >= 0, 1, op.missing.array).astype(np.uint8)
    op = op.replace(missing=Blob.of(missing))
    assert packed(op, "float64").coded is None
    answers_alike(op, rows_of(op, 70, "float64"), 1, 3, 70)


@pytest.mark.parametrize("span", [1, 3])
def test_leaves_that_are_alike_are_counted_once(span: int) -> None:
    """By their bits: zeros of both signs are two."""
    op = ensembles.sums(4, 3, span, trees=40, depth=7, width=WIDTH, narrow=True)
    value = np.random.default_rng(4).choice([0.0, -0.0, 0.1, 1e300], size=op.value.shape)
    value[:, 1:] = value[:, :1]
    op = op.replace(value=Blob.of(value), base=Blob.of(np.full(3, -0.0)))
    alike = lockstep.pack(op, value[:, 0], "float32", op.alike())
    assert alike is not None
    assert alike.order is not None
    assert len(alike.order) == 4
    np.testing.assert_array_equal(
        np.unique(op.ordered(alike.order).array.view(np.int64)), np.unique(value.view(np.int64))
    )
    answers_alike(op, rows_of(op, 70, "float64"), 1, 3, 70)
    differ = op.replace(value=Blob.of(np.arange(float(value.size)).reshape(value.shape)))
    made = lockstep.pack(differ, value[:, 0], "float32", differ.alike())
    assert made is not None
    assert made.order is not None
    assert len(made.order) == len(value)
