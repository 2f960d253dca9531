"""A small recipe for tests: plans as models, and a log of the functions that run."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pretzel.training import Recipe, TrainingCache
from runtime.training.job import perform
from tests.runtime.conftest import Clock

SOURCE = '''
"""A recipe."""

from pathlib import Path

import numpy as np

import flour
import oven
from pretzel.training import candidate, gate, step

LOG = Path(__file__).with_name("log")
SHIFT = 0.0


def note(name):
    with LOG.open("a") as file:
        file.write(name + " ")


def classifier(weight):
    flow = flour.vector("x", 2).logistic_classifier([[weight, 0.0]], SHIFT, classes=["no", "yes"])
    return oven.bake(flour.outputs(label=flow["label"], probabilities=flow["probabilities"]))


@step(max_age=100)
def rows(data: Path = Path("data.txt"), number: int = 4):
    note("rows")
    return np.full((number, 2), float(data.read_text()))


@step
def unread(rows):
    note("unread")


@candidate
def weak(rows, weight=1.0):
    note("weak")
    return classifier(weight)


@candidate(sample="rows")
def strong(rows, weight=3.0):
    note("strong")
    return classifier(weight)


@gate(at_least=0.5)
def sureness(model, rows):
    """A number between 0.5 and 1; two are surer than one."""
    note("gate")
    more = 0.0 if isinstance(model, oven.Plan) else 0.25
    return more + float(model.run(rows)["probabilities"].max())
'''


class Inline:
    """Does jobs at once, in this process; those of `after` once it has been told so."""

    def __init__(
        self, clock: Clock | None = None, after: dict[str, threading.Event] | None = None
    ) -> None:
        self.clock, self.after = clock or Clock(1_000_000.0), after or {}
        self.threads = ThreadPoolExecutor(1)

    def submit(self, job: str) -> Future[str]:
        event = self.after.get(json.loads(job)["name"])
        if event is not None:
            return self.threads.submit(self.wait, event, job)
        future: Future[str] = Future()
        future.set_result(perform(job, self.clock))
        return future

    def wait(self, event: threading.Event, job: str) -> str:
        assert event.wait(60)
        return perform(job, self.clock)


def recipe(folder: Path, *changes: tuple[str, str], **settings: str) -> Recipe:
    """The recipe in a folder, with texts of its source replaced."""
    source = SOURCE
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    path = folder / "tiny_recipe.py"
    path.write_text(source)
    data = folder / "data.txt"
    data.write_text(data.read_text() if data.exists() else "1.0")
    (folder / "log").write_text("")
    return Recipe.read(path, {name.replace("__", "."): value for name, value in settings.items()})


def ran(folder: Path) -> list[str]:
    """The functions that have run since the recipe was read, in their order."""
    return (folder / "log").read_text().split()


def cache(folder: Path, clock: Clock | None = None) -> TrainingCache:
    """The cache beside the recipe."""
    return TrainingCache(folder / "cache", clock=clock or Clock(1_000_000.0))
