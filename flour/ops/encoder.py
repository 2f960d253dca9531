"""Encoders of text: an ONNX model from the numbers of pieces to a vector, run by onnxruntime."""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.errors import OpaqueFailed, ParameterError
from flour.core.op import Array, Columns, Op
from flour.core.types import Type, Vector
from flour.ops.opaque import MODEL_FACTOR, SESSION_BYTES

if TYPE_CHECKING:
    from flour.sessions.ort import LateSession

#: The ways from the vectors of pieces to one: as it is, that of the first, the mean.
POOLINGS = ("none", "cls", "mean")
#: The bytes of a cache entry besides its vector.
_ENTRY = 200


class Encoder(Op):
    """The vector that an ONNX model answers for the numbers of a document's pieces.

    `before` and `behind` are numbers that stand around them. Every row runs alone, so none depends
    on another, and there is no padding. Vectors are kept by the digest of their numbers, the ones
    that were asked for last, in up to `kept` bytes.
    """

    method = ""
    runs_on = "onnxruntime"
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
