"""Where a tap puts values: a function, a file of Parquet, a stream of Arrow, OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from io import TextIOBase
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError

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
        return _arrow(Path(to), parquet=_ending(Path(to)) == ".parquet")
    if callable(to):
        return _Plain(to)
    if hasattr(to, "write") and not isinstance(to, TextIOBase):
        return _arrow(to, parquet=False)  # type: ignore[arg-type]  # it is written to
    raise ParameterError(
        "a tap cannot put values there",
        found=repr(to)[:80],
        hint='a function, "values.parquet", "values.arrows", a binary file, or "opentelemetry"',
    )


def _arrow(to: Path | BinaryIO, *, parquet: bool) -> Sink:
    from runtime.watch.arrow_sink import ArrowSink

    return ArrowSink(to, parquet=parquet)


def _ending(path: Path) -> str:
    if path.suffix not in {".parquet", ".arrows"}:
        raise ParameterError(
            "a tap writes files of Parquet, and streams of Arrow",
            found=path.name,
            hint="values.parquet or values.arrows",
        )
    return path.suffix


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
