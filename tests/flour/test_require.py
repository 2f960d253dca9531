"""NaN and infinity are refused in the columns that say so, by the reference and natively."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour import Flow
from flour.core.errors import InputError, ParameterError
from flour.core.types import LARGEST, LARGEST_SINGLE
from flour.ops.require import RequireFinite

FINITE = np.random.default_rng(3).normal(size=(70, 4))
REQUIRED: dict[str, tuple[list[bool], list[float]]] = {
    "finite": ([True] * 4, [LARGEST] * 4),
    "single": ([True] * 4, [LARGEST_SINGLE] * 4),
    "no infinity": ([False] * 4, [LARGEST] * 4),
    "no NaN": ([True] * 4, [np.inf] * 4),
    "mixed": ([True, False, False, True], [LARGEST, LARGEST_SINGLE, np.inf, np.inf]),
}
ODD = [np.nan, np.inf, -np.inf, 1e39, LARGEST_SINGLE, np.nextafter(LARGEST_SINGLE, np.inf)]


def refused(*, nan: bool, largest: float, value: float, dtype: str) -> bool:
    """What the check is to refuse, said in another way."""
    with np.errstate(over="ignore"):
        held = np.dtype(dtype).type(value)
        single = np.isinf(np.float32(held))
    if np.isnan(held):
        return nan
    return bool((np.isinf(held) and largest < np.inf) or (single and largest == LARGEST_SINGLE))


def programs(check: RequireFinite, dtype: str) -> dict[str, Flow]:
    """The check ahead of fused operators, of a kernel, and of what is stored sparsely."""
    x = flour.vector("x", 4, dtype=dtype)
    y = flour.vector("x", 4, dtype=dtype, sparse=True)
    return {
        "fused": check(x).abs().sum(),
        "computed": check(x.abs()).sum(),
        "one column": check(x).element(2),
        "sum": check(x).linear(np.ones((1, 4), dtype), []).sigmoid(),
        "sum and values": flour.concat(check(x).linear(np.zeros((1, 4), dtype), []), check(x)),
        "kernel": check(x).linear(np.ones((90, 4), dtype), []).sum(),
        "sparse": check(y).sum(),
    }


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", REQUIRED)
def test_native_code_refuses_what_the_reference_refuses(name: str, dtype: str) -> None:
    nan, largest = REQUIRED[name]
    for kind, flow in programs(RequireFinite(nan, largest), dtype).items():
        plan, entry = oven.bake(flow), oven.bake(flow).entry()
        plan.run(FINITE.astype(dtype))
        for value in ODD:
            for column in range(4):
                rows = FINITE.copy()
                rows[65, column] = value
                with np.errstate(over="ignore"):
                    rows = rows.astype(dtype)
                asked: list[Any] = [(flow.reference, rows), (plan.run, rows), (entry, rows)]
                asked += [(entry, rows[65]), (plan.run, rows[65:66])]
                for call, data in asked:
                    if not refused(
                        nan=nan[column], largest=largest[column], value=value, dtype=dtype
                    ):
                        call(data)
                        continue
                    place = 65 if data is rows else 0
                    with pytest.raises(InputError, match=rf"\$\[{place}\]\[{column}\]") as caught:
                        call(data)
                    assert str(caught.value.found).strip("-") == str(abs(rows[65, column])), kind


def test_a_sum_beyond_the_largest_number_is_an_answer() -> None:
    """The check of a sum stands for that of its terms, which are all finite here."""
    flow = RequireFinite([True] * 4, [LARGEST] * 4)(flour.vector("x", 4)).linear(
        np.ones((1, 4)), []
    )
    rows = np.vstack([FINITE, [1e308] * 4])
    plan = oven.bake(flow)
    for call in (plan.run, plan.entry()):
        answers = call(rows)
        found = answers["output"] if isinstance(answers, dict) else answers[0]
        assert np.isinf(found[-1]).all()
        np.testing.assert_allclose(found[:-1, 0], FINITE.sum(1))


def test_wide_rows_with_gaps_between_them() -> None:
    flow = RequireFinite([True] * 4, [LARGEST] * 4)(flour.vector("x", 4)).sum()
    plan = oven.bake(flow)
    wide = np.full((70, 9), np.nan)
    wide[:, 2:6] = FINITE
    np.testing.assert_allclose(plan.run(wide[:, 2:6])["output"], FINITE.sum(1))
    with pytest.raises(InputError, match=r"\$\[0\]\[0\]"):
        plan.run(wide[:, 1:5])


def test_columns_are_named() -> None:
    x = flour.record("x", {"age": flour.Scalar("float64"), "fare": flour.Scalar("float64")})
    check = RequireFinite([True] * 2, [LARGEST] * 2, "Ridge", "Scaler", ("age", "fare"))
    plan = oven.bake(check(x.columns(["age", "fare"])).sum())
    with pytest.raises(InputError, match="Ridge refuses NaN") as caught:
        plan.entry()({"age": 1.0, "fare": float("nan")})
    assert caught.value.where == "$.fare[0]"
    with pytest.raises(InputError, match="Scaler refuses infinity"):
        plan.entry()({"age": float("inf"), "fare": 1.0})


def test_a_plan_may_answer_instead() -> None:
    flow = RequireFinite([True] * 4, [LARGEST] * 4)(flour.vector("x", 4)).sum()
    rows = np.array([[1.0, np.nan, 2.0, 3.0]])
    assert np.isnan(oven.bake(flow, on_missing="answer").run(rows)["output"]).all()
    with pytest.raises(ParameterError, match="on_missing"):
        oven.bake(flow, on_missing="skip")  # type: ignore[arg-type]  # that is the point
