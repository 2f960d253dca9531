"""Plans that begin alike and get the same inputs: a block of documents each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime import Runtime
from runtime.service.groups import ON
from tests.runtime.bench.timing import least
from tests.runtime.plans import documents, text_flow

PLANS = 10
ROWS = 10


@pytest.mark.bench
def test_a_common_featurizer(benchmark: Any) -> None:
    """The goal: 1.8 times, where plans share their featurizer."""
    texts = documents(200)
    with Runtime(result_bytes=0) as plain, Runtime() as shared:
        for each in (plain, shared):
            for n in range(PLANS):
                each.register(f"t{n}", text_flow(n))

        def score(runtime: Runtime, fresh: list[str]) -> None:
            for start in range(0, len(fresh), ROWS):
                block = fresh[start : start + ROWS]
                for n in range(PLANS):
                    runtime.predict(f"t{n}", block)

        for turn in range(5):
            score(shared, documents(500, seed=turn + 10))
            shared._materialiser.settle(60)
        (group,) = shared.stats().groups
        assert group.block_mode == ON
        fresh = iter(documents(3000, seed=99))

        def some() -> list[str]:
            return [next(fresh) for _ in range(40)]

        times = least(
            {"plain": lambda: score(plain, some()), "shared": lambda: score(shared, some())}, 20, 1
        )
        ratio = times["plain"] / times["shared"]
        found = shared.stats().groups[0]
        benchmark.extra_info.update({"ratio": ratio, "hit_rate": found.hit_rate})
        np.testing.assert_allclose(
            shared.predict("t0", texts)["score"], plain.predict("t0", texts)["score"], rtol=1e-12
        )
        benchmark(shared.predict, "t0", texts[:ROWS])
    assert ratio > 1.3
