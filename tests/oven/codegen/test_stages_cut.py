"""Programs of hundreds of operators are cut into stages that compile one by one."""

from __future__ import annotations

import numpy as np
import pytest

import flour
from flour.language.flow import Flow
from oven.codegen.ports import find_ports
from oven.codegen.stages import MOST_LINES, Stage, cut
from oven.plans.plan import Plan

pytestmark = pytest.mark.rules


def stages(flow: Flow) -> list[Stage]:
    """The stages as they are, without rules and without compiling."""
    roots = tuple(flow.outputs.values())
    return cut(roots, find_ports(roots))


def test_small_programs_are_one_stage() -> None:
    x = flour.vector("x", 2 * 4)
    made = []
    for j in range(4):
        part = x.select([2 * j, 2 * j + 1])
        made.append(part.tanh().add([float(j)]) if j % 2 else part.exp().multiply([1.0 + j]))
    assert len(stages(made[0].concat(*made[1:]))) == 1


def total(count: int) -> Flow:
    """The sum of so many functions of two columns each."""
    x = flour.vector("x", 2 * count)
    made = x.select([0, 1])
    for j in range(count):
        made = made.plus(x.select([2 * j, 2 * j + 1]).tanh().add([float(j)]))
    return made


def test_large_programs_are_cut_into_stages_of_bounded_size() -> None:
    made = stages(total(200))
    assert len(made) > 2
    assert max(stage.source.count("\n") for stage in made) <= MOST_LINES


def test_a_sparse_vector_is_not_stored_for_the_sake_of_a_cut() -> None:
    words = [f"word{n}" for n in range(200)]
    counts = flour.text("note").tokenize().word_ngrams(words, 1, 1)
    sums = [counts.linear([[float(n + k) for n in range(200)]], [0.0]) for k in range(40)]
    (stage,) = stages(flour.outputs(**{f"y{k}": each[0] for k, each in enumerate(sums)}))
    assert stage.source.count("\n") > MOST_LINES


def test_every_value_is_made_before_it_is_read() -> None:
    known: set[object] = set()
    for stage in stages(total(200)):
        inside = {value for value in stage.inputs if isinstance(value, type(stage.nodes[0]))}
        assert inside <= known
        known |= set(stage.outputs)


def test_lone_columns_are_no_loops() -> None:
    x = flour.vector("x", 40)
    flow = x.select([0]).exp().concat(*(x.select([j]).exp() for j in range(1, 40)))
    (stage,) = stages(flow)
    assert stage.source.count("for ") == 1


def test_a_cut_program_answers_the_same() -> None:
    count = 60
    plan = Plan(total(count), total(count))
    assert len(plan.program.stages) > 1
    x = np.random.default_rng(3).normal(size=(5, 2 * count))
    (made,) = plan.run(x).values()
    steps = [np.tanh(x[:, 2 * j : 2 * j + 2]) + j for j in range(count)]
    np.testing.assert_allclose(made, x[:, :2] + np.sum(steps, axis=0), rtol=1e-13)
