"""ONNX models that onnxruntime runs inside the plan: parts without native code, encoders of text.

Its inputs and outputs are columns of the program like any other's. One of three layouts says how a
column becomes an ONNX tensor and back:

    rows     the rows' tensors are joined along an axis of each value
    each     every row is a tensor of its own, of this shape
    whole  there are no rows; values are passed on unchanged
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import blake2b
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.errors import OpaqueFailed, ParameterError
from flour.core.op import Array, Arrays, Columns, Op
from flour.core.reference import row_count
from flour.core.types import DTYPES, Record, Type, Vector, Whole

if TYPE_CHECKING:
    from flour.sessions.ort import LateSession

LAYOUTS = ("rows", "each", "whole")
#: Estimated memory of an onnxruntime session: bytes, and a multiple of the model's size (measured,
#: see docs/reference/onnxruntime.md).
SESSION_BYTES = 96 << 10
MODEL_FACTOR = 4


class PartWire(NamedTuple):
    """An input or output of the part: its ONNX name, and the type of a row of it.

    `kind` is one of our dtypes, or in the layout "whole" the ONNX name of its type. In the layout
    "rows" the rows' tensors of this `shape` are joined along `axis`.
    """

    name: str
    kind: str
    shape: tuple[int, ...] = ()
    axis: int = 0

    @property
    def type(self) -> Type:
        """The type of a column of such rows."""
        if self.kind not in DTYPES:
            return Whole(self.kind)
        return Vector(prod(self.shape), self.kind)

    def joined(self, rows: int) -> tuple[int, ...]:
        """The shape of the ONNX value for this number of rows."""
        shape, axis = self.shape, self.axis
        return (*shape[:axis], rows * shape[axis], *shape[axis + 1 :])


class Opaque(Op, method="", runs_on="onnxruntime"):
    """A part of an ONNX model, run by onnxruntime.

    `model` is a serialised ModelProto; `weights` are its large constants, by `names`, which it
    lists as inputs: the session reads them in place, so that all sessions share one copy.
    """

    model: Array
    weights: Arrays = ()
    names: tuple[str, ...] = ()
    reads: object = ()
    leaves: object = ()
    layout: str = "rows"
    mixes: bool = True
    place: str = ""

    #: The parsed `reads` and `leaves`: inputs, in the order of the operator's inputs, and outputs.
    inputs: ClassVar[tuple[PartWire, ...]] = ()
    outputs: ClassVar[tuple[PartWire, ...]] = ()
    #: The session, once there is one; nothing that the operator is known by.
    _held: ClassVar[LateSession | None] = None

    def check(self) -> None:
        """Check that the fields fit together; the model itself is checked before its first run."""
        if self.model.dtype != np.uint8 or len(self.model.shape) != 1 or self.layout not in LAYOUTS:
            raise ParameterError("a model is bytes, in one of the layouts", hint=", ".join(LAYOUTS))
        object.__setattr__(self, "inputs", _wires(self.reads))
        object.__setattr__(self, "outputs", _wires(self.leaves))
        wires = (*self.inputs, *self.outputs)
        input_names = [wire.name for wire in self.inputs] + list(self.names)
        if len(self.weights) != len(self.names) or len(set(input_names)) != len(input_names):
            raise ParameterError("every constant and every input has a name of its own")
        if not self.outputs or len({wire.name for wire in self.outputs}) != len(self.outputs):
            raise ParameterError("a part of a model has outputs, each with a name of its own")
        whole = self.layout == "whole"
        if any((wire.kind in DTYPES) == whole for wire in wires):
            raise ParameterError("columns have dtypes, whole values have ONNX types")
        if self.layout == "rows" and any(wire.axis >= len(wire.shape) for wire in wires):
            raise ParameterError("the rows of a value lie along one of its axes")

    def infer(self, *inputs: Type) -> Type:
        """A record of the outputs, or the only one."""
        wires = self.inputs
        expect(len(inputs) == len(wires), f"it reads {len(wires)} values, got {len(inputs)}")
        for wire, kind in zip(wires, inputs, strict=True):
            expect(kind == wire.type, f"{wire.name!r} is {wire.type}, got {kind}")
        kinds = [wire.type for wire in self.outputs]
        if len(kinds) == 1:
            return kinds[0]
        return Record(tuple((wire.name, wire.type) for wire in self.outputs))

    def mixes_rows(self) -> bool:
        return self.mixes and self.layout == "rows"

    def held_bytes(self) -> int:
        return SESSION_BYTES + MODEL_FACTOR * self.model.nbytes

    def release(self) -> None:
        object.__setattr__(self, "_held", None)

    def running(self) -> bool:
        """True if it holds a session."""
        return self._held is not None

    # --- running -----------------------------------------------------------------------------

    def held(self) -> LateSession:
        """The session, made when it is first asked for."""
        return self._held or self._opened()

    def _opened(self) -> LateSession:
        from flour.sessions.ort import LateSession  # few programs have such parts

        reads, leaves = (
            {wire.name: wire.kind for wire in wires} for wires in (self.inputs, self.outputs)
        )
        weights = [blob.array for blob in self.weights]
        constants = dict(zip(self.names, weights, strict=True))
        held = LateSession(self.model.array, self.place, reads, leaves, constants)
        object.__setattr__(self, "_held", held)
        return held

    def reference(self, *inputs: Columns) -> Columns:
        outputs = _LAYOUT[self.layout](self, inputs)
        if len(outputs) == 1:
            return outputs[0]
        return dict(zip((wire.name for wire in self.outputs), outputs, strict=True))

    def _run(self, values: list[Any]) -> list[Any]:
        return self.held().run(values)

    def _rows(self, inputs: tuple[Columns, ...]) -> list[Columns]:
        rows = row_count(inputs[0])
        if not rows:  # many of onnxruntime's kernels fail without rows
            return self._blanks()
        tensors = [_join(x, wire, rows) for x, wire in zip(inputs, self.inputs, strict=True)]
        results = zip(self._run(tensors), self.outputs, strict=True)
        return [self._split(value, wire, rows) for value, wire in results]

    def _each(self, inputs: tuple[Columns, ...]) -> list[Columns]:
        rows = row_count(inputs[0])
        if not rows:
            return self._blanks()
        every = [self._one(inputs, i) for i in range(rows)]
        return [np.stack(parts) for parts in zip(*every, strict=True)]

    def _one(self, inputs: tuple[Columns, ...], row: int) -> list[Columns]:
        tensors = [
            np.ascontiguousarray(np.asarray(x)[row]).reshape(wire.shape)
            for x, wire in zip(inputs, self.inputs, strict=True)
        ]
        results = zip(self._run(tensors), self.outputs, strict=True)
        return [self._checked(value, wire, wire.shape).reshape(-1) for value, wire in results]

    def _whole(self, inputs: tuple[Columns, ...]) -> list[Columns]:
        return [[value] for value in self._run([column[0] for column in inputs])]

    def _blanks(self) -> list[Columns]:
        return [np.empty((0, prod(wire.shape)), _storage(wire)) for wire in self.outputs]

    def _split(self, value: object, wire: PartWire, rows: int) -> Columns:
        """A value as the column of its rows."""
        tensor = self._checked(value, wire, wire.joined(rows))
        if not wire.axis:
            return tensor.reshape(rows, prod(wire.shape))
        split = tensor.reshape(*wire.shape[: wire.axis], rows, *wire.shape[wire.axis :])
        return np.ascontiguousarray(np.moveaxis(split, wire.axis, 0)).reshape(
            rows, prod(wire.shape)
        )

    def _checked(self, value: object, wire: PartWire, shape: tuple[int, ...]) -> Any:
        """The array the session returned, if it has the dtype and shape inferred at import."""
        array = np.asarray(value)
        if array.shape == shape and _name(array) == wire.kind:
            return array.astype(_storage(wire), copy=False)
        raise OpaqueFailed(
            f"onnxruntime answered {wire.name!r} in another shape than was worked out",
            where=self.place or None,
            found=f"{_name(array)} {array.shape}, not {wire.kind} {shape}",
            hint="import the model with rows=False to run it as a whole",
        )


_LAYOUT = {"rows": Opaque._rows, "each": Opaque._each, "whole": Opaque._whole}


def _wires(data: object) -> tuple[PartWire, ...]:
    """Wires from plain data, which may come from a file."""
    wires = []
    for item in data if isinstance(data, tuple) else (None,):
        match item:
            case (str(name), str(kind), tuple(shape), axis) if all(map(_is_size, (*shape, axis))):
                wires.append(PartWire(name, kind, tuple(shape), axis))
            case _:
                raise ParameterError("a wire is (name, kind, shape, axis)", found=repr(item)[:80])
    return tuple(wires)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _join(column: object, wire: PartWire, rows: int) -> Any:
    """The rows' tensors joined along the wire's axis."""
    if not wire.axis:
        return np.ascontiguousarray(column).reshape(wire.joined(rows))
    tensors = np.asarray(column).reshape(rows, *wire.shape)
    return np.ascontiguousarray(np.moveaxis(tensors, 0, wire.axis)).reshape(wire.joined(rows))


def _storage(wire: PartWire) -> Any:
    return object if wire.kind == "string" else wire.kind


def _name(array: NDArray[Any]) -> str:
    return "string" if array.dtype.kind in "OUS" else str(array.dtype.name)


#: The ways from the vectors of pieces to one: as it is, that of the first, the mean.
POOLINGS = ("none", "cls", "mean")
#: The bytes of a cache entry besides its vector.
_ENTRY = 200


class Encoder(Op, method="", runs_on="onnxruntime"):
    """The vector that an ONNX model answers for the numbers of a document's pieces.

    `before` and `behind` are numbers that stand around them. Every row runs alone, so none depends
    on another, and there is no padding. Vectors are kept by the digest of their numbers, the ones
    that were asked for last, in up to `kept` bytes.
    """

    model: Array
    reads: tuple[str, ...]
    leaf: str
    width: int
    pooling: str = "mean"
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    kept: int = 64 << 20

    _held: ClassVar[tuple[Any, OrderedDict[bytes, NDArray[Any]], threading.Lock] | None] = None

    def check(self) -> None:
        fits = self.model.dtype == np.uint8 and len(self.model.shape) == 1
        fits = fits and self.pooling in POOLINGS and self.width >= 0 and self.kept >= 0
        if not fits or {*self.reads} - {*_INPUTS}:
            hint = f"inputs: {', '.join(_INPUTS)}; poolings: {', '.join(POOLINGS)}"
            raise ParameterError("this is no encoder of text", found=str(self.reads), hint=hint)

    def infer(self, x: Type) -> Vector:
        kind = vector(x, self.name)
        expect(kind.dtype == "int64", f"an encoder reads numbers of pieces, got {kind}")
        return Vector(self.width, "float32")

    def held_bytes(self) -> int:
        return SESSION_BYTES + MODEL_FACTOR * self.model.nbytes + self.kept

    def release(self) -> None:
        object.__setattr__(self, "_held", None)

    def running(self) -> bool:
        """True if it holds a session."""
        return self._held is not None

    def reference(self, x: Columns) -> Columns:
        session, cache, lock = self._held or self._opened()
        answer = np.empty((len(x), self.width), np.float32)
        for place, row in enumerate(x):
            numbers = np.array([*self.before, *row[row >= 0], *self.behind], np.int64)
            key = blake2b(numbers.tobytes(), digest_size=16).digest()
            with lock:
                found = cache.get(key)
                if found is not None:
                    cache.move_to_end(key)
            if found is None:
                found = self._encoded(session, numbers)
                with lock:
                    cache[key] = found
                    while len(cache) * (4 * self.width + _ENTRY) > self.kept:
                        cache.popitem(last=False)
            answer[place] = found
        return answer

    def _encoded(self, session: LateSession, numbers: NDArray[np.int64]) -> NDArray[Any]:
        if not len(numbers):
            return np.zeros(self.width, np.float32)
        feed = {name: _INPUTS[name](numbers)[None] for name in self.reads}
        (found,) = session.answers([self.leaf], feed)
        shape = (1, self.width) if self.pooling == "none" else (1, len(numbers), self.width)
        if found.shape != shape or found.dtype != np.float32:
            raise OpaqueFailed(
                "the encoder answered something else than vectors",
                where=self.leaf,
                found=f"{found.dtype} {found.shape}, not float32 {shape}",
            )
        if self.pooling == "mean":
            return np.asarray(found[0].sum(axis=0) / np.float32(len(numbers)))
        return np.array(found[0, 0] if self.pooling == "cls" else found[0])

    def _opened(self) -> tuple[Any, OrderedDict[bytes, NDArray[Any]], threading.Lock]:
        from flour.sessions.ort import LateSession  # few programs have such parts

        reads = dict.fromkeys(self.reads, "int64")
        session = LateSession(self.model.array, "encoder", reads, {self.leaf: "float32"}, {})
        held = session, OrderedDict[bytes, NDArray[Any]](), threading.Lock()
        object.__setattr__(self, "_held", held)
        return held


_INPUTS: dict[str, Any] = {
    "input_ids": lambda numbers: numbers,
    "attention_mask": np.ones_like,
    "token_type_ids": np.zeros_like,
}
