"""Templates by the structure of models: one that came before is loaded by filling in numbers.

The second model of a structure leaves a template of its plan; from then on a model of that
structure is its numbers, put into the template. What the template asks of numbers is asked of each
model's, and a model that answers otherwise is imported like the first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, NamedTuple

from flour.language.flow import Flow
from flour.tracing.model_flow import Model, ModelFlow
from flour.tracing.traced_array import ArrayTrace
from oven import debug
from oven.optimise.rewrite import optimise
from oven.plans.plan import Plan
from oven.plans.skeleton import RestoredPlan
from oven.plans.template import Template

#: Structures whose templates are kept.
MOST_FAMILIES = 256
#: Templates of one structure, for numbers that answer questions differently.
MOST_TEMPLATES = 4
#: After so many failures no template is made for a structure.
MOST_FAILURES = 3


class TemplateHit(NamedTuple):
    """A model whose plan came out of a template."""

    #: What whoever left the template wanted to know of its models.
    facts: Any
    found: RestoredPlan
    #: What its program is imported from.
    model: Any

    def plan(
        self,
        flow: Callable[[], Flow],
        *,
        background: bool | Executor = False,
    ) -> Plan:
        """The plan; `flow` makes its program, when that is looked at."""

        def programs() -> tuple[Flow, Flow]:
            made = flow()
            return made, optimise(made, exact=False)

        return Plan.restore(self.found, programs, lambda _: None, background=background)


class _Family:
    """Models of one structure, imported in one way."""

    def __init__(self) -> None:
        self.count = self.failures = 0
        self.templates: list[tuple[Template, Any]] = []

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
            made = template.make(numbers)
            if made is not None:
                return TemplateHit(facts, made, self._model.stored())
        return None

    def learn(self, plan: Plan, shaped: Callable[[Flow], Flow], facts: Callable[[], Any]) -> None:
        """Keep what came of importing the model, if others like it are to be expected.

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

    def _template(self, plan: Plan, shaped: Callable[[Flow], Flow]) -> Template | None:
        """This model's plan without its numbers; None where they decide too much."""
        trace = ArrayTrace()
        try:
            flow = shaped(self._model.traced(trace))
            template = Template(flow, trace, named=self._model.named)
            numbers = self._model.numbers()
            fits = not trace.broken and template.equals(plan) and numbers is not None
            return template if fits and template.make(numbers or []) is not None else None
        except Exception:  # noqa: BLE001 (whatever cannot take traced arrays; the plan is there)
            return None


def bake_model(flow: ModelFlow, usual: Callable[[], Plan], *, background: bool | Executor) -> Plan:
    """The plan of a model's program: out of a template, or made as usual, which may leave one."""
    model = flow.model
    if isinstance(model, TemplateHit):
        return model.plan(lambda: flow, background=background)
    plan = usual()
    if isinstance(model, TemplateLookup) and plan.ready:
        flow.model = None  # it is not needed any more
        model.learn(plan, lambda made: made, tuple)
    return plan


def look_up(model: Model | None) -> TemplateLookup | None:
    """The templates of models like this one."""
    return None if model is None or debug.asked() else TemplateLookup(model)


_families: dict[Hashable, _Family] = {}
_lock = threading.Lock()


@contextmanager
def nothing_met() -> Iterator[None]:
    """Inside, every structure is new; afterwards what was known before is known again.

    It shows what the first import of a model takes, in tests and in measurements.
    """
    with _lock:
        before = dict(_families)
        _families.clear()
    try:
        yield
    finally:
        with _lock:
            _families.clear()
            _families.update(before)


def _family(key: Hashable) -> _Family:
    with _lock:
        found = _families.setdefault((key, os.environ.get("PRETZEL_WITHOUT", "")), _Family())
        while len(_families) > MOST_FAMILIES:
            del _families[next(iter(_families))]
    return found
