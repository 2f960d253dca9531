"""ONNX models that differ from an earlier one in their weights alone: what is known is kept.

The second model of a structure (see flour.onnx.wire) leaves a template of its plan; from then on a
model of that structure is its weights, put into the template. What the template asks of weights is
asked of each model's, and a model that answers otherwise is imported like the first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, NamedTuple

from numpy.typing import NDArray

from flour.core import provenance
from flour.language.flow import Flow
from flour.onnx import OnnxProgram, import_model
from flour.onnx.attributes import WordList
from flour.onnx.reading import Raw
from flour.onnx.registry import registered
from flour.onnx.wire import Leaf, ModelLayout, split
from flour.tracing.model_flow import ModelFlow
from flour.tracing.traced_array import ArrayTrace, TracedArray
from oven import debug
from oven.optimise.rewrite import optimise
from oven.plans.plan import Plan
from oven.plans.skeleton import RestoredPlan
from oven.plans.template import Template

#: Structures that are known, layouts of their bytes, and how many bytes those may be together.
MOST_FAMILIES = 256
MOST_LAYOUT_BYTES = 32 << 20
#: Templates of one structure, for weights that answer questions differently.
MOST_TEMPLATES = 4
#: A structure has been tried in vain so often.
MOST_FAILURES = 3
#: The same places in larger models take as long to find as the rest.
LARGEST = 64 << 20

Ways = tuple[Any, ...]


class TemplateHit(NamedTuple):
    """A model whose plan came out of a template."""

    #: What whoever left the template wanted to know of its models.
    facts: Any
    found: RestoredPlan
    model: SharedModel

    def plan(
        self,
        flow: Callable[[], Flow],
        *,
        background: bool | Executor = False,
    ) -> Plan:
        """The plan; `flow` makes its program, when somebody looks at it."""

        def programs() -> tuple[Flow, Flow]:
            made = flow()
            return made, optimise(made, exact=False)

        return Plan.restore(self.found, programs, lambda _: None, background=background)


class _Family:
    """Models of one structure, imported in one way."""

    def __init__(self) -> None:
        self.met = self.failures = 0
        self.templates: list[tuple[Template, Any]] = []


class SharedModel:
    """The model of a session, as bytes of which most are other models', too."""

    def __init__(self, layout: ModelLayout, own: tuple[bytes, ...], ways: Ways) -> None:
        self._layout, self._own, self._ways = layout, own, ways
        self._program: OnnxProgram | None = None

    def program(self) -> OnnxProgram:
        """The model as a program, imported when somebody asks for it."""
        if self._program is None:
            native_only, rows, *_ = self._ways
            data = self._layout.joined(self._own)
            made = import_model(data, native_only=native_only, rows=rows)
            self._program = made.without_model()
        return self._program


class TemplateLookup:
    """A model whose structure has been looked at."""

    def __init__(self, data: bytes, layout: ModelLayout, ways: Ways, family: _Family) -> None:
        self._data, self._layout, self._ways, self._family = data, layout, ways, family

    def hit(self) -> TemplateHit | None:
        """The plan of the model, if a template is for it."""
        weights = self._layout.weights(self._data) if self._family.templates else None
        if weights is None:
            return None
        for template, facts in self._family.templates:
            made = template.make(weights)
            if made is not None:
                own = _shared(self._layout.own(self._data), self._layout)
                return TemplateHit(facts, made, SharedModel(self._layout, own, self._ways))
        return None

    def flow(self, place: provenance.Origin) -> ModelFlow | None:
        """Its program, to be made when somebody looks at it, if a template is for the model."""
        hit = self.hit()
        if hit is None:
            return None
        model = hit.model

        def made() -> Flow:
            with provenance.at(place):
                return model.program().flow

        return ModelFlow(hit, made)

    def learn(self, plan: Plan, shaped: Callable[[Flow], Flow], facts: Callable[[], Any]) -> None:
        """Keep what came of importing the model, if others like it are to be expected.

        `shaped` makes its program the plan's; where there are no facts, nothing is kept.
        """
        family = self._family
        family.met += 1
        done = len(family.templates) >= MOST_TEMPLATES or family.failures >= MOST_FAILURES
        if family.met < 2 or done:
            return
        found = facts()
        template = self._template(plan, shaped) if found is not None else None
        with _lock:
            if template is None or found is None:
                family.failures += 1
            else:
                family.templates.append((template, found))

    def _template(self, plan: Plan, shaped: Callable[[Flow], Flow]) -> Template | None:
        """What this model's plan is without its weights; None where they decide too much."""
        weights = self._layout.weights(self._data)
        if weights is None:
            return None
        trace, (native_only, rows, *_) = ArrayTrace(), self._ways
        arrays = iter(weights)
        formulas = {leaf.owner: _formula(trace, leaf, arrays) for leaf in self._layout.leaves}
        try:
            made = import_model(self._data, native_only=native_only, rows=rows, formulas=formulas)
            template = Template(shaped(made.flow), trace, named="program" in self._ways)
            fits = not trace.broken and template.equals(plan) and template.make(weights) is not None
        except Exception:  # noqa: BLE001 (whatever cannot take formulas; the session is there)
            return None
        return template if fits else None


