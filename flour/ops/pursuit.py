"""Sparse codes: the few atoms of a dictionary that add up to a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import sqrt
from numpy.typing import NDArray

from flour.core.check import expect, fitted, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, held, write
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import Type
from flour.core.words import Number, Numbers, Row, indexable, number, scratch, size, zero
from flour.core.words import fitted as fitted_numbers
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow


class MatchingPursuit(Op, arity=Arity.AGGREGATE, bound=Bound.COMPUTE):
    """Coefficients of at most `atoms` atoms, found greedily, from a row's products with all atoms.

    In each step the atom with the largest product with the residual is added, then all chosen atoms
    are fitted again through a Cholesky factor of their products `gram`. It ends early when the
    residual is zero or the next atom depends on the others.
    """

    gram: Array
    atoms: int

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
        gram, coefficients = self.gram.array.astype(x.dtype), np.zeros_like(x)
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
        gram = FittedNumbers(self.gram, x.dtype)
        return held(
            e, *write(e, pursued, x, x.width, gram, self.atoms, float(np.finfo(x.dtype).eps))
        )


def pursued(x: Row, columns: int, gram: Numbers, most: int, epsilon: float) -> Any:
    """The coefficients of the atoms, zero where one is not chosen."""
    near, atoms = indexable(x), size(most)
    width, products = len(x), fitted_numbers(gram)
    factor, weights = scratch(x.dtype, most * most), scratch(x.dtype, most)
    half, chosen = scratch(x.dtype, most), scratch("int64", most)
    residual, least = scratch(x.dtype, columns), number(epsilon, x.dtype)
    count = 0
    for j in range(width):
        residual[j] = near[j]
    for _ in range(atoms):
        best, largest = nearest_atom(residual, width)
        if is_among(chosen, count, best) == 1 or largest * largest < least:
            break
        pivot = add_row(factor, products, chosen, best, count, (atoms, width))
        if count > 0 and pivot <= least:
            break
        factor[count * atoms + count] = sqrt(pivot)
        chosen[count] = best
        count = count + 1
        fit_weights(near, chosen, factor, half, weights, (count, atoms))
        for j in range(width):
            sum_ = zero(x)
            for i in range(count):
                sum_ = sum_ + products[j * width + chosen[i]] * weights[i]
            residual[j] = near[j] - sum_
    found = scratch(x.dtype, columns)
    for j in range(width):
        found[j] = zero(x)
    for i in range(count):
        found[chosen[i]] = weights[i]
    return found, columns, width


def nearest_atom(residual: Numbers, width: int) -> tuple[Number, Number]:
    """The atom with the largest product with the residual, and how large that is."""
    best, largest = 0, abs(residual[0])
    for j in range(1, width):
        value = abs(residual[j])
        if value > largest:
            largest = value
            best = j
    return best, largest


def is_among(chosen: Numbers, count: int, atom: int) -> int:
    """1 if an atom is one of those that are chosen."""
    found = 0
    for i in range(count):
        if chosen[i] == atom:
            found = 1
    return found


def add_row(
    factor: Numbers,
    products: Numbers,
    chosen: Numbers,
    best: int,
    count: int,
    sizes: tuple[int, int],
) -> Number:
    """Add a row to the Cholesky factor, all but its last number; return that one's square."""
    atoms, width = sizes
    pivot = products[best * width + best]
    for i in range(count):
        rest = products[best * width + chosen[i]]
        for p in range(i):
            rest = rest - factor[count * atoms + p] * factor[i * atoms + p]
        entry = rest / factor[i * atoms + i]
        factor[count * atoms + i] = entry
        pivot = pivot - entry * entry
    return pivot


def fit_weights(
    near: Row,
    chosen: Numbers,
    factor: Numbers,
    half: Numbers,
    weights: Numbers,
    sizes: tuple[int, int],
) -> None:
    """Find the weights of the chosen atoms: two triangular systems."""
    count, atoms = sizes
    for i in range(count):
        rest = near[chosen[i]]
        for p in range(i):
            rest = rest - factor[i * atoms + p] * half[p]
        half[i] = rest / factor[i * atoms + i]
    for back in range(count):
        i = count - 1 - back
        rest = half[i]
        for p in range(i + 1, count):
            rest = rest - factor[p * atoms + i] * weights[p]
        weights[i] = rest / factor[i * atoms + i]


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
    return code.relu().concat(code.negate().relu()).cast("float64") if fit.split_sign else code


def _greedy(fit: Fitted, near: Flow, dictionary: NDArray[Any]) -> Flow:
    atoms = fit.transform_n_nonzero_coefs
    if atoms is None:
        atoms = min(max(dictionary.shape[1] / 10, 1), len(dictionary))
    return near.matching_pursuit(np.dot(dictionary, dictionary.T), int(atoms))


def _threshold(fit: Fitted, near: Flow) -> Flow:
    alpha = fit.transform_alpha if fit.transform_alpha is not None else getattr(fit, "alpha", None)
    code = near.sign().times(near.abs().subtract([1.0 if alpha is None else alpha]).relu())
    return code.relu() if fit.positive_code else code
