"""Programs of models of which only numbers differ: imported when they are looked at.

Whoever bakes programs may keep a template for each structure that models have (see
oven.plans.template_lookup): it says so with `remember`, and importers ask it with `model_program`.
A model that a template is for has its plan at once. Its program is imported when it is first
looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from numpy.typing import NDArray

from flour.core import provenance
from flour.language.flow import Flow
from flour.tracing.traced_array import ArrayTrace

#: What a program is besides what a model's program has.
_WHOLE = ("outputs", "origin", "made_from", "notes", "_retyped")


class StoredModel(Protocol):
    """A model in as few bytes as it takes to import it later."""

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
        """What is kept of the model for whoever looks at its program."""


class Hit(Protocol):
    """A model that a template is for."""

    @property
    def model(self) -> StoredModel:
        """What its program is imported from."""


class Lookup(Protocol):
    """A model whose structure has been looked up."""

    def hit(self) -> Hit | None:
        """The model's plan, if a template is for it."""


class ModelFlow(Flow):
    """The program of a model, made when it is first looked at; `model` is for whoever bakes it."""

    __slots__ = ("_make", "model")

    def __init__(self, model: object, make: Callable[[], Flow]) -> None:
        self.model: Any = model
        self._make = make

    @classmethod
    def of(cls, flow: Flow, model: object) -> ModelFlow:
        """A program that is there."""
        made = cls(model, lambda: made)
        made._take(flow)
        return made

    def _take(self, flow: Flow) -> None:
        for each in _WHOLE:
            setattr(self, each, getattr(flow, each))

    def __getattr__(self, name: str) -> Any:
        """What is not there yet."""
        if name not in _WHOLE:
            raise AttributeError(f"a program has no {name!r}", name=name, obj=self)
        made = self._make()
        self._take(made)  # two threads may both do so: they do the same
        return getattr(made, name)


LookUp = Callable[[Any], Lookup | None]
_memory: list[Callable[[], LookUp]] = []


def remember(memory: Callable[[], LookUp]) -> None:
    """Let models be looked up with what this hands out when the first one comes."""
    _memory[:] = [memory]


def model_program(take_apart: Callable[[], Model | None], usual: Callable[[], Flow]) -> Flow:
    """The program of a model: imported later where a template is for it, else now, as `usual`."""
    model = take_apart() if _memory else None
    lookup = None if model is None else _memory[0]()(model)
    hit = None if lookup is None else lookup.hit()
    if hit is not None:
        stored, place = hit.model, provenance.here()
        return ModelFlow(hit, lambda: _made_at(place, stored))
    flow = usual()
    return flow if lookup is None else ModelFlow.of(flow, lookup)


def _made_at(place: provenance.Origin, model: StoredModel) -> Flow:
    with provenance.at(place):
        return model.flow()
