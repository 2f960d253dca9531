"""Programs of models that come as bytes, which somebody may remember models like.

Whoever bakes programs may keep what came of a model, and know the next one like it: it says so
with `remember`, and `flour.onnx.from_onnx` asks it. A program that is known so is made of the
model's bytes only when somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from flour.core.provenance import Origin
from flour.language.flow import Flow

#: What a program is besides what a model's program has.
_WHOLE = ("outputs", "origin", "made_from", "notes", "_retyped")


class Model(Protocol):
    """A model that somebody has looked at."""

    def flow(self, place: Origin) -> ModelFlow | None:
        """The program, where one like it is known: it is imported when it is looked at.

        Whoever asks for it now is where it comes from.
        """


class ModelFlow(Flow):
    """The program of a model, made when it is first looked at; `model` is for who bakes it."""

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


Asked = Callable[[Any, tuple[object, ...]], Model | None]
_memory: list[Callable[[], Asked]] = []


def remember(memory: Callable[[], Asked]) -> None:
    """Let models be looked up with what this hands out when the first one comes."""
    _memory[:] = [memory]


def met(model: Any, ways: tuple[object, ...]) -> Model | None:
    """What is known of models like this one; `ways` is all that matters to how it is imported."""
    return _memory[0]()(model, ways) if _memory else None
