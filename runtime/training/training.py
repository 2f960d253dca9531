"""One run of a recipe: candidates side by side, of which the best are served as they come.

The first candidate that passes the gate is published at once, then what the gate finds best: of
candidates, and of the mean of the best two. Where the endpoint has a version already, it stays
until all candidates have ended; and if some have failed, where it was better by this gate.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field

import flour
import oven
from flour.core.errors import FlourError, TypeMismatch
from objectstore import combine
from oven.plans.saved import to_bytes
from runtime.http.wire.settings import server_version
from runtime.training.cache import StoredResult, TrainingCache
from runtime.training.executors import JobExecutor, WorkerProcesses
from runtime.training.job import Results, is_passed, results_of
from runtime.training.publisher import Publisher
from runtime.training.recipe import Recipe

log = logging.getLogger("pretzel.training")
_FORMAT, _SERVED = "pretzel-ensemble-1", "pretzel-served-2"
_LOOK_SECONDS = 1.0


@dataclass
class TrainingOutcome:
    """The end of a training: steps that were computed, figures of candidates, failures and why.

    `served` are the candidates in the version that was published last, under `address`.
    """

    ran: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    served: tuple[str, ...] = ()
    address: str = ""


def train(
    recipe: Recipe,
    cache: TrainingCache,
    publisher: Publisher | None = None,
    executor: JobExecutor | None = None,
    *,
    on_progress: Callable[[str], object] = log.info,
) -> TrainingOutcome:
    """Run a recipe, and publish its best candidates; `on_progress` is called with lines of text.

    Only steps that are not stored are computed, by the executor, or by a process for each core.
    """
    if executor is None:
        with WorkerProcesses() as processes:
            return train(recipe, cache, publisher, processes, on_progress=on_progress)
    run = _TrainingRun(recipe, cache, publisher, on_progress)
    run.go(executor)
    return run.outcome


@dataclass
class _TrainingRun:
    """The state of a training; of what has passed, rank, names and plan's digest.

    The mean of two has both names. It is gated as they were, and served where it is better.
    """

    _recipe: Recipe
    _cache: TrainingCache
    _publisher: Publisher | None
    _report: Callable[[str], object]
    outcome: TrainingOutcome = field(default_factory=TrainingOutcome)
    _results: Results = field(default_factory=Results)
    _passed: list[tuple[float, tuple[str, ...], str]] = field(default_factory=list)
    _means: set[tuple[str, ...]] = field(default_factory=set)
    _published: str = ""
    _running: dict[Future[str], tuple[str, float]] = field(default_factory=dict)

    def go(self, jobs: JobExecutor) -> None:
        """Compute every step as soon as what it reads is there."""
        early = self._publisher is not None and self._publisher.is_first()
        waiting = [name for name in self._recipe.steps if name != self._recipe.gate]
        while waiting or self._running or self._gate_mean(jobs):
            waiting = [name for name in waiting if not self._begin(name, jobs)]
            if early and not self._gate_mean(jobs):
                self._publish()
            for future in wait(self._running, _LOOK_SECONDS, FIRST_COMPLETED).done:
                self._end(*self._running.pop(future), future)
        self._publish()

    def _begin(self, name: str, jobs: JobExecutor) -> bool:
        """Take a step's stored results, or submit it; False while it waits for what it reads."""
        recipe, step, failed = self._recipe, self._recipe.steps[name], self.outcome.failed
        of_gate = recipe.steps[recipe.gate].reads if step.kind == "candidate" else []
        reads = [*step.reads, *of_gate]
        if lost := next((each for each in reads if each in failed), ""):
            self._fail(name, f"it reads {lost}, which has failed")
            return True
        if not all(each in self._results for each in reads):
            return False
        inputs = {each: self._results[each].digest for each in reads}
        found, _ = results_of(self._cache, recipe, name, inputs)
        if self._is_complete(name, found):
            self._take(name, found, "stored")
            return True
        self._submit(name, inputs, jobs)
        self._report(f"{name}: running")
        return True

    def _submit(self, name: str, inputs: dict[str, str], jobs: JobExecutor, mean: str = "") -> None:
        recipe = self._recipe
        facts = {"path": str(recipe.path), "source": recipe.source, "settings": {**recipe.settings}}
        facts |= {"cache": str(self._cache.folder), "name": name, "inputs": inputs, "mean": mean}
        self._running[jobs.submit(json.dumps(facts))] = name, time.monotonic()

    def _gate_mean(self, jobs: JobExecutor) -> bool:
        """Let the mean of the best two be gated, once; True while the gate of a mean runs."""
        best = sorted(each for each in self._passed if len(each[1]) == 1)[:2]
        names = tuple(name for _, (name,), _ in best)
        if len(best) > 1 and names not in self._means:
            self._means.add(names)
            label, reads = " and ".join(names), self._recipe.steps[self._recipe.gate].reads
            inputs = {each: self._results[each].digest for each in reads}
            try:
                mean = self._ensemble([digest for *_, digest in best])
                found, _ = results_of(self._cache, self._recipe, label, inputs, mean=mean)
                if "gate" in found:
                    self._take(label, found, "stored")
                else:
                    self._submit(label, inputs, jobs, mean)
            except FlourError as problem:
                self._report(f"{label} have no mean: {problem}")
        return any(" and " in name for name, _ in self._running.values())

    def _is_complete(self, name: str, found: Results) -> bool:
        gate = self._recipe.steps[self._recipe.gate]
        if self._recipe.steps[name].kind == "step":
            return "result" in found
        return "plan" in found or ("gate" in found and not is_passed(gate, found["gate"]))

    def _end(self, name: str, start: float, future: Future[str]) -> None:
        """Take the answer of a job."""
        try:
            answer = json.loads(future.result())
            if isinstance(answer, str):
                self._fail(name, answer)
                return
            found = {part: StoredResult(*each) for part, each in answer[0].items()}
            for each in found.values():
                self._cache.path(each.digest)  # locked until the end
        except Exception as problem:  # noqa: BLE001 (of a process that was killed; others go on)
            self._fail(name, f"{type(problem).__name__}: {problem}")
            return
        self.outcome.ran += answer[1]
        self._take(name, found, f"{time.monotonic() - start:.1f} s")

    def _take(self, name: str, found: Results, how: str) -> None:
        if "gate" not in found:
            self._results[name] = found["result"]
            self._report(f"{name}: done, {how}")
            return
        gate, score = self._recipe.gate, found["gate"].score or 0.0
        self.outcome.scores[name] = score
        if "plan" in found:
            names, digest = tuple(name.split(" and ")), found["plan"].digest
            self._passed.append((self._rank(score), names, digest))
        verdict = "passed" if "plan" in found else "not passed"
        self._report(f"{name}: {gate} {score:.4g}, {verdict}, {how}")

    def _rank(self, score: float | None) -> float:
        is_more = "at_least" in self._recipe.steps[self._recipe.gate].options
        return -(score or 0.0) if is_more else score or 0.0

    def _fail(self, name: str, why: str) -> None:
        self.outcome.failed[name] = why
        self._report(f"{name}: failed: {why}")

    def _publish(self) -> None:
        """Publish what is best, unless it is published."""
        if not self._passed or min(self._passed)[2] == self._published:
            return
        rank, names, self._published = min(self._passed)
        if self._publisher is not None:
            publisher, path = self._publisher, self._cache.path(self._published)
            keys = map(self._served_key, publisher.answering() if self.outcome.failed else ())
            known = [each for key in keys if (each := self._cache.find(key))]
            served = min(known, key=lambda each: self._rank(each.score), default=None)
            if served and self._rank(served.score) < rank:
                self._report(f"what is served has {served.score:.4g}, which is better: it stays")
                return
            self.outcome.address = publisher.publish(path)
            score = self.outcome.scores[" and ".join(names)]
            key = self._served_key(publisher.digest(path))
            self._cache.put(key, path.read_bytes(), score)
            self._report(f"{self.outcome.address}: {' and '.join(names)}")
        self.outcome.served = names

    def _served_key(self, digest: str) -> str:
        """The key of a published plan's figure by this gate for these data."""
        gate = self._recipe.steps[self._recipe.gate]
        inputs = {each: self._results[each].digest for each in gate.reads} | {gate.inputs[0]: ""}
        return combine(_SERVED, digest, gate.key(inputs))

    def _ensemble(self, digests: Sequence[str]) -> str:
        """The digest of the plan that answers with the mean of others."""
        key = combine(_FORMAT, server_version(), *digests)
        stored = self._cache.find(key)
        if stored is None:
            plans = [oven.load(self._cache.path(each)) for each in digests]
            inputs = [each.inputs for each in plans]
            if any(each != inputs[0] for each in inputs):
                hint = "train them on one table, and give candidates a `sample`"
                raise TypeMismatch("they read other columns", found=str(inputs)[:300], hint=hint)
            made = oven.bake(flour.ensemble([each.flow for each in plans]).model())
            stored = self._cache.put(key, to_bytes(made, plans[0].training()))
        return stored.digest