def _formula(
    trace: ArrayTrace, leaf: Leaf, arrays: Iterator[NDArray[Any]]
) -> TracedArray | WordList:
    """What stands for the next of the weights."""
    if not leaf.words:
        return trace.leaf(next(arrays).copy())
    offsets = trace.leaf(next(arrays), common=True)
    return WordList(offsets, trace.leaf(next(arrays), free=True, common=True))


def bake_model(flow: ModelFlow, usual: Callable[[], Plan], *, background: bool | Executor) -> Plan:
    """The plan of a model's program: known, or made as usual and learnt from."""
    model = flow.model
    if isinstance(model, TemplateHit):
        return model.plan(lambda: flow, background=background)
    plan = usual()
    if isinstance(model, TemplateLookup) and plan.ready:
        flow.model = None  # its bytes are not needed any more
        model.learn(plan, lambda made: made, tuple)
    return plan


def look_up(model: Raw | None, ways: Ways) -> TemplateLookup | None:
    """What is known of models like this one; `ways` is all that matters to how it is imported."""
    if model is None or len(model.data) > LARGEST or debug.asked():
        return None
    layout = _layout(model.data)
    if layout is None:
        return None
    ways = (*ways, os.environ.get("PRETZEL_WITHOUT", ""), registered())
    return TemplateLookup(model.data, layout, ways, _family((layout.key, ways)))


class _Layouts:
    """Layouts that were met again, by their size; the oldest go where they are too much."""

    def __init__(self) -> None:
        self.known: dict[int, list[ModelLayout]] = {}
        #: Structures that were met, and the parts of the first model that had each.
        self.once: dict[bytes, tuple[bytes, ...]] = {}
        self.held = 0

    def find(self, data: bytes) -> ModelLayout | None:
        """The layout of these bytes, if it is known."""
        return next((it for it in self.known.get(len(data), ()) if it.fits(data)), None)

    def keep(self, made: ModelLayout) -> ModelLayout:
        """Keep a layout if its structure has been met, with the parts that it had then."""
        parts = self.once.get(made.key)
        if parts is not None:
            made = made.sharing(parts)
            self.known.setdefault(made.size, []).append(made)
            self.held += made.held
        self.once[made.key] = tuple(part for _, part in made.fixed)
        while self.held > MOST_LAYOUT_BYTES:
            gone = self.known.pop(next(iter(self.known)))
            self.held -= sum(each.held for each in gone)
        while len(self.once) > MOST_FAMILIES:
            del self.once[next(iter(self.once))]
        return made


_layouts = _Layouts()
_families: dict[tuple[bytes, Ways], _Family] = {}
_last: dict[bytes, tuple[bytes, ...]] = {}
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


def _layout(data: bytes) -> ModelLayout | None:
    known = _layouts.find(data)
    made = split(data) if known is None else None
    if made is not None:
        with _lock:
            return _layouts.keep(made)
    return known


def _family(key: tuple[bytes, Ways]) -> _Family:
    with _lock:
        found = _families.setdefault(key, _Family())
        while len(_families) > MOST_FAMILIES:
            del _families[next(iter(_families))]
    return found


def _shared(own: tuple[bytes, ...], layout: ModelLayout) -> tuple[bytes, ...]:
    """A model's own bytes; what is the same as in the model before is that model's."""
    before = _last.get(layout.key, ())
    made = own
    if len(before) == len(own):
        made = tuple(old if old == new else new for old, new in zip(before, own, strict=True))
    with _lock:
        _last[layout.key] = made
        while len(_last) > MOST_FAMILIES:
            del _last[next(iter(_last))]
    return made
