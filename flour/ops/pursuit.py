"""Sparse codes: the few atoms of a dictionary that add up to a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, fitted, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import Type
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.reduce import zero


class MatchingPursuit(Op):
    """Coefficients of at most `atoms` atoms, found greedily, from a row's products with all atoms.

    In each step the atom with the largest product with the residual is added, then all chosen atoms
    are fitted again through a Cholesky factor of their products `gram`. It ends early when the
    residual is zero or the next atom depends on the others.
    """

    gram: Array
    atoms: int
    arity = Arity.AGGREGATE
    bound = Bound.COMPUTE

    def check(self) -> None:
        shape = self.gram.shape
        square = len(shape) == 2 and shape[0] == shape[1]
        if not square or not 1 <= self.atoms <= shape[0]:
            raise ParameterError(
                "matching_pursuit needs the products of all atoms, and 1 to all of them",
                found=f"gram {shape}, {self.atoms} atoms",
            )

    def infer(self, x: Type) -> Type:
        kind = vector(x, self.name)
        expect(is_float(kind), f"{self.name} computes on floats, got {kind}", "as_float() first")
        fitted(self.gram.shape[0], kind, self.name)
        return kind.having(sparse=False)

    def reference(self, x: Columns) -> Columns:
        gram = self.gram.array.astype(x.dtype)
        coefficients = np.zeros_like(x)
        for row, near in enumerate(x):
            chosen, weights = self._pursue(gram, near)
            coefficients[row, chosen] = weights
        return coefficients

    def _pursue(self, gram: NDArray[Any], near: NDArray[Any]) -> tuple[list[int], Any]:
        chosen: list[int] = []
        weights, residual, least = near[:0], near, np.finfo(near.dtype).eps
        factor = np.zeros((self.atoms, self.atoms), near.dtype)
        while len(chosen) < self.atoms:
            best, n = int(np.argmax(np.abs(residual))), len(chosen)
            if best in chosen or residual[best] ** 2 < least:
                break
            for i in range(n):
                rest = gram[best, chosen[i]] - factor[n, :i] @ factor[i, :i]
                factor[n, i] = rest / factor[i, i]
            pivot = gram[best, best] - factor[n, :n] @ factor[n, :n]
            if n and pivot <= least:
                break
            factor[n, n] = np.sqrt(pivot)
            chosen.append(best)
            lower = factor[: n + 1, : n + 1]
            weights = np.linalg.solve(lower.T, np.linalg.solve(lower, near[chosen]))
            residual = near - gram[:, chosen] @ weights
        return chosen, weights

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return _Pursuit(self, e, x).write()


class _Pursuit:
    """Writes the native code of one pursuit; its steps share the row's scratch."""

    def __init__(self, op: MatchingPursuit, e: Emitter, x: VectorValue) -> None:
        self.e, self.dtype, self.near = e, x.dtype, e.indexable(x)
        self.width, self.count, self.atoms = x.width, x.size, e.size(op.atoms)
        self.gram = e.address(op.gram, x.dtype)
        self.factor = e.scratch(x.dtype, op.atoms * op.atoms)
        self.weights, self.half = e.scratch(x.dtype, op.atoms), e.scratch(x.dtype, op.atoms)
        self.chosen, self.residual = e.scratch("int64", op.atoms), e.scratch(x.dtype, x.width)
        self.least = e.number(float(np.finfo(x.dtype).eps), x.dtype)

    def write(self) -> RowValue:
        """The whole pursuit."""
        e = self.e
        count = e.var("0", "n")
        with e.loop(self.count) as j:
            e.store(self.residual, j, self.near(j), self.dtype)
        with e.loop(self.atoms):
            best = self._best(count)
            pivot = self._factor(count, best)
            e.store(self.factor, self._at(count, count), f"sqrt({pivot})", self.dtype)
            e.store(self.chosen, count, best, "int64")
            e.line(f"{count} = {count} + 1")
            self._fit(count)
            self._explain(count)
        return self._spread(count)

    def _at(self, row: str, column: str) -> str:
        return f"({row} * {self.atoms} + {column})"

    def _product(self, left: str, right: str) -> str:
        return self.e.load(self.gram, f"{left} * {self.count} + {right}", self.dtype, constant=True)

    def _atom(self, i: str) -> str:
        return self.e.load(self.chosen, i, "int64")

    def _load(self, base: str, index: str) -> str:
        return self.e.load(base, index, self.dtype)

    def _best(self, count: str) -> str:
        """The atom nearest to the residual; leaves the loop at a tiny one or a chosen atom."""
        e = self.e
        best, most = e.var("0"), e.var(f"abs({self._load(self.residual, '0')})")
        with e.loop(self.count, "1") as j:
            value = e.let(f"abs({self._load(self.residual, j)})", self.dtype).expr
            with e.block(f"if {value} > {most}:"):
                e.line(f"{most} = {value}")
                e.line(f"{best} = {j}")
        repeated = e.var("0")
        with e.loop(count) as i, e.block(f"if {self._atom(i)} == {best}:"):
            e.line(f"{repeated} = 1")
        with e.block(f"if {repeated} == 1 or {most} * {most} < {self.least}:"):
            e.line("break")
        return best

    def _factor(self, count: str, best: str) -> str:
        """A new row of the Cholesky factor and its pivot; leaves the loop when that vanishes."""
        e = self.e
        pivot = e.var(self._product(best, best))
        with e.loop(count) as i:
            rest = e.var(self._product(best, self._atom(i)))
            with e.loop(i) as p:
                one, other = self._at(count, p), self._at(i, p)
                pair = f"{self._load(self.factor, one)} * {self._load(self.factor, other)}"
                e.line(f"{rest} = {rest} - {pair}")
            value = e.let(f"{rest} / {self._load(self.factor, self._at(i, i))}", self.dtype).expr
            e.store(self.factor, self._at(count, i), value, self.dtype)
            e.line(f"{pivot} = {pivot} - {value} * {value}")
        with e.block(f"if {count} > 0 and {pivot} <= {self.least}:"):
            e.line("break")
        return pivot

    def _fit(self, count: str) -> None:
        """The weights of the chosen atoms: two triangular systems."""
        e = self.e
        with e.loop(count) as i:
            rest = e.var(self.near(self._atom(i)))
            with e.loop(i) as p:
                term = f"{self._load(self.factor, self._at(i, p))} * {self._load(self.half, p)}"
                e.line(f"{rest} = {rest} - {term}")
            pivot = self._load(self.factor, self._at(i, i))
            e.store(self.half, i, f"{rest} / {pivot}", self.dtype)
        with e.loop(count) as back:
            i = e.let(f"{count} - 1 - {back}", "int64").expr
            rest = e.var(self._load(self.half, i))
            with e.loop(count, f"{i} + 1") as p:
                term = f"{self._load(self.factor, self._at(p, i))} * {self._load(self.weights, p)}"
                e.line(f"{rest} = {rest} - {term}")
            pivot = self._load(self.factor, self._at(i, i))
            e.store(self.weights, i, f"{rest} / {pivot}", self.dtype)

    def _explain(self, count: str) -> None:
        """Compute the residual: the row's products minus those of the weighted atoms."""
        e = self.e
        with e.loop(self.count) as j:
            sum_ = e.var(zero(self.dtype))
            with e.loop(count) as i:
                term = f"{self._product(j, self._atom(i))} * {self._load(self.weights, i)}"
                e.line(f"{sum_} = {sum_} + {term}")
            e.store(self.residual, j, f"{self.near(j)} - {sum_}", self.dtype)

    def _spread(self, count: str) -> RowValue:
        """The weights in the columns of their atoms, zero elsewhere."""
        e = self.e
        out = e.scratch(self.dtype, self.width)
        with e.loop(self.count) as j:
            e.store(out, j, zero(self.dtype), self.dtype)
        with e.loop(count) as i:
            e.store(out, self._atom(i), self._load(self.weights, i), self.dtype)
        return e.dense(
            self.dtype, self.width, lambda j: self._load(out, j), size=self.count, stored=True
        )


