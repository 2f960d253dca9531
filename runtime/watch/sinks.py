"""Where a tap puts values: a function, a file of Parquet, a stream of Arrow, OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError
from flour.core.sparse import Sparse

#: Rows of a group in a file: fewer are not worth its header.
GROUP = 8192
#: Columns that become series of metrics, and texts that are told apart.
_SERIES = 100


class Sink(Protocol):
    """Takes blocks of values, a row each."""

    def __call__(self, values: Any) -> object:
        """Take a block."""

    def close(self) -> None:
        """Write what is left."""


class _Plain:
    """A function of the caller's, which has no end."""

    def __init__(self, call: Callable[[Any], object]) -> None:
        self._call = call

    def __call__(self, values: Any) -> None:
        self._call(values)

    def close(self) -> None:
        """Nothing is left."""


def sink(to: object, names: dict[str, str]) -> Sink:
    """What `to` of a tap stands for; `names` are the model's and the step's."""
    if to == "opentelemetry":
        return _Metrics(names)
    if isinstance(to, str | Path):
        return _Arrow(Path(to), parquet=_ending(Path(to)) == ".parquet")
    if callable(to):
        return _Plain(to)
    if hasattr(to, "write"):
        return _Arrow(to, parquet=False)  # type: ignore[arg-type]  # it is written to
    raise ParameterError(
        "a tap cannot put values there",
        found=repr(to)[:80],
        hint='a function, "values.parquet", "values.arrows", a binary file, or "opentelemetry"',
    )


def _ending(path: Path) -> str:
    if path.suffix not in {".parquet", ".arrows"}:
        raise ParameterError(
            "a tap writes files of Parquet, and streams of Arrow",
            found=path.name,
            hint="values.parquet or values.arrows",
        )
    return path.suffix


class _Arrow:
    """A column `value` in groups of rows: a number, a text, or a list of numbers each."""

    def __init__(self, to: Path | BinaryIO, *, parquet: bool) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet
        except ModuleNotFoundError as problem:
            raise ParameterError(
                "values are written by pyarrow",
                found=f"no {problem.name}",
                hint="pip install 'pretzel-runtime[arrow]'",
            ) from None
        self._arrow, self._parquet = pa, parquet
        self._file: Any = to.open("xb") if isinstance(to, Path) else to
        self._own = isinstance(to, Path)
        self._writer: Any = None
        self._blocks: list[Any] = []
        self._rows = 0

    def __call__(self, values: Any) -> None:
        """Keep a block until there are enough for a group; a stream gets each at once."""
        block = self._arrow.table({"value": _column(self._arrow, values)})
        self._blocks.append(block)
        self._rows += len(block)
        if not self._parquet or self._rows >= GROUP:
            self._write()

    def _write(self) -> None:
        table = self._arrow.concat_tables(self._blocks)
        self._blocks, self._rows = [], 0
        if self._writer is None:
            arrow = self._arrow
            begin = arrow.parquet.ParquetWriter if self._parquet else arrow.ipc.new_stream
            self._writer = begin(self._file, table.schema)
        self._writer.write_table(table)
        if not self._parquet:
            self._file.flush()

    def close(self) -> None:
        """Write the last group and the end of the file."""
        if self._blocks:
            self._write()
        if self._writer is not None:
            self._writer.close()
        if self._own:
            self._file.close()


def _column(arrow: Any, values: Any) -> Any:
    """An array of Arrow, with a list for each row of several numbers."""
    if isinstance(values, Sparse):
        values = values.to_scipy()
    if hasattr(values, "toarray"):
        values = values.toarray()
    if isinstance(values, np.ndarray) and values.ndim > 1:
        flat = arrow.array(np.ascontiguousarray(values).reshape(-1))
        return arrow.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))
    return arrow.array(values if isinstance(values, np.ndarray) else list(values))


class _Metrics:
    """The mean, least and most of each column of a block, or the counts of texts.

    They are gauges: histograms of OpenTelemetry take no numbers below zero.
    """

    def __init__(self, names: dict[str, str]) -> None:
        try:
            from opentelemetry import metrics
        except ModuleNotFoundError as problem:
            raise ParameterError(
                "this tap needs OpenTelemetry",
                found=f"no {problem.name}",
                hint="pip install 'pretzel-runtime[trace]'",
            ) from None
        meter = metrics.get_meter("pretzel")
        self._gauges = [
            (meter.create_gauge(f"pretzel.tap.{said}"), made)
            for said, made in (("mean", np.mean), ("least", np.min), ("most", np.max))
        ]
        self._texts = meter.create_counter("pretzel.tap.texts", description="texts of a step")
        self._names, self._known = names, set[str]()

    def __call__(self, values: Any) -> None:
        """Say what the columns are like, or count each text."""
        if hasattr(values, "toarray"):
            values = values.toarray()
        block = np.asarray(values)
        if block.dtype.kind in "biuf":
            self._say(block.reshape(len(block), -1).astype(np.float64))
            return
        for text in map(str, block.reshape(-1)):
            if len(self._known) < _SERIES:
                self._known.add(text)
            named = text if text in self._known else "(other)"
            self._texts.add(1, {**self._names, "text": named})

    def _say(self, block: NDArray[np.float64]) -> None:
        for place, column in enumerate(block.T[:_SERIES]):
            names: dict[str, Any] = {**self._names, "column": place}
            finite = column[np.isfinite(column)]
            for gauge, made in self._gauges if len(finite) else ():
                gauge.set(float(made(finite)), names)

    def close(self) -> None:
        """Nothing is left: the provider's reader has it."""
