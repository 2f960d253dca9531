"""Shows a plan at every step from the program to machine code.

    logical      the program as it was written
    optimised    the program after all rules
    stages       operators that run together, their inputs, outputs and origin
    source       the code emitted for each stage
    llvm         the same as LLVM IR
    asm          the same as assembly
    timed        a run, stage by stage: time, rows, bytes

Every step is text, or an HTML page without external resources. Stages without native code are
marked black: they run as Python, or on onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable

import flour
from flour.core.errors import ParameterError, nearest
from flour.language.show_html import drawing
from oven.codegen.ports import Port
from oven.codegen.stages import Stage, Value
from oven.explain import timing
from oven.explain.page import page, preformatted, table
from oven.plans import characters
from oven.plans.plan import Plan
from oven.run.native_run import LONGEST, room_bytes

FORMS = ("text", "html")
STAGE_COLUMNS = ("stage", "operators", "reads", "leaves", "parameters", "rooms", "from")
TIMED_COLUMNS = ("stage", "operators", "time", "a row", "share", "rows", "bytes")


def explain(plan: Plan, stage: str = "stages", form: str = "text", data: object = None) -> str:
    """The plan at one step, as text; `data` are rows for the step "timed"."""
    if stage not in STEPS:
        raise ParameterError.here(
            f"there is no step {stage!r} to explain",
            hint=", ".join(filter(None, (nearest(stage, STEPS), "one of " + ", ".join(STEPS)))),
        )
    if form not in FORMS:
        raise ParameterError.here(f"there is no form {form!r}", hint="one of " + ", ".join(FORMS))
    return _timed(plan, form, data) if stage == "timed" else STEPS[stage](plan, form)


# --- stages -------------------------------------------------------------------------------------


def _stages(plan: Plan, form: str) -> str:
    rows = [_stage_row(plan, number, stage) for number, stage in enumerate(plan.program.stages)]
    head = f"{len(rows)} stages, {len(_black(plan))} of them black; {_tier(plan)}"
    if plan.program.compiler != "pretzel":
        head += f"; compiled by {plan.program.compiler}"
    if unicode := characters.version(plan.flow):
        head += f"; characters of Unicode {unicode}"
    if form == "html":
        drawn = drawing(plan.program.optimised, "the program after all rules")
        return page("Stages", head, table(STAGE_COLUMNS, rows, marked=_black(plan)) + drawn)
    lines = [head]
    for row in rows:
        lines.append(row[0])
        facts = zip(STAGE_COLUMNS[1:], row[1:], strict=True)
        lines += [f"    {key:<10} {text}" for key, text in facts if text]
    return "\n".join(lines)


def _black(plan: Plan) -> set[int]:
    """The numbers of the stages without native code."""
    return {number for number, stage in enumerate(plan.program.stages) if not stage.native}


def _tier(plan: Plan) -> str:
    """The tier that answers, and the time until native code does."""
    left = plan.code.seconds_left
    answers = "native code answers" if plan.code.tier else "definitions answer"
    compiled = f", about {left:.1f} s of compiling left" if left else ""
    return f"tier {plan.code.tier}: {answers}{compiled}"


def _stage_row(plan: Plan, number: int, stage: Stage) -> tuple[str, ...]:
    parameters = {item.digest: item.nbytes for item in stage.parameters()}
    for item in () if stage.source else stage.nodes:
        parameters |= {parameter.digest: parameter.nbytes for parameter in item.op.parameters()}
    remarks = [(item.op.name, item.op.remark()) for item in stage.nodes]
    rooms = ""
    if stage.rooms:  # memory whose size depends on the data
        each, fixed = (sum(room[part] for room in stage.rooms) for part in (0, 1))
        most = room_bytes(stage.rooms, LONGEST)
        rooms = f"{each:,} bytes a byte of the longest row and {fixed:,}; at most {most:,}"
    return (
        label(number, stage),
        ", ".join(f"{name} ({remark})" if remark else name for name, remark in remarks),
        "; ".join(map(_value, stage.inputs)),
        "; ".join(map(_value, stage.outputs)),
        f"{sum(parameters.values()):,} bytes in {len(parameters)}" if parameters else "",
        rooms,
        "; ".join(origins(plan, stage)),
    )


def label(place: int, stage: Stage) -> str:
    """A stage's number and kind."""
    black = f"{stage.nodes[0].op.runs_on} (black)"
    return f"{place} {(stage.name or stage.kind) if stage.native else black}"


