"""Answers that were given before: for endpoints that ask for it, the least recently used go first.

    answering = Cached(Direct(runtime), usual=1 << 20)

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

from runtime.http.interfaces import Answering, InferCall
from runtime.service.results import Results, freeze, key_of
from runtime.service.version import ModelVersion

#: The note of a version that says how many bytes of answers its endpoint keeps.
NOTE = "cache_bytes"
_QUICK, _WHOLE = 0, 1


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What an endpoint's cache has done."""

    name: str
    entries: int
    used: int
    budget: int
    hits: int
    misses: int


class _Endpoint:
    """The answers of one endpoint. The event loop asks; executors bring."""

    def __init__(self, budget: int) -> None:
        self.results = Results(budget)
        self.hits = self.misses = 0

    def get(self, kind: int, key: Hashable) -> Any:
        found = self.results.get(kind, key)
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
        return found

    def put(self, kind: int, key: Hashable, value: Any) -> None:
        freeze(value if isinstance(value, Mapping) else dict(enumerate(value)))
        self.results.put(kind, key, value)


class Cached:
    """Answers from what is kept, and keeps what the next in line answers."""

    def __init__(
        self, inner: Answering, usual: int = 0, *, names: Callable[[], set[str]] | None = None
    ) -> None:
        """Wrap what answers; `names` are the endpoints there are, the others' answers are dropped.

        `usual` is what each endpoint keeps, in bytes, unless a version of it says otherwise.
        """
        self.inner, self._usual, self._names = inner, usual, names
        self._endpoints: dict[str, _Endpoint] = {}
        self._lock = Lock()

    def quick(self, served: ModelVersion, data: Any) -> tuple[Any, ...] | None:
        """The outputs of a row or a few rows, kept or made at once."""
        budget = self._budget(served)
        key = _key(served, data, None) if budget else None
        if key is None:
            return self.inner.quick(served, data)
        kept = self._of(served.name, budget)
        found: tuple[Any, ...] | None = kept.get(_QUICK, key)
        if found is None:
            found = self.inner.quick(served, data)
            if found is not None:
                kept.put(_QUICK, key, found)
        return found

    def answer(self, ask: InferCall) -> Future[dict[str, Any]]:
        """The answers, kept or to come; what fails is not kept."""
        budget = self._budget(ask.served)
        key = _key(ask.served, ask.data, ask.outputs) if budget else None
        if key is None:
            return self.inner.answer(ask)
        kept = self._of(ask.served.name, budget)
        found = kept.get(_WHOLE, key)
        if found is not None:
            known: Future[dict[str, Any]] = Future()
            known.set_result(dict(found))
            return known
        coming = self.inner.answer(ask)
        coming.add_done_callback(partial(_keep, kept, key))
        return coming

    def forget(self, names: set[str]) -> None:
        """Drop what endpoints keep that are not among these."""
        with self._lock:
            for name in self._endpoints.keys() - names:
                del self._endpoints[name]

    def stats(self) -> tuple[CacheStats, ...]:
        """What each endpoint's cache has done."""
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

    def _budget(self, served: ModelVersion) -> int:
        noted = served.notes.get(NOTE, self._usual)
        return noted if isinstance(noted, int) else 0

    def _of(self, name: str, budget: int) -> _Endpoint:
        found = self._endpoints.get(name)
        if found is None or found.results.budget != budget:
            if self._names is not None:
                self.forget(self._names())
            with self._lock:
                found = self._endpoints[name] = _Endpoint(budget)
        return found


def _key(served: ModelVersion, data: Any, outputs: tuple[str, ...] | None) -> Hashable | None:
    # A row of the short way is a plain list; as a block of values it would mean something else.
    shape = type(data).__name__
    digest = key_of(data)
    return None if digest is None else (served.version, served.digest, outputs, shape, digest)


def _keep(kept: _Endpoint, key: Hashable, done: Future[dict[str, Any]]) -> None:
    if not done.cancelled() and done.exception() is None:
        kept.put(_WHOLE, key, done.result())
