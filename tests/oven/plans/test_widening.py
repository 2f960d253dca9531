"""Rows in float32: answered at once, with the bits that a plan of their own gives."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import oven
from flour.core.errors import InputError
from flour.core.types import LARGEST, Type, Vector
from flour.language.flow import Flow, outputs
from flour.ops.require import RequireFinite
from oven.plans.plan import widens_exactly
from tests import ensembles
from tests.house import until
from tests.oven.plans.test_background import ByHand
from tests.rewrites import vector

NARROW: dict[str, Type] = {"x": Vector(6, "float32")}
X = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)


def trees(x: Flow, **how: Any) -> Flow:
    return ensembles.sums(0, **how)(x)


PROGRAMS: dict[str, tuple[Flow, bool]] = {
    "trees": (trees(vector(6)), True),
    "trees and what follows": (trees(vector(6)).sigmoid().named("p"), True),
    "numbers carried to trees": (trees(vector(6).as_float().select([5, 4, 3, 2, 1, 0])), True),
    "made float64": (vector(6).cast("float64").sigmoid(), True),
    "made float32": (vector(6).cast("float32").sigmoid(), False),
    "computed in the width of x": (vector(6).sigmoid(), False),
    "given back": (outputs(y=trees(vector(6)), x=vector(6).select([0])), False),
    "a scaler": (trees(vector(6).multiply(np.full(6, 0.1))), False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_programs_give_the_same_bits(name: str) -> None:
    flow, exact = PROGRAMS[name]
    assert widens_exactly(flow, NARROW) == exact
    if exact:
        own = flow.retype(**NARROW).reference(X)
        for output, values in flow.reference(X.astype(np.float64)).items():
            np.testing.assert_array_equal(own[output], values)


def test_sparse_rows_are_not_widened() -> None:
    assert not widens_exactly(trees(vector(6)), {"x": Vector(6, "float32", sparse=True)})
    assert not widens_exactly(trees(vector(6, "float32")), {"x": Vector(6, "float64")})


@pytest.mark.parametrize("name", PROGRAMS)
def test_short_blocks_do_not_wait_for_their_plan(name: str) -> None:
    flow, same_bits = PROGRAMS[name]
    hand = ByHand()
    plan = oven.bake(flow, exact=True, background=hand)
    hand.work()
    before = plan.run(X)
    assert not plan.variants.here
    assert not plan.variants.ready_for(X)
    hand.work()
    (variant,) = plan.variants.here
    assert variant.inputs == NARROW
    assert plan.variants.ready_for(X)
    for output, values in plan.run(X).items():
        assert values.dtype == before[output].dtype
        # Where the definition answers first, functions may differ from native code by rounding.
        np.testing.assert_allclose(values, before[output], rtol=0 if same_bits else 1e-6)


def test_a_long_block_waits_for_its_plan() -> None:
    hand = ByHand()
    plan = oven.bake(vector(6).sigmoid(), background=hand)
    hand.work()

    def work() -> None:
        until(lambda: hand.waiting)
        hand.work()

    worker = threading.Thread(target=work)
    worker.start()
    made = plan.run(np.repeat(X, 100, axis=0))["output"]
    worker.join()
    assert made.dtype == np.float32
    assert len(plan.variants.here) == 1


def test_rows_that_are_refused_are_refused_in_the_same_words() -> None:
    checked = RequireFinite([True], [LARGEST], "Forest", "Forest")(vector(6))
    hand = ByHand()
    plan = oven.bake(trees(checked), background=hand)
    hand.work()
    rows = X.copy()
    rows[3, 2] = np.nan
    said = []
    for _ in ("before its plan is there", "by its plan"):
        with pytest.raises(InputError) as caught:
            plan.run(rows)
        said.append(str(caught.value))
        hand.work()
    assert said[0] == said[1]
    assert plan.variants.here


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "how", [{}, {"sets": True}, {"zeros": True}, {"strict": True}, {"narrow": True}]
)
def test_trees_of_all_kinds_read_float32_as_the_same_numbers(
    seed: int, how: dict[str, Any]
) -> None:
    op = ensembles.sums(seed, **how)
    feature: Any = op.feature.array
    edges = op.threshold.array[feature >= 0].astype(np.float32)
    rows = np.random.default_rng(seed).choice(np.append(edges, [0, -0.0, 1e-40, np.nan]), (200, 6))
    narrow = rows.astype(np.float32)
    flow = op(vector(6))
    assert widens_exactly(flow, NARROW)
    own = flow.retype(**NARROW).reference(narrow)["output"]
    np.testing.assert_array_equal(own, flow.reference(narrow.astype(np.float64))["output"])
