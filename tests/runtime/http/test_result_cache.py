"""Answers that were given before: the same as new ones, within bytes, never an old version's."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from flour.core.errors import InputError
from flour.data.batch import Batch
from runtime import Runtime
from runtime.http.answer.result_cache import Cached
from runtime.service.answerers import InferCall
from runtime.service.results import key_of
from runtime.service.version import ModelVersion
from tests.runtime.http.answering import Passing
from tests.runtime.plans import shift, text_flow

ROW = [1.0, 2.0, 3.0, 4.0]


def call(version: ModelVersion, data: object, **options: Any) -> InferCall:
    """A call with this data."""
    return InferCall(version, version.reader.read(data), **options)


def quick(cached: Cached, version: ModelVersion, data: object) -> Any:
    """The answer that is there at once."""
    return cached.quick(version, version.reader.read(data))


class Counting(Passing):
    """Answers, and counts how often."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.count = 0
        quick = self.quick

        def counted(version: ModelVersion, batch: Batch) -> Any:
            self.count += 1
            return quick(version, batch)

        self.quick = counted

    def answer(self, ask: InferCall) -> Future[dict[str, Any]]:
        self.count += 1
        return super().answer(ask)


def test_the_same_request_is_answered_once(runtime: Runtime) -> None:
    runtime.register("t", text_flow(0))
    inner = Counting(runtime)
    cached = Cached(inner, 1 << 20)
    served, text = runtime.endpoints.find("shift"), runtime.endpoints.find("t")
    for data in (ROW, np.array([ROW] * 3)):
        first = quick(cached, served, data)
        second = quick(cached, served, data)
        assert first is not None
        assert second is not None
        for one, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(one, other)
    for ask in (call(served, np.array([ROW])), call(text, ["some words"])):
        first_answers = cached.answer(ask).result(30)
        second_answers = cached.answer(ask).result(30)
        assert first_answers.keys() == second_answers.keys()
        for name, value in first_answers.items():
            np.testing.assert_array_equal(value, second_answers[name])
    assert inner.count == 4
    (m, t) = cached.stats()
    assert (m.name, m.hits, m.misses, m.entries) == ("shift", 3, 3, 3)
    assert (t.name, t.hits, t.misses) == ("t", 1, 1)


def test_a_new_version_answers_for_itself(runtime: Runtime) -> None:
    cached = Cached(runtime.direct, 1 << 20)
    runtime.register("m", shift(1.0, 4), version=1)
    old = quick(cached, runtime.endpoints.find("m"), ROW)
    runtime.register("m", shift(2.0, 4), version=2)
    new = quick(cached, runtime.endpoints.find("m"), ROW)
    runtime.register("m", shift(3.0, 4), version=2, replace=True)
    newest = quick(cached, runtime.endpoints.find("m"), ROW)
    assert old is not None
    assert new is not None
    assert newest is not None
    assert not np.array_equal(old[0], new[0])
    assert not np.array_equal(new[0], newest[0])


def test_outputs_dtypes_and_nan_make_a_difference(runtime: Runtime) -> None:
    inner = Counting(runtime)
    cached = Cached(inner, 1 << 20)
    served = runtime.endpoints.find("shift")
    data = np.array([ROW])
    asks = [
        *(call(served, each * data) for each in (1.0, np.nan, -0.0, 0.0)),
        call(served, data, outputs=tuple(served.kinds)),
        call(served, data.astype(np.float32)),
    ]
    assert key_of(np.array(1.0)) is None  # of no rows: for the model to refuse
    for ask in asks:
        cached.answer(ask).result(30)
    assert inner.count == len(asks)


def test_it_stays_within_its_bytes_and_forgets_the_oldest(runtime: Runtime) -> None:
    cached = Cached(runtime.direct, 20_000)
    served = runtime.endpoints.find("shift")
    for n in range(500):
        quick(cached, served, [float(n), *ROW[1:]])
    (stats,) = cached.stats()
    assert 0 < stats.used <= 20_000
    assert 1 < stats.entries < 500
    quick(cached, served, [499.0, *ROW[1:]])
    quick(cached, served, [0.0, *ROW[1:]])
    (after,) = cached.stats()
    assert (after.hits, after.misses) == (1, 501)
    cached.forget(set())
    assert cached.stats() == ()


def test_errors_are_not_kept(runtime: Runtime) -> None:
    inner = Counting(runtime)
    cached = Cached(inner, 1 << 20)
    ask = call(runtime.endpoints.find("shift"), np.ones((1, 7)))
    for _ in range(2):
        with pytest.raises(InputError):
            cached.answer(ask).result(30)
    assert inner.count == 2


def test_it_is_off_unless_asked_for(runtime: Runtime) -> None:
    runtime.register("off", shift(1.0, 4))
    runtime.register("on", shift(1.0, 4), notes={"cache_bytes": 1 << 16})
    inner = Counting(runtime)
    cached = Cached(inner)
    for name in ("off", "off", "on", "on"):
        quick(cached, runtime.endpoints.find(name), ROW)
    assert inner.count == 3
    assert [each.name for each in cached.stats()] == ["on"]


def test_kept_answers_cannot_be_changed(runtime: Runtime) -> None:
    cached = Cached(runtime.direct, 1 << 20)
    made = cached.answer(call(runtime.endpoints.find("shift"), np.array([ROW]))).result(30)
    for value in made.values():
        with pytest.raises(ValueError, match="read-only"):
            value[:] = 0.0
