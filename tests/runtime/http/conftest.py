"""A server with a few models, running, for all tests of a module."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import flour
from runtime import Runtime
from runtime.errors import UnknownEndpoint
from runtime.http import Server, ServerSettings
from runtime.http.service import READERS
from runtime.http.wire.interfaces import ModelState
from tests.runtime.http.client import Client
from tests.runtime.plans import record_flow, shift, text_flow

WIDTH = 4
CLASSES = ["high", "low", "middle"]


class Folder:
    """A repository that remembers what it was asked for."""

    def __init__(self) -> None:
        self.states = {"iris": "READY", "spare": "UNAVAILABLE"}
        self.lock = threading.Lock()

    def index(self) -> Sequence[ModelState]:
        with self.lock:
            return [
                ModelState(name, "1", state, "" if state == "READY" else "unloaded", wanted=False)
                for name, state in self.states.items()
            ]

    def load(self, name: str) -> None:
        self._set(name, "READY")

    def unload(self, name: str) -> None:
        self._set(name, "UNAVAILABLE")

    def _set(self, name: str, state: str) -> None:
        with self.lock:
            if name not in self.states:
                raise UnknownEndpoint(f"there is no model {name!r} in the folder")
            self.states[name] = state


@dataclass
class House:
    """A running server, its runtime, the original of the classifier, and a client."""

    server: Server
    runtime: Runtime
    original: LogisticRegression
    rows: NDArray[np.float64]
    client: Client

    def infer(self, inputs: list[dict[str, Any]], model: str = "iris", **more: Any) -> Any:
        reply = self.client.post(f"/v2/models/{model}/infer", {"inputs": inputs, **more})
        assert reply.status == 200, reply.body
        return reply.json


def classifier() -> tuple[LogisticRegression, NDArray[np.float64]]:
    rows = np.random.default_rng(7).normal(size=(120, WIDTH))
    labels = np.array(CLASSES)[np.digitize(rows[:, 0], [-0.5, 0.5])]
    return LogisticRegression().fit(rows, labels), rows


def filled(runtime: Runtime) -> tuple[LogisticRegression, NDArray[np.float64]]:
    """Register the models that tests ask."""
    original, rows = classifier()
    runtime.register("iris", flour.from_sklearn(original))
    runtime.register("shift", shift(1.0))
    runtime.register("shift", shift(2.0))
    runtime.register("text", text_flow(3))
    runtime.register("people", record_flow())
    whole = flour.vector("count", 2, "int64")
    runtime.register("whole", flour.outputs(same=whole, top=whole.max()))
    left, right = flour.vector("left", 2), flour.vector("right", 2)
    runtime.register("both", flour.outputs(sum=left.plus(right)))
    words = flour.text("document").tokenize()
    runtime.register("words", flour.outputs(words=words))
    return original, rows


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with Runtime(executors=1) as runtime:
        original, rows = filled(runtime)
        # A busy machine is no reason to refuse what tests ask.
        settings = ServerSettings(port=0, max_body=1 << 20, max_header=8 << 10, max_unread=0.0)
        with Server(runtime, settings, repository=Folder()) as server:
            yield House(server, runtime, original, rows, Client(server.port))


def tensor(name: str, datatype: str, shape: list[int], data: Any, **known: Any) -> dict[str, Any]:
    made = {"name": name, "datatype": datatype, "shape": shape, "data": data}
    return made | ({"parameters": known} if known else {})


def outputs(body: Any) -> dict[str, Any]:
    return {each["name"]: each for each in body["outputs"]}


@pytest.fixture(scope="session")
def native_readers() -> None:
    """Readers and writers of JSON in native code, which are else made when they are needed."""
    for reader in READERS:
        reader.make()


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """A runtime with one small model, for a server with settings of its own."""
    with Runtime(executors=1) as made:
        made.register("shift", shift(2.0))
        yield made
