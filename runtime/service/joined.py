"""A champion and its shadow as one program, which computes once what both have in common.

The program is made of the two as they run, each after its own rewriting, by the rules that keep
every bit; see docs/decisions/0026-graphs.md. Whether the champion's answers keep theirs depends on
one thing more: a vector that both read is kept in memory where the champion alone adds it up as it
comes, and sums of other shapes are made in another order. So it is looked at how each value of the
champion is held, by itself and in the common program. Then both are tried on rows that were asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from types import BuiltinFunctionType

import oven
from flour.core.node import Node
from flour.core.types import Vector
from flour.language.flow import Flow
from oven import Plan
from oven.entry.builtin import learn_release
from runtime.routing.mirror import Mirrored
from runtime.routing.pairs import bits
from runtime.service.entry import RELEASE_SECONDS
from runtime.service.version import ModelVersion

#: Rows that both programs are tried on, and how often.
ROWS, TURNS = 32, 5
#: The common program may take so much of the champion's time, and of both versions' by themselves.
OF_CHAMPION, OF_BOTH = 2.0, 0.9
#: Or so many seconds more than the champion: asking the shadow later takes as long.
LATER_SECONDS = 2e-6
#: How one value of a program is held.
_Held = tuple[str, str, bool]


class NotJoinedError(Exception):
    """Two versions are asked one after the other; the message says why."""


def joined(champion: ModelVersion, challenger: ModelVersion) -> ModelVersion:
    """A version that answers as both: first the champion's outputs, then the challenger's.

    Compiles what is not in a cache: not for the thread of a caller.
    """
    one, other = champion.plan, challenger.plan
    if not (isinstance(one, Plan) and isinstance(other, Plan)):
        raise NotJoinedError("one of them is a graph of several steps, or not in memory")
    if list(one.inputs.items()) != list(other.inputs.items()) or one.exact != other.exact:
        raise NotJoinedError("they do not read the same columns in the same way")
    outputs = {
        f"{side}.{name}": item
        for side, plan in (("champion", one), ("shadow", other))
        for name, item in plan.program.optimised.outputs.items()
    }
    flow = oven.rewritten(Flow(outputs))
    plan = oven.link(flow, flow, exact=one.exact, background=True).wait()
    _check_held(one, plan, [f"champion.{name}" for name in one.outputs])
    made = ModelVersion(champion.name, f"{champion.version}+{challenger.version}", plan)
    made.open()
    if type(made.entry.function) is not BuiltinFunctionType:
        raise NotJoinedError("together they are not one piece of machine code")
    return made


# --- what keeps the bits --------------------------------------------------------------------------


def _check_held(alone: Plan, common: Plan, outputs: Sequence[str]) -> None:
    """Raise unless each value of the champion is held in the common program as it is alone."""
    here, there = _held(alone), _held(common)
    roots = [common.program.optimised.outputs[name] for name in outputs]
    for item in Flow(dict(zip(outputs, roots, strict=True))).nodes():
        held = there.get(item)
        if held is None:
            continue
        if "python" in held:
            raise NotJoinedError(f"{item.op.name} is Python")
        if item in here and held != here[item]:
            raise NotJoinedError(f"{item.op.name} would be held in another way: sums may differ")
        if item not in here and not _is_sum_of_sparse(item):
            raise NotJoinedError(f"{item.op.name} would be computed in another way")
    if any(stage.kind == "python" for stage in common.program.stages):
        raise NotJoinedError("the shadow runs Python")


def _held(plan: Plan) -> Mapping[Node, _Held]:
    """For each value that is computed: in which kind of stage, and whether it is kept."""
    found: dict[Node, _Held] = {}
    for stage in plan.program.stages:
        read = [source for item in stage.nodes for source in item.inputs]
        ordered = any(stage.stores(item) for item in stage.outputs)
        for item in stage.nodes:
            kept = isinstance(item.type, Vector) and read.count(item) > 1
            way = "column" if item in stage.outputs else "kept" if kept else "passed"
            # What comes last is written to the answers in either case.
            found[item] = (stage.kind, way if isinstance(item.type, Vector) else "", ordered)
    return found


def _is_sum_of_sparse(item: Node) -> bool:
    """True for sums over a sparse vector, each in its own order, and for a selection of them."""
    sources = [source.type for source in item.inputs]
    sparse = any(isinstance(kind, Vector) and kind.sparse for kind in sources)
    return item.op.name in ("Pick", "Slice", "Column") or (item.op.name == "Linear" and sparse)


# --- trying ----------------------------------------------------------------------------------


class Trial:
    """Takes rows that the champion has answered, until it is known which way is the better one."""

    def __init__(
        self,
        versions: tuple[ModelVersion, ModelVersion],
        common: ModelVersion,
        end: Callable[[str], object],
        *,
        wanted: bool,
    ) -> None:
        """Try the program `common`; `end` takes a reason against it, or nothing.

        Where it is `wanted`, it need not be the faster way.
        """
        self._versions, self._common, self._end, self._wanted = versions, common, end, wanted
        self._rows: list[object] = []

    def __call__(self, some: Sequence[Mirrored]) -> bool:
        """Take some rows; whether these were enough."""
        self._rows += [each.rows for each in some]
        if len(self._rows) < ROWS:
            return False
        self._end(self._reason(self._rows[:ROWS]))
        return True

    def _reason(self, rows: Sequence[object]) -> str:
        functions = [each.entry.function for each in (*self._versions, self._common)]
        champion, challenger, common = functions
        if champion is None or challenger is None or common is None:
            return "one of them is not answered at once"
        try:
            if not all(_keeps_bits(champion(row), common(row)) for row in rows):
                return "the champion's answers would not keep their bits"
            _, _, both = _seconds((champion, challenger, common), rows)
            learn_release(common, 1, long=both >= RELEASE_SECONDS * len(rows))
            alone, shadow, both = _seconds((champion, challenger, common), rows)
        except Exception as problem:  # noqa: BLE001 (the shadow refuses rows: that is told)
            return f"{type(problem).__name__}: {problem}".splitlines()[0][:200]
        saving = both <= OF_BOTH * (alone + shadow) or both - alone <= LATER_SECONDS * len(rows)
        if not self._wanted and not (saving and both <= OF_CHAMPION * alone):
            return f"together they take {both / alone:.2f} of the champion's time"
        return ""


def _seconds(
    functions: Sequence[Callable[[object], object]], rows: Sequence[object]
) -> list[float]:
    """The least time that each function takes for these rows, taking turns."""
    least = [float("inf")] * len(functions)
    for _ in range(TURNS):
        for place, function in enumerate(functions):
            start = perf_counter()
            for row in rows:
                function(row)
            least[place] = min(least[place], perf_counter() - start)
    return least


def _keeps_bits(answers: Sequence[object], longer: Sequence[object]) -> bool:
    """True if the first of some values are these answers."""
    return all(bits(one) == bits(other) for one, other in zip(answers, longer, strict=False))
