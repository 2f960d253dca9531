"""The native code of a matrix product: many rows by fitted weights, sums held in registers.

Sums are vectors of neighbouring outputs. A tile of some rows by one to three such vectors is summed
over all columns before anything is stored: each weight that is loaded serves every row of the tile,
each value every output. Whatever the tile, an output is summed over the columns in order, so a row
gets the same bits alone and among others. The number of outputs in a vector depends on the
processor (`lanes_float64`, ...), so weights are padded with zeros to whole tiles of the longest
vectors. They lie in panels: as many outputs as are summed at once, column after column, so that a
tile reads its weights from front to back and a panel stays in cache while all rows pass by.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from flour.core.emission import Column, Emitter
from objectstore import Blob

# The longest vector registers, in bytes; shorter ones divide it.
_WIDEST = 64
_ITEM = {"float64": 8, "float32": 4}
# Rows of a tile by its vectors: sums, weights and a value must fit 16 registers.
_ROWS = {1: 8, 2: 6, 3: 4}
# One row alone has no weights to share, so it takes as many sums as keep the processor busy.
_ALONE = 6


class Product(NamedTuple):
    """The fitted factor: weights (panels, columns, outputs) and a bias (or none), in one dtype."""

    weights: Blob
    bias: Blob
    outputs: int
    dtype: str
    #: The number of vectors in a tile, and in a tile of one row.
    vectors: int
    alone: int


def product(weights: Blob, bias: Blob, dtype: str) -> Product:
    """Weights (outputs, columns) laid out for `multiply`."""
    outputs = weights.shape[0]
    lanes = _WIDEST // _ITEM[dtype]
    needed = -(-outputs // lanes)
    # The tile that pads least; of equals the widest, which loads least.
    vectors = min(_ROWS, key=lambda count: (-(-needed // count) * count, -count))
    padded = -(-needed // vectors) * vectors
    alone = padded if padded <= _ALONE else vectors
    missing = np.zeros((padded * lanes - outputs, weights.shape[1]), dtype)
    across = np.concatenate([weights.array.astype(dtype), missing])
    panels = across.reshape(padded // alone, alone * lanes, -1).transpose(0, 2, 1)
    added = bias.array.astype(dtype)
    if len(bias):
        added = np.concatenate([added, np.zeros(padded * lanes - outputs, dtype)])
    return Product(Blob.of(panels), Blob.of(added), outputs, dtype, vectors, alone)


def multiply(e: Emitter, x: Column, fitted: Product, out: Column) -> None:
    """out = x @ weights + bias, for every row."""
    rows = _ROWS[fitted.vectors]
    # Most of a tile that is left becomes one with rows in front of it, whose bits stay the same.
    left = f"({e.rows} % {rows} if {e.rows} < {rows} or {e.rows} % {rows} <= {rows // 2} else 0)"
    whole = e.var(f"{e.rows} - {left}", "n")
    writer = _Writer(e, x, fitted, out)
    with writer.outputs(fitted.vectors) as start, e.block(f"for i in range(0, {whole}, {rows}):"):
        first = e.var(f"min(i, {e.rows} - {rows})", "i")
        writer.tile(first, rows, fitted.vectors, start)
    with e.block(f"for i in range({whole}, {e.rows}):"), writer.outputs(fitted.alone) as start:
        writer.tile("i", 1, fitted.alone, start)


class _Writer:
    """Writes the tiles of one product."""

    def __init__(self, e: Emitter, x: Column, fitted: Product, out: Column) -> None:
        self.e, self.x, self.fitted, self.out = e, x, fitted, out
        self.weights = e.address(fitted.weights)
        self.bias = e.address(fitted.bias) if len(fitted.bias) else ""
        self.panel = fitted.weights.shape[2]
        self.add = f"vadd_product{'_exact' if e.exact else ''}_{fitted.dtype}"

    @contextmanager
    def outputs(self, vectors: int) -> Iterator[str]:
        """A loop over the outputs, some vectors at a time."""
        start = self.e.fresh("o")
        step = f"{vectors} * lanes_{self.fitted.dtype}"
        with self.e.block(f"for {start} in range(0, {self.out.size}, {step}):"):
            yield start

    def tile(self, first: str, rows: int, vectors: int, start: str) -> None:
        """Some rows by some vectors of outputs."""
        e, panel = self.e, self.panel
        sources = [e.var(self.x.row(f"({first} + {i})"), "r") for i in range(rows)]
        targets = [e.var(self.out.row(f"({first} + {i})"), "w") for i in range(rows)]
        sums = [[self._zero() for _ in range(vectors)] for _ in range(rows)]
        inside = f"{start} // {panel} * {panel} * {self.x.size} + {start} % {panel}"
        weights = e.var(inside, "p")
        with e.loop(self.x.size) as j:
            self._column(j, f"{weights} + {j} * {panel}", sources, sums)
        e, dtype = self.e, self.fitted.dtype
        for vector in range(len(sums[0])):
            lane = e.let(self._lane(start, vector), "int64").expr
            left = e.let(f"{self.out.size} - {lane}", "int64").expr
            bias = e.var(f"vld_{dtype}({self.bias}, {lane})", "b") if self.bias else ""
            for target, line in zip(targets, sums, strict=True):
                value = f"vadd_{dtype}({line[vector]}, {bias})" if bias else line[vector]
                e.line(f"vst_{dtype}({target}, {lane}, {value}, {left})")

    def _zero(self) -> str:
        dtype = self.fitted.dtype
        return self.e.var(f"vset_{dtype}({'0.0' if dtype == 'float64' else 'float32(0.0)'})")

    def _lane(self, start: str, vector: int) -> str:
        return f"{start} + {vector} * lanes_{self.fitted.dtype}" if vector else start

    def _column(self, j: str, where: str, sources: list[str], sums: list[list[str]]) -> None:
        """One column's part of every sum of the tile."""
        e, dtype, kind = self.e, self.fitted.dtype, self.x.type.dtype  # type: ignore[union-attr]
        where = e.let(where, "int64").expr
        weights = [
            e.var(f"vld_{dtype}({self.weights}, {self._lane(where, vector)})", "b")
            for vector in range(len(sums[0]))
        ]
        for source, line in zip(sources, sums, strict=True):
            loaded = e.cast(e.load(source, j, kind, constant=True), kind, dtype)
            value = e.var(f"vset_{dtype}({loaded})", "v")
            for total, weight in zip(line, weights, strict=True):
                e.line(f"{total} = {self.add}({total}, {value}, {weight})")
