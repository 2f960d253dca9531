"""Programs of models whose plans come from a template: imported when they are looked at.

Importers call `model_program`. It asks the extension point "model_templates", which oven declares,
for a template of the model's structure (see oven.plans.template_lookup): from it the plan is made
at once, and the program is imported only when it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from numpy.typing import NDArray

from flour.core import provenance
from flour.core.extension_points import extensions, paused_collector
from flour.language.flow import Flow
from flour.tracing.traced_array import ArrayTrace

#: The attributes of a program, which are there once it is imported.
_WHOLE = ("outputs", "origin", "made_from", "notes", "_retyped")


class StoredModel(Protocol):
    """What is stored of a model to import it later."""

    def flow(self) -> Flow:
        """Its program."""


class Model(Protocol):
    """A model taken apart: its structure, which others may share, and its numbers."""

    #: Whether plans of such models have digests.
    named: bool

    @property
    def key(self) -> Hashable:
        """The structure, and the way in which the model is imported."""

    def numbers(self) -> list[NDArray[Any]] | None:
        """All that may differ from other models of the structure; None where that is not known."""

    def traced(self, trace: ArrayTrace) -> Flow:
        """The program with traced arrays for its numbers, leaves of the trace in their order."""

    def stored(self) -> StoredModel:
        """What is stored of the model, to import it when its program is looked at."""


class ModelFlow(Flow):
    """The program of a model, imported when it is first looked at; `oven.bake` reads `model`."""

    __slots__ = ("_make", "model")

    def __init__(self, model: object, make: Callable[[], Flow]) -> None:
        self.model: Any = model
        self._make = make

    @classmethod
    def of(cls, flow: Flow, model: object) -> ModelFlow:
        """A program that has been imported."""
        made = cls(model, lambda: made)
        made._take(flow)
        return made

    def _take(self, flow: Flow) -> None:
        for each in _WHOLE:
            setattr(self, each, getattr(flow, each))

    def __getattr__(self, name: str) -> Any:
        """An attribute of a program that has not been imported yet."""
        if name not in _WHOLE:
            raise AttributeError(f"a program has no {name!r}", name=name, obj=self)
        made = self._make()
        self._take(made)  # two threads may both do so: they do the same
        return getattr(made, name)


def model_program(take_apart: Callable[[], Model | None], usual: Callable[[], Flow]) -> Flow:
    """The program of a model: imported later where a template is for it, else now, as `usual`."""
    look_up = extensions("model_templates")
    with paused_collector():
        lookup = look_up[-1](take_apart()) if look_up else None
        hit = None if lookup is None else lookup.hit()
        if hit is not None:
            stored, place = hit.model, provenance.here()
            return ModelFlow(hit, lambda: _made_at(place, stored))
        flow = usual()
        return flow if lookup is None else ModelFlow.of(flow, lookup)


def _made_at(place: provenance.Origin, model: StoredModel) -> Flow:
    with provenance.at(place):
        return model.flow()
