"""Groups of k queries with r parity queries, of which any r answers may be missing.

Parity i is Σ_j (j + 1)^i · x_j: the first is the sum, and any r columns of the rows are independent
(Vandermonde). For an affine F(x) = W x + b, the answer to Σ c_j x_j is
Σ c_j F(x_j) + (1 - Σ c_j) b, so that as many linear equations as answers are missing give these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from runtime.errors import ClusterError

Rows = NDArray[Any]
EPSILON = float(np.finfo(np.float64).eps)
#: A reconstructed answer differs by so much of itself, or of 1, at most.
EXACT = 1e-9
Encoder = Literal["sum", "concatenation"]


class ParityCode:
    """`group` queries and `parities` parity queries (1 or 2).

    With the encoder `concatenation`, for parity models, a parity query is all queries side by side.
    """

    def __init__(self, group: int, parities: int = 1, encoder: Encoder = "sum") -> None:
        whole = {type(group), type(parities)} <= {int, np.int64}
        most = {"sum": 2, "concatenation": 1}.get(str(encoder), 0)
        if not (whole and group >= 2 and 1 <= parities <= most):
            raise ClusterError(
                "a group has two queries or more, and one or two parity queries",
                where="Code",
                found=f"group={group!r}, parities={parities!r}, encoder={encoder!r}"[:200],
                hint="Code(2) adds half as many replicas again, Code(4) a quarter; the encoder is "
                "sum, or concatenation with one parity query",
            )
        self.group, self.parities, self.encoder = group, parities, encoder
        self.weights = np.arange(1.0, group + 1) ** np.arange(parities)[:, None]
        #: The same as numbers of Python, which are faster one by one.
        self._plain: list[list[float]] = self.weights.tolist()

    def encode(self, queries: Rows) -> Rows:
        """Parity queries (parities, ...) of queries (group, ...)."""
        with _explained(f"{self.group} queries"):
            given = _numbers(list(queries)).reshape(self.group, *np.shape(queries[0]))
            if self.encoder == "concatenation":
                return np.concatenate(list(given), axis=-1)[None]
            parities: Rows = np.tensordot(self.weights, given, axes=1)
            return parities

    def loses(self, found: Rows, answers: Mapping[int, Rows], parities: Mapping[int, Rows]) -> bool:
        """True if rounding of the other answers is more than what was reconstructed may differ by.

        An answer of 0.5 cannot be told from the sum of itself and 1e17.
        """
        parts = (*answers.values(), *parities.values())
        top = max(float(np.abs(each).max(initial=0.0)) for each in parts)
        most = EPSILON * self.group * top
        return not bool(np.all(most <= EXACT * (1.0 + np.abs(found))))  # NaN is lost, too

    def decode(
        self,
        answers: Mapping[int, Rows],
        parities: Mapping[int, Rows],
        constant: Rows | float = 0.0,
    ) -> dict[int, Rows]:
        """The missing answers, from those that are there and at least as many parity answers.

        `constant` is F(0). For a parity model that was trained to answer the sum it is 0.
        """
        there = [item for item in range(self.group) if item in answers]
        rows = [row for row in range(self.parities) if row in parities]
        missing = [item for item in range(self.group) if item not in answers]
        if len(missing) > len(rows):
            raise ClusterError(
                "too few parity answers to reconstruct what is missing",
                where=f"a group of {self.group}",
                found=f"{len(missing)} missing, {len(rows)} parity answers",
                hint="wait for more answers, or use a code with more parities; both are numbered "
                "from 0",
            )
        rows = rows[: len(missing)]
        with _explained(f"answers of a group of {self.group}, parity answers, constant"):
            every = _numbers([*map(answers.get, there), *map(parities.get, rows)])
            constant = np.broadcast_to(np.asarray(constant, float), every.shape[1:])
        known, last = dict(zip(there, every, strict=False)), every[len(there) :]
        sums = [self._remainder(row, known, last[n], constant) for n, row in enumerate(rows)]
        if len(missing) == 1:
            weight = self._plain[rows[0]][missing[0]]
            return {missing[0]: sums[0] if weight == 1 else sums[0] / weight}
        if not missing:
            return {}
        inverse = np.linalg.inv(self.weights[np.ix_(rows, missing)])
        return dict(zip(missing, np.tensordot(inverse, np.stack(sums), axes=1), strict=True))

    def _remainder(
        self, row: int, answers: Mapping[int, Rows], parity: Rows, constant: Rows | float
    ) -> Rows:
        """Sum of the missing answers, weighted as in this row."""
        weights = self._plain[row]
        rest: Rows = parity - (1.0 - sum(weights)) * constant
        for item, answer in answers.items():
            rest -= answer if weights[item] == 1 else weights[item] * answer
        return rest


def _numbers(arrays: list[Any]) -> Rows:
    found = np.stack(arrays)
    return found if found.dtype.kind in "biuf" else found.astype(float)


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Raise numpy's errors inside as ours."""
    try:
        with np.errstate(all="ignore"):  # a sum that is infinite is found out where it is decoded
            yield
    except (AttributeError, IndexError, TypeError, ValueError) as problem:
        raise ClusterError(
            "queries and answers of a group are arrays of numbers, all of one shape",
            where=where,
            found=str(problem)[:200],
            hint="Code(2) takes np.stack([one, two]), and decode({1: second}, {0: parity})",
        ) from None
