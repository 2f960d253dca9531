"""How long a hand-over takes, and what a second executor brings. Figures are the best of some runs.

Other programs on the machine make these figures worse and never better, so the best run says the
most about the code.
"""

from __future__ import annotations

import hashlib
import statistics
import threading
from collections.abc import Callable
from time import perf_counter, sleep

import pytest

from scheduler import InlineEngine, Job, Pool, Stages, cores

pytestmark = pytest.mark.bench

BLOCK = bytes(2 << 20)
START = Stages.chain(lambda _, __: perf_counter())
HASH = Stages.chain(lambda _, __: hashlib.sha256(BLOCK).digest())  # some ms without the GIL


Say = Callable[[str], None]


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Say:
    """Write a figure where the report goes."""
    return lambda text: request.config.get_terminal_writer().line(f" {text}")


def hand_over(pool: Pool, pause: float, count: int = 1500) -> float:
    """Return the median time from submission to the first line of the stage."""
    took = []
    for _ in range(count):
        before = perf_counter()
        took.append(pool.submit(Job.of(START, (0,))).result()[0] - before)
        if pause:
            sleep(pause)
    return float(statistics.median(took))


@pytest.mark.parametrize("pause", [0.0, 0.0002], ids=["at once", "after a pause"])
def test_an_idle_executor_starts_soon(pause: float, say: Say) -> None:
    with Pool(cores()) as pool:
        best = min(hand_over(pool, pause) for _ in range(5))
    say(f"{best * 1e6:.2f} us")
    # 15 on a quiet machine; a virtual one takes 4 to 25 of it to wake a thread on another core.
    assert best <= (25e-6 if not pause else 60e-6)


def hashes(executors: int, chunks: int = 40) -> float:
    """Return the time that hashing takes."""
    with Pool(executors) as pool:
        pool.submit(Job.of(HASH, range(executors))).result()
        before = perf_counter()
        pool.submit(Job.of(HASH, range(chunks))).result()
        return perf_counter() - before


def bare(threads: int, chunks: int = 40) -> float:
    """Return the time that hashing takes in threads that nobody schedules."""

    def work() -> None:
        for _ in range(chunks // threads):
            hashlib.sha256(BLOCK).digest()

    crew = [threading.Thread(target=work) for _ in range(threads)]
    before = perf_counter()
    for each in crew:
        each.start()
    for each in crew:
        each.join()
    return perf_counter() - before


@pytest.mark.skipif(cores() < 2, reason="needs two cores")
def test_two_executors_do_twice_the_work(say: Say) -> None:
    rounds = [(hashes(1), hashes(2), bare(1), bare(2)) for _ in range(7)]
    one, two, bare_one, bare_two = map(min, zip(*rounds, strict=True))
    ratio, possible = one / two, bare_one / bare_two
    say(f"two executors {ratio:.2f} times one, two bare threads {possible:.2f} times one")
    if possible < 1.85:
        pytest.skip("two bare threads do not get two cores: other programs have them")
    assert ratio >= 1.8


def test_a_flood_of_tiny_jobs(say: Say) -> None:
    stages, count = Stages.chain(lambda chunk, _: chunk), 4000
    best = 0.0
    for _ in range(5):
        with Pool(2) as pool:
            before = perf_counter()
            tickets = [pool.submit(Job.of(stages, (n,))) for n in range(count)]
            answers = [ticket.result()[0] for ticket in tickets]
            best = max(best, count / (perf_counter() - before))
        assert answers == list(range(count))
    say(f"{best:,.0f} jobs per second")
    assert best >= 10_000


def test_a_call_inline_costs_next_to_nothing(say: Say) -> None:
    engine, stages, count = InlineEngine(), Stages.chain(lambda chunk, _: chunk), 20_000
    best = 1.0
    for _ in range(7):
        before = perf_counter()
        for _ in range(count):
            engine.run(stages, 0)
        best = min(best, (perf_counter() - before) / count)
    say(f"{best * 1e6:.2f} us")
    assert best <= 2e-6