# --- adapters -------------------------------------------------------------------------------------


@adapts(
    "sklearn.decomposition.SparseCoder",
    "sklearn.decomposition.DictionaryLearning",
    "sklearn.decomposition.MiniBatchDictionaryLearning",
)
def _sparse_code(fit: Fitted, x: Flow, to: Importer) -> Flow:
    how = fit.transform_algorithm
    to.need(
        how in ("threshold", "omp"),
        f"transform_algorithm={how!r} iterates to a tolerance for every row",
        "transform_algorithm='omp' and 'threshold' are exact",
    )
    dictionary = getattr(fit, "components_", None)
    dictionary = np.asarray(fit.dictionary if dictionary is None else dictionary)
    x = to.floats(x)
    near = x.linear(dictionary, [])
    code = _greedy(fit, near, dictionary).cast_like(x) if how == "omp" else _threshold(fit, near)
    if fit.split_sign:
        return code.relu().concat(code.negate().relu()).cast("float64")
    return code


def _greedy(fit: Fitted, near: Flow, dictionary: NDArray[Any]) -> Flow:
    atoms = fit.transform_n_nonzero_coefs
    if atoms is None:
        atoms = min(max(dictionary.shape[1] / 10, 1), len(dictionary))
    return near.matching_pursuit(np.dot(dictionary, dictionary.T), int(atoms))


def _threshold(fit: Fitted, near: Flow) -> Flow:
    alpha = fit.transform_alpha if fit.transform_alpha is not None else getattr(fit, "alpha", None)
    code = near.sign().times(near.abs().subtract([1.0 if alpha is None else alpha]).relu())
    return code.relu() if fit.positive_code else code
