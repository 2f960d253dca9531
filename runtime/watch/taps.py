"""Taps: the values of a step inside a plan, for a share of the rows that it answers.

The step is a further output of a plan of the same program, which is baked beside the one that
answers. Sampled rows run through it in the background, so answers are made by the same code as
without a tap, and a tap that was closed leaves nothing behind.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from io import TextIOBase
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import FlourError, ParameterError
from flour.data.batch import Batch
from objectstore import Closing
from oven import Plan
from runtime.service.routes import ServingRuntime
from runtime.service.version import ModelVersion
from runtime.watch.observers import RowQueue, attach, detach
from runtime.watch.rows import taken
from runtime.watch.sampling import Sampling
from runtime.watch.steps import step_plan

#: Columns that become series of metrics, and texts that are told apart.
_SERIES = 100


class Sink(NamedTuple):
    """A taker of blocks of values, a row each, and what writes the rest of them at the end."""

    give: Callable[[Any], object]
    close: Callable[[], object] = lambda: None


def sink(to: object, names: dict[str, str]) -> Sink:
    """The sink that `to` of a tap stands for; `names` are the model's and the step's."""
    if to == "opentelemetry":
        return Sink(_ColumnMetrics(names))
    if isinstance(to, str | Path):
        path = Path(to)
        if path.suffix not in {".parquet", ".arrows"}:
            raise ParameterError(
                "a tap writes files of Parquet, and streams of Arrow",
                found=path.name,
                hint="values.parquet or values.arrows",
            )
        return _arrow(Path(to), parquet=path.suffix == ".parquet")
    if callable(to):
        return Sink(to)
    if hasattr(to, "write") and not isinstance(to, TextIOBase):
        return _arrow(to, parquet=False)  # type: ignore[arg-type]  # it is written to
    raise ParameterError(
        "a tap cannot put values there",
        found=repr(to)[:80],
        hint='a function, "values.parquet", "values.arrows", a binary file, or "opentelemetry"',
    )


def _arrow(to: Path | BinaryIO, *, parquet: bool) -> Sink:
    from runtime.watch.arrow_sink import ArrowSink

    made = ArrowSink(to, parquet=parquet)
    return Sink(made, made.close)


class _ColumnMetrics:
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

    def __call__(self, values: object) -> None:
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


log = logging.getLogger("pretzel.watch")

_MOST, _RING = 1 << 16, 1 << 10


class _Tapped(RowQueue):
    """Samples the rows of one version, and runs them through the step; the tap follows versions."""

    def __init__(self, tap: Tap, version: ModelVersion, plan: Plan) -> None:
        super().__init__(self._copied, self._put, _MOST, tap.sampling)
        self._tap, self._plan, self._last = tap, plan, False
        #: The version whose rows come, and what it hides; and whether the step is hidden now.
        self.served, self.private, self.hidden = version, version.private, False
        attach(version, self)
        self.start()

    def _copied(self, batch: Batch, places: NDArray[np.int64] | None) -> Any:
        return taken(batch, self.served.inputs, places)

    def _put(self, block: object, _weight: int, _seconds: float) -> None:
        if not self.hidden:
            (values,) = self._plan.run(block).values()
            self._tap.give(values)

    def fold(self) -> None:
        """Fold what has come so far, and look whether another version answers now."""
        super().fold()
        if not self._last:
            self._tap.follow()

    def close(self) -> None:
        """The runtime is closed."""
        self._tap.close()

    def end(self) -> None:
        """Sample no more, and fold what is left."""
        self._last = True
        detach(self.served, self)
        super().end()


class Tap(Closing):
    """Collects a step's values for a share of the rows; a context manager that detaches at the end.

    `to` is a function, the name of a file that ends in .parquet or .arrows and is not there yet, a
    binary file, which gets a stream of Arrow, or "opentelemetry", whose provider then has the mean,
    least and most of each column. Without it, values are in `ring`. `sample` is the share of the
    rows. Where another version answers, the tap goes on with it.
    """

    def __init__(
        self,
        runtime: ServingRuntime,
        name: str,
        step: str,
        *,
        sample: float = 0.01,
        to: Callable[[Any], object] | str | Path | BinaryIO | None = None,
    ) -> None:
        self.sampling = Sampling(sample)
        self._runtime, self._name, self._step = weakref.ref(runtime), name, step
        self._moving, self._closed = Lock(), False
        #: The rows' values that came last, a block for each sampled batch.
        self.ring: deque[Any] = deque(maxlen=_RING)
        #: The version that was looked at last; it may have no such step.
        self.version = version = runtime.endpoints.find(name)
        plan = step_plan(version, [step])
        names = {"model": version.name, "step": step}
        self._sink, self._giving = sink(self.ring.append if to is None else to, names), Lock()
        self._observer = _Tapped(self, version, plan)

    def follow(self) -> None:
        """Go on with the version that answers now, which the background does with each fold."""
        runtime = self._runtime()
        with self._moving, suppress(FlourError):  # the endpoint may be gone, or mute
            if runtime is None or self._closed or "@" in self._name:
                return
            version, former = runtime.endpoints.find(self._name), self._observer
            if version is self.version and version.private == former.private:
                return
            try:
                plan = step_plan(version, [self._step])
            except FlourError as problem:
                detach(former.served, former)  # it goes on looking for versions
                if version.private - former.private:
                    former.hidden = True
                    self.ring.clear()
                former.private = version.private
                log.warning("%s: the tap has nothing to look at: %s", version.owner, problem.what)
            else:
                self._observer = _Tapped(self, version, plan)
                former.end()
            self.version = version

    def give(self, values: object) -> None:
        """Put a block of values where they should go."""
        with self._giving:
            self._sink.give(values)

    def flush(self) -> None:
        """Give what has been sampled so far."""
        self._observer.fold()

    def close(self) -> None:
        """Sample no more, and give what is left."""
        with self._moving:
            if self._closed:
                return
            self._closed = True
        self._observer.end()
        self._sink.close()
