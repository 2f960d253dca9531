"""Ours: saved plans in one runtime.

Options (for ablations): `store` false keeps a copy of every parameter for every plan, `results`
is the budget of materialisation in bytes, `rules` false bakes without rewrite rules, `entries`
false uses the Python code for calls instead of native entries, and `pools` false allocates scratch
memory for each call there (native entries keep theirs). `executors` is the number of executors, for
experiments that fix the number of threads.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

from bench.contestant import Contestant, Model
from bench.inputs import NUMBERS, TABLE, TEXT, Inputs
from bench.workload import Pipeline, Saved

SOURCES = "PRETZEL_BENCH_SOURCES"


class Pretzel(Contestant):
    """One runtime with every plan registered from its file, called by `predict`."""

    name = "pretzel"
    title = "Pretzel"
    packages = ("numpy", "numba", "llvmlite")
    workloads = (*Contestant.workloads, "cat")
    settings = "defaults"
    #: The level of processors to compile for, instead of this machine's.
    level: ClassVar[str] = ""

    def start(self) -> None:
        """Import what loading plans needs, and make the runtime."""
        from flour.core.modules import load_operator
        from runtime import Runtime

        load_operator("")
        if self.level:
            from oven.compiler import levels, machine

            found = levels.named(self.level)
            assert found is not None, f"no level is called {self.level}"
            machine.aim(found.cpu, found.listed, found.triple)
        self._paths: dict[str, Path] = {}
        if not self.options.get("rules", True):
            os.environ["PRETZEL_WITHOUT"] = "all"
        if not self.options.get("store", True):
            # Switch off the table by which equal content becomes one object in a process.
            from objectstore import interning

            for name in ("keep_first", "keep_last"):
                setattr(interning.Interned, name, lambda _, candidate: candidate)
            interning.Interned.find = lambda *_: None  # type: ignore[method-assign]
        if not self.options.get("entries", True):
            _keep_entries_shut()
        if not self.options.get("pools", True):
            _forget_memory()
        budget = self.options.get("results")
        more: dict[str, Any] = {} if budget is None else {"result_bytes": int(budget)}
        executors = self.options.get("executors", self.threads)
        self.runtime = Runtime(executors=executors, **more)

    def prepare(self, pipeline: Pipeline, saved: Saved) -> None:
        """Import the estimator, bake it, save the plan; its code goes to the code cache."""
        import flour
        import oven

        path = self.plan_file(pipeline)
        if path.exists():
            oven.load(path, background=False)  # its code may be of another level
            return
        inputs = saved.inputs
        sample = inputs.frame(0, 50) if inputs.kind == TABLE else None
        estimator = pipeline.estimator()
        if hasattr(estimator, "cbm"):
            flow = flour.from_catboost(estimator.cbm)
        else:
            flow = flour.from_sklearn(estimator, sample)
        output = "probabilities" if saved.facts["answers"] == "probability" else "value"
        oven.bake(flow[output], background=False).save(path, durable=False)

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Register the plan's file."""
        name = f"{saved.name}{pipeline.number}"
        self._paths[name] = path = self.plan_file(pipeline)
        self.runtime.register(name, path)
        predict = self.runtime.predict
        second = saved.facts["answers"] == "probability"
        output = "probabilities" if second else "value"

        def ask(data: Any) -> Any:
            return predict(name, data)[output]

        return Model(ask, ask, _row, _block, _second if second else np.asarray, _first, name)

    def submit(self, model: Model, data: Any) -> Future[Any]:
        """Submit to the scheduler: a block goes to the executors, a row is answered at once."""
        return self.runtime.submit(model.name, data)

    def reserved(self, model: Model) -> Model:
        """The same plan with an executor of its own."""
        self.runtime.unregister(model.name)
        self.runtime.register(model.name, self._paths[model.name], reserve=True)
        return model

    def unique_bytes(self) -> int:
        """Bytes of the plans' parameters, equal ones counted once."""
        plans = (served.plan for served in self.runtime.endpoints.versions().values())
        held = (item for plan in plans if plan is not None for item in plan.program.parameters())
        return sum({item.digest: item.nbytes for item in held}.values())

    def plan_file(self, pipeline: Pipeline) -> Path:
        """The file of a pipeline's plan."""
        rules = "" if self.options.get("rules", True) else "norules."
        return pipeline.file(f"{sources()}.{rules}plan")

    def close(self) -> None:
        """Close the runtime."""
        self.runtime.close()


@functools.cache
def sources() -> str:
    """A digest of the code that writes plans: plans of other versions of it are not read.

    A run passes it to its workers, so that an edit meanwhile does not invalidate the plans.
    """
    if SOURCES in os.environ:
        return os.environ[SOURCES]
    packages = ("flour", "objectstore", "oven")
    folders = [Path(str(importlib.import_module(name).__file__)).parent for name in packages]
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    digest = hashlib.blake2b(digest_size=4)
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _row(inputs: Inputs, index: int) -> Any:
    """A row as in requests: a vector, a text, a dict."""
    if inputs.kind == TABLE:
        return inputs.data.record(index)
    return inputs.data[index].copy() if inputs.kind == NUMBERS else inputs.data[index]


def _block(inputs: Inputs, start: int, stop: int) -> Any:
    if inputs.kind == TABLE:
        return {name: inputs.data.column(name, start, stop) for name in inputs.data.columns}
    return list(inputs.data[start:stop]) if inputs.kind == TEXT else inputs.data[start:stop].copy()


def _second(raw: Any) -> Any:
    return raw[:, 1]


def _first(raw: Any) -> float:
    return float(raw if np.ndim(raw) == 0 else raw[1])


def _keep_entries_shut() -> None:
    """As on an interpreter without native entries: calls are handled by Python code."""
    patch("oven.entry.builtin.entry_code", lambda _: None).start()


def _forget_memory() -> None:
    """Drop a thread's scratch memory before each call."""
    from oven.run import native_run

    local = vars(native_run)["_local"]

    def anew(allocate: Callable[[int], Any], size: int) -> Any:
        local.size = 0
        local.memory = local.room = np.empty(0, np.uint8)
        return allocate(size)

    for name in ("_scratch_memory", "_room_memory"):
        allocate = vars(native_run)[name]
        patch.object(native_run, name, functools.partial(anew, allocate)).start()


CONTESTANT = Pretzel
