"""Variants of plans that compute some of the outputs: same bits, same refusals, made when asked."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import FlourError
from flour.core.types import LARGEST
from flour.ops.require import RequireFinite
from oven import Plan
from oven.plans import plan as plans
from runtime import Runtime
from tests.house import until
from tests.oven.plans.test_saved import baked, same
from tests.oven.programs import PROGRAMS


def _part(plan: Plan, names: Collection[str]) -> Plan:
    return plan.variants.of_outputs(names) or plan


@pytest.mark.parametrize("name", PROGRAMS)
def test_bits(name: str) -> None:
    plan, data = baked(name, background=False)
    whole = plan.run(data)
    for output in plan.outputs:
        part = _part(plan, [output])
        assert list(part.outputs) in ([output], list(plan.outputs))
        same({output: part.run(data)[output]}, {output: whole[output]})
    assert _part(plan, list(plan.outputs)) is plan


def test_rows_are_refused_as_before() -> None:
    x = flour.vector("x", 2)
    checked = RequireFinite([True], [LARGEST])(x)
    plan = oven.bake(flour.outputs(sum=x.sum(), finite=checked.sum()), background=False)
    assert _part(plan, ["sum"]) is plan  # alone, it would take rows that are refused
    assert _part(plan, ["finite"]) is not plan
    for output in plan.outputs:
        with pytest.raises(FlourError):
            _part(plan, [output]).run([[np.nan, 1.0]])


def test_variants_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MOST_BY_OUTPUTS", 1)
    plan, _ = baked("scaled_logistic", background=False)
    first, second, *_ = plan.outputs
    assert _part(plan, [first]) is not plan
    assert _part(plan, [second]) is plan
    assert _part(plan, ["none of these"]) is plan


def _is_there(plan: Plan, name: str) -> bool:
    return _part(plan, [name]) is not plan


def test_a_runtime_computes_what_is_asked() -> None:
    plan, data = baked("scaled_logistic")
    with Runtime() as runtime:
        runtime.register("m", plan.wait())
        whole = runtime.predict("m", data)
        for name in plan.outputs:
            same(runtime.predict("m", data, outputs=name), {name: whole[name]})
            until(partial(_is_there, plan, name))
            same(runtime.predict("m", data, outputs=name), {name: whole[name]})
            same(runtime.submit("m", data, outputs=[name]).result(30), {name: whole[name]})
            row = runtime.predict("m", data[0], outputs=name)
            np.testing.assert_array_equal(row[name], whole[name][0])
    assert len(plan.variants.here) == len(plan.outputs)
