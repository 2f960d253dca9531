"""More plans than memory: who goes, who comes back, what it takes, and what may go wrong."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import flour
import oven
from objectstore import FileStore, MemoryStore
from runtime import Runtime
from runtime.errors import LostPlan
from tests.runtime.conftest import Hold
from tests.runtime.plans import offset_of, shift, shift_flow

WIDTH = 512
DATA = np.arange(2.0 * WIDTH).reshape(2, WIDTH)


def filled(runtime: Runtime, count: int) -> None:
    for n in range(count):
        runtime.register(f"p{n}", shift(float(n), WIDTH))


@pytest.fixture(scope="module")
def size() -> int:
    with Runtime(executors=1, memory_budget=1 << 40) as runtime:
        runtime.register("a", shift(1.0, WIDTH))
        return runtime.stats().memory.used


def maps_of(directory: Path) -> int:
    """How many of this process' memory maps are of files in a directory."""
    text = Path("/proc/self/maps").read_text(encoding="utf-8")
    return sum(str(directory) in line for line in text.splitlines())


@pytest.mark.parametrize("engine", [None, "inline", "batch"])
def test_all_answer_though_few_fit(size: int, tmp_path: Path, engine: str | None) -> None:
    with Runtime(executors=1, memory_budget=4 * size, spill=tmp_path) as runtime:
        filled(runtime, 20)
        for n in [*range(20), 3, 19, 3, 0]:
            assert offset_of(runtime.predict(f"p{n}", DATA, engine=engine), DATA) == n
        stats = runtime.stats().memory
        assert stats.resident <= 8, "what comes back from a file takes less than what was made"
        assert stats.used <= 4 * size
        assert stats.dropped == 20 - stats.resident
        assert stats.cold_hits >= 16
        assert stats.cold.count == stats.cold_hits
        assert 0 < stats.cold.p50 <= stats.cold.largest
    assert maps_of(tmp_path) == 0


def test_a_row_by_the_shortest_way_brings_a_plan_back(size: int) -> None:
    with Runtime(executors=1, memory_budget=2 * size) as runtime:
        filled(runtime, 6)
        for n in range(6):
            assert offset_of(runtime.predict(f"p{n}", DATA[0]), DATA[0]) == n


def test_what_is_dropped_is_gone(size: int) -> None:
    with Runtime(executors=1, memory_budget=2 * size, result_bytes=0) as runtime:
        runtime.register("p", shift(1.0, WIDTH))
        plan = weakref.ref(runtime.endpoints.find("p").plan)
        held = runtime.store.holdings()["p@1"]
        filled(runtime, 4)
        assert plan() is None
        assert not held & set(runtime.store.digests())
        runtime.predict("p", DATA)
        assert held <= set(runtime.store.digests())


def test_what_is_used_stays(size: int) -> None:
    with Runtime(executors=1, memory_budget=3 * size) as runtime:
        runtime.register("often", shift(99.0, WIDTH))
        for n in range(10):
            runtime.predict("often", DATA)
            runtime.register(f"p{n}", shift(float(n), WIDTH))
        versions = {each.name: each.resident for each in runtime.stats().versions}
        assert versions["often"]
        assert sum(versions.values()) == 3


def test_what_costs_more_to_load_stays_longer(size: int) -> None:
    with Runtime(executors=1, memory_budget=3 * size) as runtime:
        for n in range(3):
            runtime.register(f"p{n}", shift(float(n), WIDTH))
        memory = runtime._memory
        dear = memory._residents[runtime.endpoints.find("p0")]
        dear.seconds = 1e3
        memory._heap.clear()
        for one in memory._residents.values():
            memory._push(one)
        for n in range(3, 12):
            runtime.register(f"p{n}", shift(float(n), WIDTH))
        versions = {each.name: each.resident for each in runtime.stats().versions}
        assert versions["p0"]


def test_what_had_to_be_compiled_is_not_dear_to_load(size: int) -> None:
    """Its machine code stays when it is dropped."""
    with Runtime(executors=1, memory_budget=10 * size) as runtime:
        runtime.register("made", shift_flow(1.0, WIDTH + 1))
        took = {}
        for name in ("one", "two", "three"):  # one of them may have met with a busy machine
            path = runtime._memory._directory() / f"{name}.pretzel"
            shift(2.0, WIDTH + 1 + len(name)).save(path)
            runtime.register(name, path)
            took[name] = runtime._memory._residents[runtime.endpoints.find(name)].seconds
        assert runtime._memory._residents[runtime.endpoints.find("made")].seconds < 0.1
        assert min(took.values()) < 0.1


