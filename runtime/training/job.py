"""Jobs: steps of a recipe, computed in a process of their own or as a task of Ray.

A candidate's job is its training, its gate and its import; that of the mean of two is its gate.
Only jobs run the recipe, and read the Python objects of its results.
"""

from __future__ import annotations

import json
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from flour.core.errors import ParameterError
from objectstore import combine
from runtime.errors import BadRecipe
from runtime.http.wire.settings import server_version
from runtime.training.cache import WALL, StoredResult, TrainingCache
from runtime.training.recipe import Recipe, RecipeStep

Results = dict[str, StoredResult]
#: Computes a part of a job: of the part, the step's name, and digests by input.
Compute = Callable[[str, str, Mapping[str, str]], tuple[bytes, float | None]]
_FORMAT = "pretzel-trained-1"
#: The input of an import that is the model, beside those with the names of steps.
_MODEL = ""


def results_of(
    cache: TrainingCache,
    recipe: Recipe,
    name: str,
    inputs: Mapping[str, str],
    compute: Compute | None = None,
    mean: str = "",
) -> tuple[Results, list[str]]:
    """The results of a step, and what was computed: without `compute`, nothing is.

    They are its `result`; of a candidate, its `gate`, too; and where it has passed, its `plan`. The
    result and plan of the `mean` of two is this digest.
    """
    gate, found, ran = recipe.steps[recipe.gate], Results(), list[str]()
    step, parts = recipe.steps.get(name, gate), ["result", "gate", "plan"]
    if mean:
        found["result"], parts = StoredResult(mean, 0.0), ["gate"]
    for part in parts if mean or step.kind == "candidate" else parts[:1]:
        own, given = gate if part == "gate" else step, dict(inputs)
        if part != "result":
            given[gate.inputs[0] if part == "gate" else _MODEL] = found["result"].digest
        if part == "plan":
            sample = given.get(step.options.get("sample", _MODEL), "")
            key = combine(_FORMAT, server_version(), given[_MODEL], sample)
        else:
            key = own.key(given)
        stored = cache.find(key, own.options.get("max_age"))
        if stored is None and compute is not None:
            with cache.computing(key):
                stored = cache.find(key, own.options.get("max_age"))
                if stored is None:  # no other process has computed it meanwhile
                    stored = cache.put(key, *compute(part, own.name, given))
                    ran.append(f"{part} of {name}" if part != "result" else name)
        if stored is None:
            break
        found[part] = stored
        if part == "gate" and not is_passed(gate, stored):
            break
        if mean:
            found["plan"] = found["result"]
    return found, ran


def is_passed(gate: RecipeStep, result: StoredResult) -> bool:
    """True if the figure of a gate is within its bound."""
    score, bounds = float("nan") if result.score is None else result.score, gate.options
    return bool(score >= bounds["at_least"] if "at_least" in bounds else score <= bounds["at_most"])


def perform(job: str, clock: Callable[[], float] = WALL) -> str:
    """Do a job, which is JSON; the results and what was computed as JSON, or the error."""
    facts = json.loads(job)
    path = Path(facts["path"])
    try:
        recipe = Recipe(path, facts["source"], facts["settings"])
        with TrainingCache(facts["cache"], clock=clock) as cache:
            mean, compute = facts["mean"], _Computing(cache, recipe, facts["mean"])
            given = facts["name"], facts["inputs"], compute, mean
            return json.dumps(results_of(cache, recipe, *given))
    except Exception as problem:  # noqa: BLE001 (a recipe may raise anything)
        frames = traceback.extract_tb(problem.__traceback__)
        lines = [each.lineno for each in frames if each.filename == str(path)]
        place = f" ({path.name}:{lines[-1]})" if lines else ""
        return json.dumps(f"{type(problem).__name__}: {problem}"[:500] + place)


class _Computing:
    """Computes parts of a job in this process."""

    def __init__(self, cache: TrainingCache, recipe: Recipe, mean: str) -> None:
        self._cache, self._recipe, self._module = cache, recipe, _module(recipe)
        self._objects = {mean: MeanModel(cache.path(mean))} if mean else dict[str, Any]()

    def __call__(
        self, part: str, name: str, inputs: Mapping[str, str]
    ) -> tuple[bytes, float | None]:
        """The bytes of a result, and the figure of a gate."""
        step = self._recipe.steps[name]
        if part == "plan":
            return self._plan(inputs[_MODEL], inputs.get(step.options.get("sample", "-"))), None
        given = {each: self._object(inputs[each]) for each in step.inputs}
        made = getattr(self._module, name)(**given, **step.values)
        return pickle.dumps(made, protocol=5), float(made) if part == "gate" else None

    def _object(self, digest: str) -> Any:
        if digest not in self._objects:
            data = self._cache.path(digest).read_bytes()
            self._objects[digest] = pickle.loads(data)  # noqa: S301 (of the user's own folder)
        return self._objects[digest]

    def _plan(self, model_digest: str, sample: str | None) -> bytes:
        """The bytes of a model's plan, which answers the rows of a sample as the model does."""
        import flour
        import oven
        from oven.plans.saved import to_bytes
        from runtime.verify import verify
        from runtime.watch import training_of

        model = self._object(model_digest)
        rows = None if sample is None else self._object(sample)
        is_plan, facts = isinstance(model, oven.Plan), None
        plan = model if is_plan else oven.bake(flour.from_sklearn(model, rows))
        if rows is not None and not is_plan:
            verify(plan, model, rows)
        if rows is not None:
            with suppress(ParameterError):  # documents have no columns
                facts = training_of(plan, rows)
        return to_bytes(plan, facts)


class MeanModel:
    """The mean of two candidates as a gate reads a model; other names are those of its plan."""

    def __init__(self, path: Path) -> None:
        import oven

        self._plan = plan = oven.load(path)
        self.classes_ = plan.classes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def predict(self, rows: object) -> Any:
        """Labels, or values."""
        answers = self._plan.run(rows)
        return answers["label" if "label" in answers else "value"]

    def predict_proba(self, rows: object) -> Any:
        """A probability for each class."""
        return self._plan.run(rows)["probabilities"]

    def score(self, rows: object, truth: object) -> float:
        """The accuracy of labels, the R² of values."""
        import numpy as np

        said, truth = np.asarray(self.predict(rows)), np.asarray(truth)
        if "label" in self._plan.outputs:
            return float(np.mean(said == truth))
        return float(1.0 - np.mean((truth - said) ** 2) / np.var(truth))


def _module(recipe: Recipe) -> ModuleType:
    """The recipe's module, run from its source, under the name that `import` would give it."""
    name, path = recipe.path.stem, str(recipe.path)
    known = sys.modules.get(name)
    if known is not None and not hasattr(known, "__recipe__"):
        what = "a recipe is imported by its name, which another module has"
        raise BadRecipe(what, where=path, found=str(known)[:120], hint="rename the file")
    if (folder := str(recipe.path.parent)) not in sys.path:
        sys.path.insert(0, folder)
    module = sys.modules[name] = ModuleType(name)
    module.__dict__.update(__file__=path, __recipe__=path)
    exec(compile(recipe.source, path, "exec"), vars(module))  # noqa: S102 (the user's)
    return module
