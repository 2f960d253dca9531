"""An hour of a busy runtime, in fewer minutes: memory stays flat.

What a queue holds when a round ends is chance, and the C library keeps what was once in use. So
the queue is filled to its bound before anything is measured, and a round ends when the executors
have done what it asked for.
"""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from runtime import Runtime
from runtime.service.engines import Answers
from scheduler import Overloaded
from tests.runtime.plans import documents, offset_of, shift, text_flow

ROUNDS = 60  # each does about what a minute of moderate traffic does
CALLS = 20_000
WIDTH = 20
BLOCK = np.random.default_rng(0).normal(size=(100, WIDTH))


def one_round(runtime: Runtime, turn: int) -> None:
    """Deploy, switch, call, give up, retire."""
    tickets: list[Future[Answers]] = []
    for n in range(20):
        runtime.register(f"p{n}", shift(float(turn + n), WIDTH))
        for old in [*runtime.endpoints][n].versions[:-2]:
            runtime.unregister(f"p{n}", old)
    texts = documents(50, seed=turn)

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for n in rng.integers(0, 20, CALLS // 4):
            name = f"p{n}"
            if n == 0:
                runtime.predict(f"text{seed % 3}", texts[int(rng.integers(50))])
            elif n < 4:
                try:
                    ticket = runtime.submit(name, BLOCK, engine="batch", timeout=5.0)
                except Overloaded:
                    continue
                tickets.append(ticket)
                if n == 1:
                    ticket.cancel()
            else:
                runtime.predict(name, BLOCK[0] if n % 2 else BLOCK)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(turn * 4, turn * 4 + 4)))
    wait(tickets)


@pytest.mark.soak
def test_memory_stays_flat() -> None:
    with Runtime(executors=2, memory_budget=400_000) as runtime:
        for n in range(20):
            runtime.register(f"p{n}", shift(float(n), WIDTH))
        for n in range(3):
            runtime.register(f"text{n}", text_flow(n))
        # As much waiting work as is ever accepted.
        tickets = []
        with suppress(Overloaded):
            while True:
                tickets.append(runtime.submit("p0", BLOCK, engine="batch"))
        wait(tickets)
        sizes = []
        for turn in range(ROUNDS):
            one_round(runtime, turn)
            gc.collect()
            pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
            sizes.append(int(pages) * os.sysconf("SC_PAGE_SIZE"))
        stats = runtime.stats()
        assert stats.catalog.versions == len(stats.versions)
        found = offset_of(runtime.predict("p3", BLOCK[0] * 0), BLOCK[0] * 0)
        assert found == ROUNDS - 1 + 3
    assert threading.active_count() <= 3
    early, late = np.median(sizes[10:20]), np.median(sizes[-10:])
    assert late < early * 1.05 + (2 << 20), [size >> 20 for size in sizes]
