"""Contributions of raw columns to a score: exact where a program allows it, else sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from flour.core.errors import ParameterError, TypeMismatch, nearest
from flour.core.types import FLOATS
from oven.explain.attribution.explainer import Explainer
from oven.explain.attribution.sampling import sampled

if TYPE_CHECKING:
    from oven.plans.attribution import Attribution
    from oven.plans.plan import Plan

#: The outputs that are explained unless one is named, the first that a plan has.
USUAL = ("scores", "value", "probabilities")

_known: WeakKeyDictionary[Plan, dict[str, Explainer]] = WeakKeyDictionary()


def attribute(
    plan: Plan,
    rows: object,
    *,
    output: str | None = None,
    background: object = None,
    samples: int = 64,
) -> Attribution:
    """Contributions of each raw column to each row's score: see docs/reference/attribution.md.

    Without an `output`, the first of scores, value and probabilities is explained. Shares are
    against the mean of the `background` (some rows), or else against the training data as far as
    the plan knows of it. Where there is no exact form, they are estimated by `samples`.
    """
    name = _output(plan) if output is None else output
    explainer = explainer_of(plan, name)
    if explainer.terms.inexact:
        if background is None:
            raise ParameterError(
                f"{explainer.terms.inexact} mixes columns in a way that has no exact attribution",
                where=f"output {name!r}",
                hint="pass background=, some rows to compare with: shares are then sampled",
            )
        return sampled(explainer, rows, background, samples)
    return explainer.exact(rows, background)


def _output(plan: Plan) -> str:
    names = [name for name in USUAL if name in plan.outputs]
    others = [name for name, kind in plan.outputs.items() if getattr(kind, "dtype", "") in FLOATS]
    if names or others:
        return (names or others)[0]
    raise TypeMismatch("no output is a number to attribute", found=", ".join(plan.outputs))


def explainer_of(plan: Plan, output: str) -> Explainer:
    """The explainer of a plan's output, which stays with the plan."""
    known = _known.setdefault(plan, {})
    if output not in known:
        if output not in plan.outputs:
            raise ParameterError(
                f"there is no output {output!r} to attribute",
                found=", ".join(plan.outputs),
                hint=nearest(output, plan.outputs),
            )
        if getattr(plan.outputs[output], "dtype", "") not in FLOATS:
            raise TypeMismatch(
                f"{output!r} is no number that columns add to",
                found=str(plan.outputs[output]),
                hint="attribute scores, probabilities or a value",
            )
        known[output] = Explainer(plan, output)
    return known[output]