def test_plans_in_flight_are_pinned(size: int, hold: Hold) -> None:
    with Runtime(executors=1, memory_budget=size) as runtime:
        runtime.register("busy", hold.plan())
        future = runtime.submit("busy", DATA[:, :4], engine="batch")
        hold.wait()
        filled(runtime, 4)
        versions = {each.name: each.resident for each in runtime.stats().versions}
        assert versions["busy"]
        hold.go()
        assert offset_of(future.result(30), DATA[:, :4]) == 9.0
        filled_again = shift(5.0, WIDTH)
        runtime.register("q", filled_again)
        assert not {each.name: each.resident for each in runtime.stats().versions}["busy"]


def test_shared_parameters_count_once(size: int) -> None:
    with Runtime(executors=1, memory_budget=1 << 40) as runtime:
        runtime.register("a", shift(1.0, WIDTH))
        first = runtime.stats().memory.used
        runtime.register("b", shift(1.0, WIDTH))
        assert first == size
        assert runtime.stats().memory.used == 2 * size - 8 * WIDTH
        runtime.unregister("a")
        assert runtime.stats().memory.used == size
        runtime.unregister("b")
        assert runtime.stats().memory.used == 0


def test_plans_from_files_are_not_written_again(size: int, tmp_path: Path) -> None:
    files, spill = tmp_path / "files", tmp_path / "spill"
    files.mkdir()
    budget = 2 * size
    # Looking for common parts would hold on to plans for a moment.
    with Runtime(executors=1, memory_budget=budget, spill=spill, result_bytes=0) as runtime:
        for n in range(6):
            # Parameters of no other test: what this process has already is not mapped again.
            shift(1000.0 + n, WIDTH).save(files / f"{n}.pretzel")
        gc.collect()
        for n in range(6):
            runtime.register(f"p{n}", files / f"{n}.pretzel")
        for n in range(6):
            assert offset_of(runtime.predict(f"p{n}", DATA), DATA) == 1000 + n
        assert not spill.exists()
        assert 1 <= maps_of(files) <= 4
        for n in range(6):
            runtime.unregister(f"p{n}")
        assert maps_of(files) == 0


def test_files_written_for_plans_go_with_them(size: int, tmp_path: Path) -> None:
    with Runtime(executors=1, memory_budget=size, spill=tmp_path) as runtime:
        filled(runtime, 5)
        assert len(list(tmp_path.glob("*/*"))) == 4
        for n in range(5):
            runtime.unregister(f"p{n}")
        assert list(tmp_path.glob("*/*")) == []
    assert list(tmp_path.iterdir()) == []


def test_runtimes_may_have_one_directory_for_their_files(size: int, tmp_path: Path) -> None:
    with (
        Runtime(executors=1, memory_budget=size, spill=tmp_path) as one,
        Runtime(executors=1, memory_budget=size, spill=tmp_path) as other,
    ):
        for n in range(4):
            one.register(f"p{n}", shift(float(n), WIDTH))
            other.register(f"p{n}", shift(float(10 + n), WIDTH))
        for n in range(4):
            assert offset_of(one.predict(f"p{n}", DATA), DATA) == n
            assert offset_of(other.predict(f"p{n}", DATA), DATA) == 10 + n


def test_what_was_unregistered_is_forgotten_within_the_budget_too() -> None:
    with Runtime(executors=1, memory_budget=1 << 40, result_bytes=0) as runtime:
        for n in range(300):
            runtime.register("a", shift(float(n)))
            if n:
                runtime.unregister("a", n)
        assert len(runtime._memory._heap) < 100


def test_a_file_that_has_gone_is_that_requests_error(size: int, tmp_path: Path) -> None:
    with Runtime(executors=1, memory_budget=size, spill=tmp_path) as runtime:
        filled(runtime, 3)
        (lost,) = [each for each in runtime.endpoints.all() if each.name == "p0"]
        assert lost.residence.path is not None
        lost.residence.path.unlink()
        for _ in range(2):
            with pytest.raises(LostPlan, match="register 'p0' again"):
                runtime.predict("p0", DATA)
            with pytest.raises(LostPlan):
                runtime.submit("p0", DATA).result(30)
            with pytest.raises(LostPlan):
                runtime.submit("p0", DATA, engine="batch").result(30)
        assert offset_of(runtime.predict("p1", DATA), DATA) == 1.0
        assert offset_of(runtime.predict("p2", DATA), DATA) == 2.0


