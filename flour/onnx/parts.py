"""ONNX models taken apart: the structure of their bytes, and their weights.

The layout of a model's bytes (see flour.onnx.wire) is kept for the next: the bytes of a model of
the same layout are compared with it, not parsed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any

from numpy.typing import NDArray

from flour.core.bounded import Bounded
from flour.language.flow import Flow
from flour.onnx.attributes import WordList
from flour.onnx.program import OnnxProgram
from flour.onnx.reading import Raw
from flour.onnx.registry import from_outside
from flour.onnx.wire import Leaf, ModelLayout, split
from flour.tracing.traced_array import ArrayTrace, TracedArray

#: Structures whose layouts are kept, and how many bytes of models these are together.
MOST_STRUCTURES = 256
MOST_LAYOUT_BYTES = 32 << 20
#: Larger models are not taken apart: importing them takes long anyway.
LARGEST = 64 << 20

#: How a model is imported: `native_only`, `rows`, and who asks.
Ways = tuple[bool, bool | None, str]
Import = Callable[..., OnnxProgram]


class StoredModel:
    """A model that is imported when its program is first looked at; `data` gives its bytes."""

    def __init__(self, data: Callable[[], object], ways: Ways, read: Import) -> None:
        self._data, self._ways, self._read = data, ways, read
        self._program: OnnxProgram | None = None

    def program(self) -> OnnxProgram:
        """The model as a program, imported when it is asked for."""
        if self._program is None:
            native_only, rows, _ = self._ways
            read = self._read(self._data(), native_only=native_only, rows=rows)
            self._program = read.without_model()
        return self._program

    def flow(self) -> Flow:
        """The program without what ONNX says of its arrays."""
        return self.program().flow


class OnnxParts:
    """An ONNX model taken apart."""

    def __init__(self, data: bytes, layout: ModelLayout, ways: Ways, read: Import) -> None:
        self._data, self._layout, self._ways, self._read = data, layout, ways, read
        self.named = "program" in ways

    @property
    def key(self) -> Hashable:
        """The structure, the ways, and how many adapters are not ours: they make other programs."""
        return self._layout.key, self._ways, from_outside()

    def numbers(self) -> list[NDArray[Any]] | None:
        """The weights."""
        return self._layout.weights(self._data)

    def traced(self, trace: ArrayTrace) -> Flow:
        """The program with traced arrays for its weights."""
        weights = self.numbers()
        assert weights is not None, "they have been read before"
        arrays, (native_only, rows, _) = iter(weights), self._ways
        formulas = {leaf.owner: _leaf(trace, leaf, arrays) for leaf in self._layout.leaves}
        read = self._read(self._data, native_only=native_only, rows=rows, formulas=formulas)
        return read.flow

    def stored(self) -> StoredModel:
        """The model, the bytes that it shares with others left out."""
        own = _shared(self._layout.own(self._data), self._layout)
        return StoredModel(partial(self._layout.joined, own), self._ways, self._read)


def _leaf(trace: ArrayTrace, leaf: Leaf, arrays: Iterator[NDArray[Any]]) -> TracedArray | WordList:
    """What stands for the next of the weights."""
    if not leaf.words:
        return trace.leaf(next(arrays).copy())
    offsets = trace.leaf(next(arrays), common=True)
    return WordList(offsets, trace.leaf(next(arrays), free=True, common=True))


def take_apart(model: Raw | None, ways: Ways, read: Import) -> OnnxParts | None:
    """A model's structure and weights; None where its bytes are not understood.

    `read` is `import_model`; `ways` is all that matters to how it is called.
    """
    if model is None or len(model.data) > LARGEST:
        return None
    layout = _layout(model.data)
    return None if layout is None else OnnxParts(model.data, layout, ways, read)


class Layouts:
    """Layouts of structures that came twice, by their size; the oldest go first."""

    def __init__(self) -> None:
        self.by_size: dict[int, list[ModelLayout]] = {}
        #: The parts of the first model of each structure.
        self.once: Bounded[bytes, tuple[bytes, ...]] = Bounded(MOST_STRUCTURES)
        self.held = 0

    def find(self, data: bytes) -> ModelLayout | None:
        """The layout of these bytes, if it is kept."""
        return next((it for it in self.by_size.get(len(data), ()) if it.fits(data)), None)

    def keep(self, made: ModelLayout) -> ModelLayout:
        """Keep a layout if its structure came before, with the parts that it had then."""
        parts = self.once.get(made.key)
        if parts is not None:
            made = made.sharing(parts)
            self.by_size.setdefault(made.size, []).append(made)
            self.held += made.held
        self.once[made.key] = tuple(part for _, part in made.fixed)
        while self.held > MOST_LAYOUT_BYTES:
            gone = self.by_size.pop(next(iter(self.by_size)))
            self.held -= sum(each.held for each in gone)
        return made


layouts = Layouts()
_last: Bounded[bytes, tuple[bytes, ...]] = Bounded(MOST_STRUCTURES)
_lock = threading.Lock()


def _layout(data: bytes) -> ModelLayout | None:
    found = layouts.find(data)
    made = split(data) if found is None else None
    if made is not None:
        with _lock:
            return layouts.keep(made)
    return found


def _shared(own: tuple[bytes, ...], layout: ModelLayout) -> tuple[bytes, ...]:
    """A model's own bytes; what is the same as in the model before is that model's."""
    before = _last.get(layout.key, ())
    made = own
    if len(before) == len(own):
        made = tuple(old if old == new else new for old, new in zip(before, own, strict=True))
    _last[layout.key] = made
    return made