def _value(value: Value) -> str:
    if not isinstance(value, Port):
        return f"{value.op.name}: {value.type}"
    columns = f" [{', '.join(value.fields[:6])}{', ...' * (len(value.fields) > 6)}]"
    return f"{value.label}{columns if value.fields else ''}: {value.type}"


def origins(plan: Plan, stage: Stage) -> list[str]:
    """The estimators, or the lines, that a stage came from, in the order of the program."""
    origins_of = plan.program.optimised.origins()
    found = sorted({origin for item in stage.nodes for origin in origins_of.get(item, ())})
    steps: dict[str, dict[str, None]] = {}
    for origin in found:
        steps.setdefault(str(origin._replace(step="")), {})[origin.step] = None
    quoted = {where: [f"'{each}'" for each in names if each] for where, names in steps.items()}
    named = {where: ", ".join(names) for where, names in quoted.items()}
    return [f"{names} at {where}" if names else where for where, names in named.items()]


# --- code ---------------------------------------------------------------------------------------


def llvm_of(stage: Stage) -> str:
    """The LLVM IR of a native stage, after optimisation; compiled anew, the cache keeps none."""
    from oven.compiler.native import compile_source

    return compile_source(stage.source, stage.name).llvm


def assembly_of(stage: Stage) -> str:
    """The assembly of a native stage."""
    from oven.compiler.native import assembly

    return assembly(llvm_of(stage))


def _code(plan: Plan, form: str, title: str, text: Callable[[Stage], str]) -> str:
    parts = []
    for number, stage in enumerate(plan.program.stages):
        names, runs_on = ", ".join(item.op.name for item in stage.nodes), stage.nodes[0].op.runs_on
        runner = "as Python" if runs_on == "python" else f"on {runs_on}"
        if stage.native:
            runner = "in numpy, from strings that are ready"
        code = text(stage) if stage.source else f"# no native code: {names} runs {runner}"
        parts.append((f"{label(number, stage)}: {names}", code))
    if form == "html":
        return page(title, "", "".join(preformatted(name, code) for name, code in parts))
    blocks = [f"# --- {name}\n{code.rstrip()}\n" for name, code in parts]
    return "\n".join(blocks or ["# nothing runs: every output is an input"]).rstrip()


# --- time ---------------------------------------------------------------------------------------


def _timed(plan: Plan, form: str, data: object) -> str:
    run = timing.measure(plan, data)
    total = sum(one.seconds for one in run.stages) or 1.0
    rows = [
        (
            label(number, one.stage),
            ", ".join(item.op.name for item in one.stage.nodes),
            f"{one.seconds * 1e6:,.1f} us",
            f"{one.seconds * 1e9 / max(run.rows, 1):,.0f} ns",
            f"{one.seconds / total:.0%}",
            f"{run.rows:,}",
            f"{one.bytes:,}",
        )
        for number, one in enumerate(run.stages)
    ]
    head = (
        f"{run.rows:,} {run.source} rows: {total * 1e6:,.1f} us in stages one by one, "
        f"{run.whole * 1e6:,.1f} us as a whole (the best of {timing.REPEATS})"
    )
    if form == "html":
        return page("Time", head, table(TIMED_COLUMNS, rows, marked=_black(plan), bars="share"))
    return "\n".join([head, *_aligned([TIMED_COLUMNS, *rows])])


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns side by side; the first two to the left, numbers to the right."""
    shown = [
        (row[0], row[1] if len(row[1]) <= 48 else row[1][:45] + "...", *row[2:]) for row in rows
    ]
    widths = [max(len(row[j]) for row in shown) for j in range(len(shown[0]))]
    return [
        "  ".join(
            text.ljust(width) if j < 2 else text.rjust(width)
            for j, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in shown
    ]


STEPS: dict[str, Callable[[Plan, str], str]] = {
    "logical": lambda plan, form: flour.show(plan.flow, form),
    "optimised": lambda plan, form: flour.show(plan.program.optimised, form),
    "stages": _stages,
    "source": lambda plan, form: _code(plan, form, "Source", lambda stage: stage.source),
    "llvm": lambda plan, form: _code(plan, form, "LLVM IR", llvm_of),
    "asm": lambda plan, form: _code(plan, form, "Assembly", assembly_of),
    "timed": lambda plan, form: _timed(plan, form, None),
}
