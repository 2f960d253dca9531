"""Dense and sparse storage of a vector: every value, or only those that are not zero."""

from __future__ import annotations

from flour.core.check import vector
from flour.core.emission import Emitter, VectorValue
from flour.core.op import Columns, Op
from flour.core.sparse import Sparse, densify
from flour.core.types import Type, Vector


class ToDense(Op):
    """The values of x, all of them stored."""

    takes_sparse = True
    monotone = True
    by_column = True
    moves = True
    same_values = True

    def infer(self, x: Type) -> Vector:
        return vector(x, "to_dense").having(sparse=False)

    def reference(self, x: Columns) -> Columns:
        return densify(x)

    def emit(self, e: Emitter, x: VectorValue) -> VectorValue:
        return x


class ToSparse(Op):
    """The values of x, storing only those that are not zero."""

    takes_sparse = True
    keeps_zero = True
    monotone = True
    by_column = True
    moves = True
    same_values = True

    def infer(self, x: Type) -> Vector:
        return vector(x, "to_sparse").having(sparse=True)

    def reference(self, x: Columns) -> Columns:
        return x if isinstance(x, Sparse) else Sparse.of(x)

    def emit(self, e: Emitter, x: VectorValue) -> VectorValue:
        return x
