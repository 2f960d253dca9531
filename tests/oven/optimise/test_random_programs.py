"""2,000 random programs: native code answers as the reference does, with rules on, off and exact.

40 shapes, 50 programs each; all of them together are about 200 different stages, so that the
compiler does not take the time the comparisons need.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flour.core.op import Columns
from flour.core.reference import evaluate
from flour.core.sparse import Sparse, densify
from flour.core.types import Vector
from flour.language.flow import Flow
from oven.optimise.passes import PASSES
from oven.optimise.rewrite import trace
from oven.plans.plan import Plan
from tests.columns import assert_close
from tests.programs import random_program
from tests.rewrites import rows

pytestmark = pytest.mark.rules
SHAPES, EACH = 40, 50
#: Rounding of sums and of libm, carried through up to nine more steps; and what re-associated
#: sums add to that. float32 gets as many of its own epsilons, of which there are fewer to lose.
TOLERANCE = {
    "float64": {"exact": 1e-12, "rules": 1e-10},
    "float32": {"exact": 1e-13, "rules": 1e-12},
}
#: The same program without rules, with those that keep every bit, and with all of them.
FORMS: dict[str, Callable[[Flow], Plan]] = {
    "off": lambda flow: Plan(flow, flow),
    "exact": lambda flow: Plan(flow, trace(flow, True).flow, exact=True),
    "default": lambda flow: Plan(flow, trace(flow).flow),
}
COUNT = 7


@pytest.mark.parametrize("shape", range(SHAPES))
@settings(max_examples=EACH)
@given(numbers=st.integers(0, 2**32 - 1))
def test_native_code_answers_as_the_reference(shape: int, numbers: int) -> None:
    flow = random_program(shape, numbers)
    columns = rows(flow, numbers % 1000, None, COUNT)
    want = evaluate(flow.outputs.values(), columns)
    for form, bake in FORMS.items():
        plan = bake(flow)
        # All rows at once, and the last of them alone.
        alone = {name: _last(column) for name, column in columns.items()}
        many, one = plan.run_columns(columns, COUNT), plan.run_columns(alone, 1)
        for name, item in flow.outputs.items():
            expected = np.asarray(densify(want[item]))
            dtype = next(
                k.dtype for k in flow.inputs().values() if isinstance(k, Vector) and "f" in k.dtype
            )
            loose = TOLERANCE[dtype]["rules" if form == "default" else "exact"]
            assert_close(densify(many[name]), expected, loose, f"{form}: {name} of many rows")
            got = np.concatenate([expected[:-1], np.asarray(densify(one[name]))])
            assert_close(got, expected, loose, f"{form}: {name} of one row")


def _last(column: Columns) -> Columns:
    return Sparse.of(column.toarray()[-1:]) if isinstance(column, Sparse) else column[-1:]


def test_the_programs_are_worth_their_time() -> None:
    """Every rule applies to some of them, often, but those about records, constants and trees."""
    fired: dict[str, int] = {}
    for shape in range(SHAPES):
        for numbers in range(5):
            for firing in trace(random_program(shape, numbers)).firings:
                fired[firing.rule.name] = fired.get(firing.rule.name, 0) + 1
    everything = {rule.name for one in PASSES for rule in one.rules}
    trees = {name for name in everything if name.endswith(("_into_trees", "_into_leaves"))}
    rare = {"fold_constants", "merge_common", "join_tables"}
    rare |= {"choose_before_text", "categorise_labels"}
    assert everything - set(fired) - trees <= rare
    assert sum(fired.values()) > 10 * SHAPES, fired
