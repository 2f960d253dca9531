"""Answers that were given before: for endpoints that ask for it, the least recently used go first.

    answering = Cached(runtime.direct, usual=1 << 20)

An answer is kept under the endpoint, the version, the program behind it and the digest of the
input, so a new version never answers with what an old one said. It is off unless `usual` or the
version's note `cache_bytes` gives it room: most plans answer sooner than a digest is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

from flour.data.batch import Batch
from runtime.http.snapshots import Family
from runtime.service.answerers import NOBODY, Answerer, Asked, InferCall
from runtime.service.done_future import DoneFuture
from runtime.service.entry import Outputs
from runtime.service.results import Results, freeze, key_of
from runtime.service.version import ModelVersion

#: The note of a version that says how many bytes of answers its endpoint keeps.
NOTE = "cache_bytes"
_QUICK, _WHOLE = 0, 1


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Figures of an endpoint's cache."""

    name: str
    entries: int
    used: int
    budget: int
    hits: int
    misses: int


class _EndpointAnswers:
    """The answers of one endpoint. The event loop asks; executors bring."""

    def __init__(self, budget: int) -> None:
        self.results = Results(budget)
        self.hits = self.misses = 0

    def get(self, kind: int, key: Hashable) -> Any:
        value = self.results.get(kind, key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    def put(self, kind: int, key: Hashable, value: Outputs | Mapping[str, object]) -> None:
        freeze(value if isinstance(value, Mapping) else dict(enumerate(value)))
        self.results.put(kind, key, value)


class Cached:
    """Answers from what is kept, and keeps what the next in line answers."""

    def __init__(
        self, inner: Answerer, usual: int = 0, *, names: Callable[[], set[str]] | None = None
    ) -> None:
        """Wrap what answers; `names` are the endpoints there are, the others' answers are dropped.

        `usual` is what each endpoint keeps, in bytes, unless a version of it says otherwise.
        """
        self.inner, self._usual, self._names = inner, usual, names
        self._endpoints: dict[str, _EndpointAnswers] = {}
        self._lock = Lock()

    def quick(self, version: ModelVersion, batch: Batch, _asked: Asked = NOBODY) -> Outputs | None:
        """The outputs of a row or a few rows, kept or made at once."""
        budget: int = version.notes.get(NOTE, self._usual)  # type: ignore[assignment]  # was checked
        key = _key(version, batch, None) if budget else None
        if key is None:
            return self.inner.quick(version, batch)
        kept = self._of(version.name, budget)
        outputs: Outputs | None = kept.get(_QUICK, key)
        if outputs is not None:
            version.seen(batch)
        else:
            outputs = self.inner.quick(version, batch)
            if outputs is not None:
                kept.put(_QUICK, key, outputs)
        return outputs

    def answer(self, call: InferCall) -> Future[dict[str, Any]]:
        """The answers, kept or to come; what fails is not kept."""
        budget: int = call.version.notes.get(NOTE, self._usual)  # type: ignore[assignment]  # was checked
        key = _key(call.version, call.batch, call.outputs) if budget else None
        if key is None:
            return self.inner.answer(call)
        kept = self._of(call.version.name, budget)
        answers = kept.get(_WHOLE, key)
        if answers is not None:
            call.version.seen(call.batch)
            return DoneFuture(dict(answers))
        coming = self.inner.answer(call)
        coming.add_done_callback(partial(_keep, kept, key))
        return coming

    def forget(self, names: set[str]) -> None:
        """Drop what endpoints keep that are not among these."""
        with self._lock:
            for name in self._endpoints.keys() - names:
                del self._endpoints[name]

    def stats(self) -> tuple[CacheStats, ...]:
        """Figures of each endpoint's cache."""
        with self._lock:
            every = sorted(self._endpoints.items())
        return tuple(
            CacheStats(
                name,
                len(each.results),
                each.results.used,
                each.results.budget,
                each.hits,
                each.misses,
            )
            for name, each in every
        )

    def families(self) -> list[Family]:
        """The figures of these caches."""
        looked = "pretzel_cache_lookups_total"
        lookups = Family(looked, "counter", "Look-ups in the result cache.")
        used = Family("pretzel_cache_bytes", "gauge", "Bytes of answers in the result cache.")
        budget = Family("pretzel_cache_budget_bytes", "gauge", "Size of the result cache.")
        for each in self.stats():
            lookups.add(each.hits, model=each.name, result="hit")
            lookups.add(each.misses, model=each.name, result="miss")
            used.add(each.used, model=each.name)
            budget.add(each.budget, model=each.name)
        return [lookups, used, budget]

    def _of(self, name: str, budget: int) -> _EndpointAnswers:
        endpoint = self._endpoints.get(name)
        if endpoint is None or endpoint.results.budget != budget:
            if self._names is not None:
                self.forget(self._names())
            with self._lock:
                endpoint = self._endpoints[name] = _EndpointAnswers(budget)
        return endpoint


def _key(version: ModelVersion, batch: Batch, outputs: tuple[str, ...] | None) -> Hashable | None:
    # The values of a row may be those of a block as well, which has other answers.
    form = type(batch.data).__name__, batch.single
    digest = key_of(batch.data)
    return None if digest is None else (version.version, version.digest, outputs, form, digest)


def _keep(kept: _EndpointAnswers, key: Hashable, done: Future[dict[str, Any]]) -> None:
    if not done.cancelled() and done.exception() is None:
        kept.put(_WHOLE, key, done.result())
