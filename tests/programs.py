"""Random programs: a shape drawn from one seed, its widths and fitted numbers from another.

Programs of one shape share their native code, so that thousands of programs cost few compiles.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flour.core.types import Vector
from flour.language.flow import Flow, outputs, source
from flour.ops.encode import OneHot

MOST_STEPS = 9


class Program:
    """A random program being written."""

    def __init__(self, shape: int, numbers: int) -> None:
        #: Decides what the program is made of ...
        self.shape = random.Random(shape)
        #: ... and this one only widths and numbers.
        self.rng = np.random.default_rng(numbers)
        self.dtype = "float32" if shape % 3 == 2 else "float64"
        self.values: list[Flow] = [self._input("x"), self._input("y")]
        self.read: set[Flow] = set()

    def _input(self, name: str) -> Flow:
        return source(name, Vector(self._width(), self.dtype))

    def _width(self) -> int:
        # One column is another shape: its fitted numbers are read ahead of the rows.
        return int(self.rng.integers(2, 9))

    def write(self) -> Flow:
        """The whole program; what nobody reads is an output."""
        for _ in range(self.shape.randint(3, MOST_STEPS)):
            step = self.shape.choice(STEPS)
            made = step(self, self._pick(_is_vector))
            if made is not None:
                self.values.append(made)
        loose = [value for value in self.values if value not in self.read][-3:]
        return outputs(**{f"y{place}": value for place, value in enumerate(loose)})

    def _pick(self, fine: Callable[[Flow], bool]) -> Flow:
        # The newest values are picked more often: deep programs are the interesting ones.
        known = [value for value in self.values if fine(value)]
        weights = [2.0**place for place in range(len(known))]
        chosen = self.shape.choices(known, weights)[0]
        self.read.add(chosen)
        return chosen

    def normal(self, *shape: int) -> NDArray[np.float64]:
        """Numbers of both signs."""
        return self.rng.normal(size=shape).astype(self.dtype)

    def positive(self, *shape: int) -> NDArray[np.float64]:
        """Numbers that can be divided by."""
        return self.rng.uniform(0.5, 2.0, size=shape).astype(self.dtype)

    def weights(self, outs: int, x: Flow) -> NDArray[np.float64]:
        """Weights for a vector, scaled so that sums stay small."""
        made: NDArray[np.float64] = self.normal(outs, width(x)) / np.sqrt(width(x))
        return made.astype(self.dtype)


def width(flow: Flow) -> int:
    """How many columns a vector has."""
    assert isinstance(flow.type, Vector)
    return flow.type.width


def _is_vector(flow: Flow) -> bool:
    return isinstance(flow.type, Vector) and flow.type.dtype.startswith("float")


def _scaled(p: Program, x: Flow) -> Flow:
    return x.subtract(p.normal(width(x))).divide(p.positive(width(x)))


def _affine(p: Program, x: Flow) -> Flow:
    return x.multiply(p.positive(width(x))).add(p.normal(width(x)))


def _curve(p: Program, x: Flow) -> Flow:
    method = p.shape.choice(["sigmoid", "one_minus", "tanh", "relu", "abs", "square"])
    made: Flow = getattr(x.clip([-4.0], [4.0]), method)()
    return made


def _clipped(p: Program, x: Flow) -> Flow:
    return x.clip(-p.positive(width(x)), p.positive(width(x)))


def _one_sum(p: Program, x: Flow) -> Flow:
    return x.linear(p.weights(1, x), p.normal(1))


def _sums(p: Program, x: Flow) -> Flow:
    bias = p.shape.random() < 0.7
    outs = int(p.rng.integers(2, 6))
    return x.linear(p.weights(outs, x), p.normal(outs) if bias else np.zeros(0, p.dtype))


def _sparse_weights(p: Program, x: Flow) -> Flow:
    weights = p.weights(2, x)
    weights[:, : width(x) - 1] = 0
    return x.linear(weights, p.normal(2))


def _projected(p: Program, x: Flow) -> Flow:
    made = x.linear(p.weights(6, x), p.normal(6))
    if p.shape.random() < 0.5:
        made = made.subtract(p.normal(6))
    return made.linear(p.weights(2, made), p.normal(2))


def _chained(p: Program, x: Flow) -> Flow:
    x = _scaled(p, x)
    return x.multiply(p.positive(width(x))).add(p.normal(width(x)))


def _beside(p: Program, x: Flow) -> Flow:
    return x.concat(p._pick(_is_vector))


def _picked(p: Program, x: Flow) -> Flow:
    ready = p.shape.choice([x, _scaled(p, x), x.concat(x.clip([-1.0], [1.0]))])
    return ready.select(p.rng.permutation(width(ready))[: max(2, width(x) // 2)])


def _shares(_: Program, x: Flow) -> Flow | None:
    return x.softmax() if width(x) > 1 else None


def _normalised(p: Program, x: Flow) -> Flow:
    return x / x.norm(p.shape.choice(["l1", "l2", "max"])).add(p.positive(1))


def _branches(p: Program, x: Flow) -> Flow:
    both = _normalised(p, x).concat(p._pick(_is_vector))
    return both.linear(p.weights(1, both), p.normal(1))


def _side_by_side(p: Program, x: Flow) -> Flow:
    x = _scaled(p, x)
    method = p.shape.choice(["sigmoid", "tanh"])
    heads: list[Flow] = [
        getattr(x.linear(p.weights(1, x), p.normal(1)).element(0), method)() for _ in "123"
    ]
    return heads[0].concat(*heads[1:])


def _taken_apart(p: Program, x: Flow) -> Flow:
    parts = [_scaled(p, x.select([-1 + width(x)])), _scaled(p, x.select([0]))]
    both = parts[0].concat(parts[1])
    return both.linear(p.weights(2, both), p.normal(2)) if p.shape.random() < 0.5 else both


def _reduced(p: Program, x: Flow) -> Flow:
    made: Flow = getattr(x, p.shape.choice(["sum", "max", "min"]))()
    return made.as_vector().concat(x.element(0))


def _added(p: Program, x: Flow) -> Flow | None:
    other = p._pick(_is_vector)
    if width(other) != width(x):
        other = other.select(np.arange(width(x)) % width(other))
    return p.shape.choice([x + other, other + x, x * other])


def _compared(p: Program, x: Flow) -> Flow | None:
    # In float32 a comparison of rounded sums turns too easily to be a fair question.
    if p.dtype == "float32":
        return None
    method = p.shape.choice(["greater", "less", "less_equal", "greater_equal"])
    ready = p.shape.choice([x, _scaled(p, x)])
    made: Flow = getattr(ready, method)(p.normal(width(x)))
    return made.cast(p.dtype)


def _label(p: Program, x: Flow) -> Flow | None:
    if p.dtype == "float32" or not p.shape.random() < 0.5:
        return None
    scores = x.linear(p.weights(3, x), p.normal(3))
    return scores.softmax().arg_max() if p.shape.random() < 0.5 else scores.arg_max()


def _encoded(p: Program, x: Flow) -> Flow:
    codes = source("code", Vector(2, "int64"))
    starts = np.array([0, 20, 45])
    hot = OneHot(starts, p.dtype)(codes)
    made = hot.to_dense() if p.shape.random() < 0.5 else hot
    if p.shape.random() < 0.5:
        return made
    made = x.concat(made)
    outs = p.shape.choice([1, 3])
    return made.linear(p.weights(outs, made), p.normal(outs))


STEPS: tuple[Callable[[Program, Flow], Flow | None], ...] = (
    *(_scaled, _affine, _chained, _curve, _clipped, _one_sum, _sums, _projected, _sparse_weights),
    *(_beside, _picked, _picked, _shares, _normalised, _reduced, _branches, _added, _compared),
    *(_label, _encoded, _side_by_side, _taken_apart),
)


def random_program(shape: int, numbers: int) -> Flow:
    """The program of this shape with these numbers."""
    return Program(shape, numbers).write()
