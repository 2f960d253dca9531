"""The interface of a contestant: convert a pipeline, load it, answer a row and a block of rows.

Each runs in a process of its own (`bench.worker`), with the interpreter of its environment.
This module and the contestants' are read by Python 3.10 too, which some libraries need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from bench import machine
from bench.inputs import NUMBERS, Inputs
from bench.workload import Pipeline, Saved


class Unsupported(Exception):
    """This contestant cannot serve this pipeline; the message is the reason the table shows."""


@dataclass(frozen=True)
class Model:
    """A loaded pipeline: functions for one row and for blocks, for their inputs and their answers.

    Inputs are prepared before the clock starts, in the form that is best for each library.
    """

    one: Callable[[Any], Any]
    batch: Callable[[Any], Any]
    row: Callable[[Inputs, int], Any]
    block: Callable[[Inputs, int, int], Any]
    scores: Callable[[Any], Any]
    """From the result of `batch` to one number per row: a probability or a value."""
    first: Callable[[Any], Any]
    """From the result of `one` to its number."""
    name: str = ""


class Contestant(ABC):
    """One way to serve the pipelines of a workload."""

    name: ClassVar[str]
    title: ClassVar[str]
    environment: ClassVar[str] = "main"
    packages: ClassVar[tuple[str, ...]] = ()
    workloads: ClassVar[tuple[str, ...]] = ("sa", "ac", "tab", "lin", "gbt")
    settings: ClassVar[str] = ""
    """How it was tuned, for the report."""
    #: Variables its process is started with, before anything is imported.
    variables: ClassVar[Mapping[str, str]] = {}

    def __init__(self, threads: int = 1, options: Mapping[str, Any] | None = None) -> None:
        self.threads = threads
        self.options = dict(options or {})
        self._pool: ThreadPoolExecutor | None = None

    def versions(self) -> dict[str, str]:
        """The versions of its packages."""
        return {name: _version(name) for name in self.packages}

    def start(self) -> None:  # noqa: B027 (most have nothing to do)
        """Import the libraries: done before memory is first measured."""

    def prepare(self, pipeline: Pipeline, saved: Saved) -> None:  # noqa: B027
        """Convert a pipeline into this contestant's own file; not timed."""

    @abstractmethod
    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Make a pipeline ready to answer, from its file."""

    def submit(self, model: Model, data: Any) -> Future[Any]:
        """Submit a block under load: to a pool with one thread per core, by default."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.options.get("executors", machine.cores()))
        return self._pool.submit(model.batch, data)

    def unique_bytes(self) -> int | None:
        """Bytes of all models' parameters, equal ones counted once; None if unknown."""
        return None

    def reserved(self, model: Model) -> Model:
        """The model with processors of its own, if the contestant supports that."""
        raise Unsupported("it cannot reserve processors for a model")

    def close(self) -> None:
        """Stop threads and release resources."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def number_row(inputs: Inputs, index: int) -> Any:
    """A row of numbers with the shape of a matrix."""
    return inputs.data[index : index + 1].copy()


def number_block(inputs: Inputs, start: int, stop: int) -> Any:
    """Rows of numbers."""
    return inputs.data[start:stop].copy()


def framed_row(inputs: Inputs, index: int) -> Any:
    """A row as scikit-learn takes it."""
    return number_row(inputs, index) if inputs.kind == NUMBERS else inputs.frame(index, index + 1)


def framed_block(inputs: Inputs, start: int, stop: int) -> Any:
    """Rows as scikit-learn takes them."""
    return inputs.frame(start, stop)


def float32_row(inputs: Inputs, index: int) -> Any:
    """A row of numbers in float32, which holds them exactly."""
    return number_row(inputs, index).astype("float32")


def float32_block(inputs: Inputs, start: int, stop: int) -> Any:
    """Rows of numbers in float32."""
    return number_block(inputs, start, stop).astype("float32")
