"""From a program to a plan: validate, rewrite, cut into stages, emit, compile."""

from __future__ import annotations

from flour.core.errors import TypeMismatch
from flour.core.modules import paused_collector
from flour.core.types import Later
from flour.language.flow import Flow, without_unread
from flour.ops.require import OnMissing, refuses, without_checks
from oven import debug
from oven.plans import program_image
from oven.plans.background import Background
from oven.plans.plan import Plan, reporters
from oven.plans.program import Compiler
from oven.plans.program_image import ProgramImage


def bake(
    flow: Flow,
    *,
    exact: bool = False,
    background: Background = None,
    on_missing: OnMissing = "refuse",
    compiler: Compiler = "pretzel",
) -> Plan:
    """The plan of a program.

    With `exact`, only rewrites that keep every bit are made and sums keep their order. Code that is
    in no cache is compiled on another thread, and until it is there the plan answers from the
    operators' definitions: `plan.code.tier` says which, `plan.wait()` waits, and `background=False`
    compiles before this returns; an executor compiles on its threads. With `on_missing="answer"`,
    rows that the program refuses for NaN or infinity are computed.

    With `compiler="numba"`, numba compiles the source of every stage and, from their source in
    Python, the functions that it calls; they have the same bits, and take ten times as long. Words
    of single instructions are LLVM's in both, and so are the passes. Plans share what calls their
    stages, the entries and the loop over tiles: `PRETZEL_COMPILER=numba` has numba compile these,
    too. Saved plans do not remember it. With `compiler="portable"`, answers have the same bits on
    every processor, those of `oven.export`.
    """
    _check(flow)
    if not refuses(on_missing):
        flow = without_checks(flow)
    with paused_collector():
        return _bake(flow, exact=exact, background=background, compiler=compiler)


def link(
    written: Flow, optimised: Flow, *, exact: bool = False, background: Background = None
) -> Plan:
    """The plan of programs that were rewritten each by itself, and then put together.

    Only rewrites that keep every bit are made, so it answers what the parts answer one by one.
    """
    return Plan(written, rewritten(optimised), exact=exact, background=background)


def rewritten(flow: Flow, *, exact: bool = True) -> Flow:
    """The program after all rewrites; with `exact`, after those that keep every bit."""
    # The rules and the operators they are about: who only loads plans does without them.
    from oven.optimise.rewrite import optimise

    return optimise(flow, exact=exact)


def _bake(flow: Flow, *, exact: bool, background: Background, compiler: Compiler) -> Plan:
    flow = without_unread(flow)
    if debug.asked():
        from oven.optimise.rewrite import trace

        traced = trace(flow, exact)
        plan = Plan(flow, traced.flow, exact=exact, background=background, compiler=compiler)
        for report in reporters:
            report(plan, traced)
        return plan
    kept = program_image.KEPT[0] and compiler == "pretzel"
    image = ProgramImage(flow, exact=exact) if kept else None
    known = None if image is None else image.plan(background=background)
    if known is not None:
        return known
    runs = rewritten(flow, exact=exact)
    plan = Plan(flow, runs, exact=exact, background=background, compiler=compiler)
    if image is not None:
        image.keep(plan)
    return plan


def _check(flow: object) -> None:
    if not isinstance(flow, Flow):
        raise TypeMismatch(
            "only a program can be baked",
            where="oven.bake",
            found=type(flow).__name__,
            hint="import a fitted estimator first: oven.bake(flour.from_sklearn(estimator))",
        )
    if any(isinstance(kind, Later) for kind in flow.types.values()):
        raise TypeMismatch(
            "a graph has no plan before the models that it names, or holds, are put in",
            where="oven.bake",
            found=repr(flow)[:120],
            hint="register it where its models are: runtime.register(name, graph); for blocks of "
            "rows, runtime.bulk.open_plan(graph) opens a graph of plans, or the file of a graph",
        )
