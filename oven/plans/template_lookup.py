"""Templates: images of plans by the structure of models, which are filled with a model's numbers.

The second model of a structure leaves a template: its plan, imported and baked once more with
traced arrays for its numbers (see flour.tracing.traced_array). Later models of the structure have
their plans from it. What importers, rules and code generation asked of numbers is part of the
template's computation: a model that answers otherwise is imported like the first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from flour.core.bounded import Bounded
from flour.language.flow import Flow
from flour.ops.opaque import Opaque
from flour.tracing.model_flow import Model, ModelFlow
from flour.tracing.traced_array import ArrayTrace, TracedArray
from flour.tracing.traced_digests import TracedDigests
from objectstore import Blob
from oven import debug
from oven.codegen.ports import find_ports
from oven.codegen.stages import cut
from oven.optimise.rewrite import optimise
from oven.plans.image import SHARED_RESULT_BYTES, Computed, PlanDraft, PlanImage, Source
from oven.plans.plan import Plan
from oven.plans.skeleton import RestoredPlan

#: Structures whose templates are kept.
MOST_FAMILIES = 256
#: Templates of one structure, for numbers that answer questions differently.
MOST_TEMPLATES = 4
#: Results kept as blobs that models of one structure had in common.
MOST_COMMON = 16
#: After so many failures no template is made for a structure.
MOST_FAILURES = 3


class TemplateHit(NamedTuple):
    """A model whose plan came out of a template."""

    #: What an importer keeps for models of the structure.
    facts: Any
    restored: RestoredPlan
    #: What its program is imported from.
    model: Any

    def plan(
        self,
        flow: Callable[[], Flow],
        *,
        background: bool | Executor | None = None,
    ) -> Plan:
        """The plan; `flow` makes its program, when that is looked at."""

        def programs() -> tuple[Flow, Flow]:
            made = flow()
            return made, optimise(made, exact=False)

        return Plan.restore(self.restored, programs, background=background)


class _Family:
    """Models of one structure, imported in one way."""

    def __init__(self) -> None:
        self.count = self.failures = 0
        self.templates: list[tuple[PlanImage, Any]] = []

    @property
    def done(self) -> bool:
        """Whether no more templates are made."""
        return len(self.templates) >= MOST_TEMPLATES or self.failures >= MOST_FAILURES


class TemplateLookup:
    """A model whose structure has been looked up."""

    def __init__(self, model: Model) -> None:
        self._model, self._family = model, _family(model.key)

    def hit(self) -> TemplateHit | None:
        """The plan of the model, if a template is for it."""
        numbers = self._model.numbers() if self._family.templates else None
        if numbers is None:
            return None
        for template, facts in self._family.templates:
            restored = template.restore(numbers=numbers)
            if restored is not None:
                return TemplateHit(facts, restored, self._model.stored())
        return None

    @property
    def has_templates(self) -> bool:
        """Whether models of the structure have a template to be tried."""
        return bool(self._family.templates)

    def seen(self) -> None:
        """Count a model that was made in another way than by importing it."""
        self._family.count += 1

    def learn(self, plan: Plan, shaped: Callable[[Flow], Flow], facts: Callable[[], Any]) -> None:
        """Keep a template of the model that was imported, if it is the second of its structure.

        `shaped` makes its program the plan's; where there are no facts, nothing is kept.
        """
        first = self._family
        first.count += 1
        if first.count < 2 or first.done:
            return
        found = facts()
        template = self._template(plan, shaped) if found is not None else None
        family = _family(self._model.key)  # tracing may have told more of the structure
        with _lock:
            elsewhere = family is not first and first.templates and family.templates
            if template is None or found is None or elsewhere:
                first.failures += 1  # looking it up again would find no more
            if template is not None and not family.done:
                family.templates.append((template, found))

    def _template(self, plan: Plan, shaped: Callable[[Flow], Flow]) -> PlanImage | None:
        """This model's plan without its numbers; None where they decide too much.

        It is kept only if it equals the plan that was made in the usual way.
        """
        trace = ArrayTrace()
        try:
            flow = shaped(self._model.traced(trace))
            traced = _draft(flow)
            usual = PlanDraft.of(plan.flow, plan.optimised, plan.stages, exact=plan.exact)
            numbers = self._model.numbers()
            if traced is None or usual is None or trace.broken or numbers is None:
                return None
            if _content(traced) != _content(usual):
                return None
            image = _traced_image(traced, trace, flow if self._model.named else None)
            restored = image.restore(numbers=numbers)
            same = restored is not None and restored.digest in {"", plan.digest}
        except Exception:  # noqa: BLE001 (whatever cannot take traced arrays; the plan is there)
            return None
        return image if same else None


def _draft(flow: Flow) -> PlanDraft | None:
    """The draft of a program with traced arrays; None where onnxruntime has a part of it."""
    if any(isinstance(item.op, Opaque) for item in flow.nodes()):
        return None
    optimised = optimise(flow, exact=False)
    roots = tuple(optimised.outputs.values())
    return PlanDraft.of(flow, optimised, tuple(cut(roots, find_ports(roots))), exact=False)


def _traced_image(draft: PlanDraft, trace: ArrayTrace, named: Flow | None) -> PlanImage:
    """The image of a plan of traced arrays; with digests for the program that is `named`."""
    digests = None if named is None else TracedDigests(named)
    first = [] if digests is None else digests.blobs
    parameters = (one for _, one in draft.table.parameters if _traced(one) is not None)
    results = {one: n for n, one in enumerate(dict.fromkeys([*first, *parameters]))}

    def source(one: Blob) -> Source | None:
        array = _traced(one)
        if array is None:
            return one
        inside = not array.free and one.nbytes < SHARED_RESULT_BYTES
        return Computed(results[one], inside, array.free)

    arrays = [array for one in results if (array := _traced(one)) is not None]
    recorded, common = trace.recorded(arrays), Bounded[int, Any](MOST_COMMON)
    return replace(draft.image(source), recorded=recorded, digests=digests, common=common)


def _traced(one: Blob) -> TracedArray | None:
    array: Any = one.array
    return array if isinstance(array, TracedArray) else None


def _content(draft: PlanDraft) -> list[Any]:
    """All that a plan runs by: its structure, code and table, and the bytes of its parameters."""
    common, (words, codes, inner, parameters, _) = draft
    arrays = [(place, _traced(one), one.array) for place, one in parameters]
    here = [(place, plain if it is None else it.here()) for place, it, plain in arrays]
    content = [(place, array.dtype.str, array.tobytes()) for place, array in here]
    return [common, words, codes, inner, content]


def bake_model(
    flow: ModelFlow, usual: Callable[[], Plan], *, background: bool | Executor | None
) -> Plan:
    """The plan of a model's program: out of a template, or made as usual, which may leave one."""
    model = flow.model
    if isinstance(model, TemplateHit):
        return model.plan(lambda: flow, background=background)
    plan = usual()
    if isinstance(model, TemplateLookup) and plan.ready and plan.tier:
        flow.model = None  # the plan is there
        model.learn(plan, lambda made: made, tuple)
    return plan


def look_up(model: Model | None) -> TemplateLookup | None:
    """The templates of models like this one."""
    return None if model is None or debug.asked() else TemplateLookup(model)


_families: Bounded[Hashable, _Family] = Bounded(MOST_FAMILIES)
_lock = threading.Lock()


@contextmanager
def no_templates() -> Iterator[None]:
    """Inside, there are no templates; those of before are there again afterwards.

    It shows what the first import of a model takes, in tests and in measurements.
    """
    before = dict(_families)
    _families.clear()
    try:
        yield
    finally:
        _families.clear()
        _families.update(before)


def _family(key: Hashable) -> _Family:
    return _families.first((key, os.environ.get("PRETZEL_WITHOUT", "")), _Family())