def test_a_file_that_was_replaced_is_not_believed(size: int, tmp_path: Path) -> None:
    path = tmp_path / "a.pretzel"
    shift(1.0, WIDTH).save(path)
    with Runtime(executors=1, memory_budget=size) as runtime:
        runtime.register("a", path)
        served = runtime.endpoints.find("a")
        for n in range(100):
            runtime.register("other", shift(float(n), WIDTH))
        assert served.plan is None
        shift(2.0, WIDTH).save(path)
        with pytest.raises(LostPlan, match="another program"):
            runtime.predict("a", DATA)


def test_where_nothing_can_be_written_plans_stay(size: int, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    with Runtime(executors=1, memory_budget=size, spill=blocked / "x") as runtime:
        filled(runtime, 3)
        stats = runtime.stats().memory
        assert stats.resident == 3
        assert stats.unwritable > 0
        assert offset_of(runtime.predict("p0", DATA), DATA) == 0.0


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_many_threads_on_more_plans_than_fit(size: int, kind: str, tmp_path: Path) -> None:
    store = MemoryStore() if kind == "memory" else FileStore(tmp_path, durable=False)
    with Runtime(store, executors=2, memory_budget=3 * size) as runtime:
        filled(runtime, 9)

        def ask(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for n in rng.integers(0, 9, 60):
                data = DATA if n % 2 else DATA[0]
                engine = (None, "inline", "batch")[n % 3]
                assert offset_of(runtime.predict(f"p{n}", data, engine=engine), data) == n

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(ask, range(4)))
        stats = runtime.stats().memory
        assert stats.resident < 9
        assert stats.cold_hits > 0
        assert all(each.residence.pins == 0 for each in runtime.endpoints.all())


def test_one_load_serves_all_who_wait(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime(executors=1, memory_budget=size) as runtime:
        filled(runtime, 2)
        loads: list[int] = []
        whole = runtime._memory._load
        ready = threading.Barrier(4)

        def load(served: object) -> object:
            loads.append(1)
            return whole(served)  # type: ignore[arg-type]

        monkeypatch.setattr(runtime._memory, "_load", load)

        def ask(_: int) -> float:
            ready.wait(30)
            return offset_of(runtime.predict("p0", DATA), DATA)

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(ask, range(4))) == [0.0] * 4
        assert len(loads) == 1


def test_a_directory_of_its_own_goes_with_the_runtime(size: int) -> None:
    for close in (True, False):
        runtime = Runtime(executors=1, memory_budget=size)
        filled(runtime, 3)
        directory = runtime._memory._spill.path
        assert any(directory.iterdir())
        if close:
            runtime.close()
        del runtime
        gc.collect()
        assert not directory.exists()


def test_large_plans_made_here_are_served_from_the_stores_files(tmp_path: Path) -> None:
    """What another process would map is what this one maps, and the file goes with the version."""
    rows = np.random.default_rng(0).normal(size=(200, 100))
    large = flour.vector("x", 100).linear(rows, np.zeros(200))
    store, data = FileStore(tmp_path / "store"), np.ones(100)
    expected = oven.bake(large).run(data[None])
    with Runtime(store, executors=1, spill=tmp_path / "spill") as runtime:
        runtime.register("large", large)
        runtime.register("small", shift(1.0))
        for served in runtime.endpoints.all():
            assert (served.residence.path is not None) is (served.name == "large")
        plan = runtime.endpoints.find("large").plan
        assert plan is not None
        kept = [store.get(item.digest) for item in plan.program.parameters()]
        assert any(one is other for one, other in zip(kept, plan.program.parameters(), strict=True))
        (found,) = runtime.predict("large", data).values()
        np.testing.assert_array_equal(found, *(value[0] for value in expected.values()))
        assert list((tmp_path / "spill").rglob("*.pretzel"))
        runtime.unregister("large")
        del served, plan
        gc.collect()
        assert not list((tmp_path / "spill").rglob("*.pretzel"))
        assert runtime.stats().memory.unwritable == 0


def test_plans_made_for_another_width_are_booked(size: int) -> None:
    """What comes to float32 data is one more plan; it counts, and goes with the first."""
    with Runtime(executors=1, memory_budget=20 * size) as runtime:
        filled(runtime, 2)
        before = runtime.stats().memory.used
        for _ in range(64):
            runtime.predict("p0", DATA.astype(np.float32))
        assert runtime.stats().memory.used >= before + size // 2
        runtime.unregister("p0")
        runtime.unregister("p1")
        assert runtime.stats().memory.used == 0
