"""Sessions over models that this machine has loaded before: their plans, in the code cache.

Importing and baking a model of a hundred trees takes twenty times as long as onnxruntime takes to
load it. So what came of it is kept as the image of its plan (see oven.plans.image), with what a
session says of the model, by the digest of the model's bytes. The next process has the session from
there, and imports the model only when its program is looked at.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import oven
from flour.onnx import OnnxProgram, import_model
from flour.onnx.reading import Raw
from flour.onnx.registry import from_outside
from flour.onnx.signature import ValueInfo
from objectstore import StoreError, combine
from oven import debug
from oven.plans import image_cache
from oven.plans.image import PlanImage, image_of
from oven.plans.skeleton import RestoredPlan
from runtime.onnx.answers import Shape
from runtime.onnx.feeds import check_of
from runtime.onnx.native_session_run import Order

#: How a model is imported: `native_only` and `rows`.
Ways = tuple[bool, bool | None]
_SIZE = struct.Struct("<I")
#: What a model says whose weights are in files of their own: no digest of its bytes covers them.
_ELSEWHERE = b"location"


class SessionFacts(NamedTuple):
    """Facts that sessions over models of one structure share."""

    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    overridable: tuple[ValueInfo, ...]
    #: Of each output where it is in what the plan answers, and how it is made of that.
    places: Mapping[str, int]
    shapes: Mapping[str, Shape | None]
    #: How the plan's own entry is to read arrays.
    ranks: Mapping[str, int]
    checks: Mapping[str, Callable[[Any], Any]]
    shapers: Mapping[str, Callable[[Any], Any] | None]
    #: All outputs in the model's order; the same, or None where they are answered like that.
    gate: Order
    order: Order | None

    @staticmethod
    def of(
        values: Sequence[Sequence[ValueInfo]],
        places: Mapping[str, int],
        shapes: Mapping[str, Shape | None],
        ranks: Mapping[str, int],
    ) -> SessionFacts:
        """With the functions that check inputs and make outputs."""
        inputs, outputs, overridable = map(tuple, values)
        checks = {item.name: check_of(item) for item in inputs}
        shapers = {name: shape and shape.maker() for name, shape in shapes.items()}
        gate = order_of(places, shapers)
        data = inputs, outputs, overridable, places, shapes, ranks
        return SessionFacts(*data, checks, shapers, gate, None if is_plain(gate) else gate)

    def to_bytes(self) -> bytes:
        """These facts as data."""
        values = (self.inputs, self.outputs, self.overridable)
        return json.dumps([values, self.places, self.shapes, self.ranks]).encode("ascii")

    @staticmethod
    def from_bytes(data: bytes) -> SessionFacts:
        """From data."""
        values, places, shapes, ranks = json.loads(data)
        return SessionFacts.of(
            [[ValueInfo(*fields) for fields in each] for each in values],
            places,
            {name: shape and Shape(*shape) for name, shape in shapes.items()},
            ranks,
        )


def order_of(
    places: Mapping[str, int], shapers: Mapping[str, Callable[[Any], Any] | None]
) -> Order:
    """The outputs in the model's order."""
    return [(index, shapers.get(name)) for name, index in places.items()]


def is_plain(order: Order) -> bool:
    """True if the plan answers in this order, with ONNX's values."""
    return list(order) == [(k, None) for k in range(len(order))]


class StoredModel:
    """A model that is imported when its program is first looked at."""

    def __init__(self, model: Raw, ways: Ways) -> None:
        self._model, self._ways = model, ways
        self._program: OnnxProgram | None = None

    def program(self) -> OnnxProgram:
        """The model as a program, imported when it is asked for."""
        if self._program is None:
            native_only, rows = self._ways
            made = import_model(self._model, native_only=native_only, rows=rows)
            self._program = made.without_model()
        return self._program


class RestoredSession(NamedTuple):
    """A session made from an image."""

    facts: SessionFacts
    plan: RestoredPlan
    model: StoredModel


class SessionImage:
    """The place at which the session over a model's bytes is, or would be, kept."""

    def __init__(self, model: Raw, ways: Ways) -> None:
        self._model, self._ways = model, ways
        without = os.environ.get("PRETZEL_WITHOUT", "")
        about = combine("session", repr(ways), without, model.data).encode("ascii")
        self._entry = image_cache.look(about, str(Path(__file__).parent))

    @staticmethod
    def of(model: Raw | None, ways: Ways) -> SessionImage | None:
        """None where the model's bytes do not say all of it, or its plan is to be looked at."""
        if model is None or from_outside() or debug.asked() or _ELSEWHERE in model.data:
            return None
        return SessionImage(model, ways)

    def restored(self) -> RestoredSession | None:
        """The session, if it is there with its machine code."""
        data = self._entry.image
        if data is None:
            return None
        start = _SIZE.size + _SIZE.unpack_from(data)[0]
        try:
            restored = PlanImage.from_bytes(data[start:]).restore()
        except (LookupError, StoreError):
            return None
        facts = SessionFacts.from_bytes(data[_SIZE.size : start])
        return RestoredSession(facts, restored, StoredModel(self._model, self._ways))

    def write(self, plan: oven.Plan, facts: SessionFacts | None) -> None:
        """Keep a session that was just made."""
        made = image_of(plan.program) if facts is not None and plan.code.tier else None
        if made is None or facts is None:
            return
        data, about = made.to_bytes(), facts.to_bytes()
        image_cache.write(self._entry.name, _SIZE.pack(len(about)) + about + data)
