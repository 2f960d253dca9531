"""What every rule is tested for: it fires, declines, means the same, and reports itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.op import Columns
from flour.core.reference import evaluate
from flour.core.sparse import densify
from flour.core.types import Record, Type, Vector
from flour.language.flow import Flow
from oven.optimise.passes import Pass
from oven.optimise.pattern import BITS
from oven.optimise.rewrite import RewriteTrace, trace
from oven.optimise.rules import RULES
from oven.optimise.summary import expression
from tests.columns import assert_close, draw

#: What a float column also holds: nothing that overflows, everything else that is odd.
MILD = [0.0, -0.0, 1.0, -1.0, 5e-324, -1e-300, 1e-9, 1e6, -1e6]
ODD = [*MILD, np.nan, np.inf, -np.inf, 1e308, -1e308]
ROWS = 200


def only(*rules: str) -> tuple[Pass, ...]:
    """One pass of these rules alone."""
    return (Pass("alone", "for a test", tuple(RULES[name] for name in rules)),)


def traced(flow: Flow, rule: str) -> RewriteTrace:
    """What the rule alone makes of the program."""
    return trace(flow, passes=only(rule))


def assert_fires(
    flow: Flow, rule: str, after: str, *, output: str = "", odd: list[float] | None = None
) -> Flow:
    """The rule applies, gives the program written `after`, means the same and reports itself."""
    found = traced(flow, rule)
    made = found.flow.outputs[output or next(iter(found.flow.outputs))]
    assert expression(made) == after, expression(made)
    assert {firing.rule.name for firing in found.firings} == {rule}
    assert f"{rule}  (oven/optimise/rules/{rule}.py:" in found.text()
    assert " -> " in found.text()
    assert_means_the_same(flow, found.flow, rule, odd)
    return found.flow


def assert_declines(flow: Flow, rule: str) -> None:
    """The rule leaves the program as it is, and the trace says so."""
    found = traced(flow, rule)
    assert found.fired == set(), found.text()
    assert found.flow.outputs == flow.outputs
    assert found.text() == "== alone (unchanged)"


def assert_means_the_same(
    before: Flow, after: Flow, rule: str, odd: list[float] | None = None
) -> None:
    """The reference answers alike before and after, as far as the rule promises."""
    assert {k: v.type for k, v in before.outputs.items()} == {
        k: v.type for k, v in after.outputs.items()
    }
    bits = RULES[rule].preserves is BITS
    mild = odd or MILD
    for seed, values in enumerate((None, mild, ODD if bits else mild)):
        columns = rows(before, seed, values)
        want = evaluate(before.outputs.values(), columns)
        got = evaluate(after.outputs.values(), columns)
        for name, item in before.outputs.items():
            check = _same_bits if bits else _close
            check(densify(got[after.outputs[name]]), densify(want[item]), name)


def rows(flow: Flow, seed: int, odd: list[float] | None, count: int = ROWS) -> dict[str, Columns]:
    """Random rows for every input, odd numbers among them."""
    rng = np.random.default_rng(seed)
    return {name: _column(rng, kind, count, odd) for name, kind in flow.inputs().items()}


def _column(rng: np.random.Generator, kind: Type, count: int, odd: list[float] | None) -> Columns:
    if isinstance(kind, Record):
        return {name: _column(rng, sub, count, odd) for name, sub in kind.fields}
    made = draw(rng, kind, count)
    if odd is not None and isinstance(made, np.ndarray) and made.dtype.kind == "f":
        with np.errstate(over="ignore"):
            chosen = rng.choice(odd, size=made.shape).astype(made.dtype)
        made = np.where(rng.random(made.shape) < 0.3, chosen, made)
    return made


def _same_bits(got: NDArray[Any], want: NDArray[Any], what: str) -> None:
    assert_close(got, want, 0.0, what)
    if want.dtype.kind == "f":
        signs = np.signbit(got) == np.signbit(want)
        np.testing.assert_array_equal(signs | np.isnan(want), True, err_msg=what)


def _close(got: NDArray[Any], want: NDArray[Any], what: str) -> None:
    """Equal to 1e-12 of the magnitude of the row (float32: as many float32 epsilons)."""
    assert_close(got, want, 1e-12, what)


def vector(width: int, dtype: str = "float64", *, sparse: bool = False, name: str = "x") -> Flow:
    """An input that is a vector."""
    from flour.language.flow import source

    return source(name, Vector(width, dtype, sparse))
