"""A row of the table of operators, and the data its tests draw; see tests/cases.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import BallTree, KDTree

from flour.core.op import Op
from flour.core.sparse import Sparse
from flour.core.types import Scalar, Type, Vector
from flour.ops.neighbours import tree_nearest
from flour.ops.tree_search import TreeNearest
from tests.columns import draw

_rng = np.random.default_rng(20181008)
REASSOCIATES = "sums are re-associated and fused"
LIBM = "numpy's and the C library's functions differ in the last bits"


@dataclass(frozen=True)
class Case:
    """An operator, the types it eats, and how far its native code may be from the reference."""

    op: Op
    inputs: tuple[Type, ...]
    tolerance: float = 0.0
    why: str = ""
    #: Values for an input where random numbers make no sense: (rng, type, rows) -> column.
    draw: Callable[[np.random.Generator, Type, int], Any] | None = None
    #: False where the operator has no native code yet.
    native: bool = True
    #: Try NaN, infinities and huge values too.
    odd: bool = True
    label: str = field(default="")

    @property
    def name(self) -> str:
        """For test ids."""
        kinds = "-".join(str(kind).replace(" ", "") for kind in self.inputs)
        return f"{self.op.name}{self.label}-{kinds}"


def normal(*shape: int) -> NDArray[np.float64]:
    """Parameters of both signs."""
    return _rng.normal(size=shape)


def positive(*shape: int) -> NDArray[np.float64]:
    """Parameters that can be divided by."""
    return _rng.uniform(0.5, 2.0, size=shape)


def search_tree(metric: str, *, ball: bool) -> TreeNearest:
    """The four nearest of 150 points, in a tree of scikit-learn's of seven nodes."""
    points, kind = _rng.normal(size=(150, 3)), BallTree if ball else KDTree
    settings = {"p": 3.0} if metric == "minkowski" else {}
    tree = kind(points, leaf_size=30, metric=metric, **settings)
    return tree_nearest(tree, 4, metric, 3.0, ball=ball)


def narrow(*values: float) -> NDArray[np.float32]:
    """Parameters in float32."""
    return np.array(values, np.float32)


def rows(op: Op, *widths: int, **how: Any) -> list[Case]:
    """The operator over vectors of these widths, in both float widths."""
    return [
        Case(op, tuple(Vector(width, dtype) for width in widths), **how)
        for dtype in ("float64", "float32")
    ]


def sparse(op: Op, width: int, **how: Any) -> list[Case]:
    """The operator over a sparse vector, in both float widths."""
    return [Case(op, (Vector(width, d, sparse=True),), **how) for d in ("float64", "float32")]


def scalars(op: Op, **how: Any) -> list[Case]:
    """The operator over one number per row, in both float widths."""
    return [Case(op, (Scalar(dtype),), **how) for dtype in ("float64", "float32")]


def indices(limit: int) -> Callable[[np.random.Generator, Type, int], Any]:
    """Draw whole numbers in [0, limit)."""

    def draw(rng: np.random.Generator, kind: Type, count: int) -> Any:
        shape = (count, kind.width) if isinstance(kind, Vector) else (count,)
        return rng.integers(0, limit, size=shape)

    return draw


def counts(rng: np.random.Generator, kind: Type, rows: int) -> Any:
    """Draw whole numbers above zero."""
    return indices(9)(rng, kind, rows) + 1


def gram(atoms: int, columns: int) -> NDArray[np.float64]:
    """The products of some atoms with one another."""
    made = normal(atoms, columns)
    return made @ made.T


def amounts(rng: np.random.Generator, kind: Type, rows: int) -> Any:
    """Draw numbers that are not below zero, many of them zero."""
    assert isinstance(kind, Vector)
    made = rng.uniform(0.01, 20, (rows, kind.width)).astype(kind.dtype)
    made = made * (rng.random(made.shape) < 0.6)
    return Sparse.of(made) if kind.sparse else made


def category_codes(rng: np.random.Generator, kind: Type, rows: int) -> Any:
    """Draw category codes, some of them out of range."""
    return (indices(6)(rng, kind, rows) - 1).astype(kind.dtype)  # type: ignore[union-attr]  # numbers


def gappy(rng: np.random.Generator, kind: Type, rows: int) -> Any:
    """Draw strings, some of them None and some NaN."""
    shape = (rows, kind.width) if isinstance(kind, Vector) else (rows,)
    return rng.choice(np.array(["a", "", "日本", "long " * 9, "?", None, np.nan], object), shape)


def shares(rng: np.random.Generator, kind: Type, rows: int) -> Any:
    """Draw probabilities, both ends and both tails among them."""
    assert isinstance(kind, Vector)
    made = rng.choice([0.0, 1.0, 1e-300, 1e-9, 0.1, 0.5, 0.99999], (rows, kind.width))
    return np.where(rng.random(made.shape) < 0.5, made, rng.random(made.shape)).astype(kind.dtype)


def missing(rng: np.random.Generator, kind: Type, rows: int) -> Any:
    """Draw numbers, some of them NaN."""
    made = draw(rng, kind, rows)
    return np.where(rng.random(made.shape) < 0.4, np.nan, made).astype(made.dtype)


def sometimes_missing(rng: np.random.Generator, kind: Type, rows: int) -> Any:
    """Draw numbers; half the time some of them are NaN."""
    return missing(rng, kind, rows) if rng.random() < 0.5 else draw(rng, kind, rows)


def holes(*shape: int) -> NDArray[np.float64]:
    """Parameters of which some are NaN."""
    return np.where(_rng.random(shape) < 0.3, np.nan, normal(*shape))


def zeros(_: np.random.Generator, kind: Type, rows: int) -> Any:
    """Zeros and nothing else."""
    assert isinstance(kind, Vector)
    return np.zeros((rows, kind.width), kind.dtype)


WIDTHS = ("float64", "float32")


def codes(limit: int) -> Callable[[np.random.Generator, Type, int], Any]:
    """Draw whole numbers in [-1, limit) where those are wanted, ordinary numbers elsewhere."""

    def pick(rng: np.random.Generator, kind: Type, count: int) -> Any:
        if getattr(kind, "dtype", "") == "int64":
            return indices(limit + 1)(rng, kind, count) - 1
        return draw(rng, kind, count)

    return pick


def chances(rng: np.random.Generator, kind: Type, count: int) -> Any:
    """Draw probabilities."""
    return rng.uniform(0.01, 0.99, size=(count, getattr(kind, "width", 1)))
