"""Figures: what is counted, how it is written, sums over processes, and energy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.snapshots import BOUNDS, Distribution, Family, from_json, merge, to_json
from runtime.http.watch.metrics import Meters
from runtime.http.watch.metrics_energy import Energy, Packages, busy_seconds
from runtime.http.watch.metrics_text import exposition
from runtime.http.wire.messages import Request, Response
from runtime.service.stats import VersionStats
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import filled, tensor
from tests.runtime.http.exposition import Read, read
from tests.runtime.plans import shift

ROW = {"inputs": [tensor("x", "FP64", [1, 4], [1.0, 2.0, 3.0, 4.0])]}


def sample(families: dict[str, Read], name: str, **labels: str) -> float:
    end = ""
    for known in ("_bucket", "_sum", "_count"):
        if name not in families and name.endswith(known):
            name, end = name.removesuffix(known), known
    return families[name].samples[end, frozenset(labels.items())]


def scraped(port: int) -> dict[str, Read]:
    answer = Client(port).get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(answer.body.decode())


class TestCounting:
    def test_rows_that_each_step_of_a_graph_computed(self) -> None:
        x = flour.vector("x", 400)

        async def load(value: float) -> float:
            return value

        quick = flour.plan(x.linear([[1.0] * 400], [0.0]))(x)[0]
        dear = flour.fetch(load, x[1], gives=float)
        graph = flour.outputs(y=flour.where(x[0] > 0, quick, dear))
        with Runtime(executors=1) as runtime:
            runtime.register("choice", graph, background=False)
            with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
                rows = [[float(sign), *[0.0] * 399] for sign in (1, 1, 1, -1)]
                assert Client(server.port).post("/predict/choice", rows).status == 200
                families = scraped(server.port)
        rows_of = families["pretzel_graph_step_rows_total"].samples
        ((_, spared),) = families["pretzel_graph_fetch_spared_rows_total"].samples.items()
        assert spared == 3
        by_title = {dict(labels)["title"]: rows for (_, labels), rows in rows_of.items()}
        assert by_title["fetch load"] == 1
        assert [rows for title, rows in by_title.items() if "Linear" in title] == [3]

    def test_requests_and_rows(self) -> None:
        with Runtime(executors=1) as runtime:
            filled(runtime)
            with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
                client = Client(server.port)
                for _ in range(3):
                    client.post("/v2/models/iris/infer", ROW)
                client.post("/predict/iris", [[1, 2, 3, 4], [5, 6, 7, 8]])
                client.post("/v2/models/iris/infer", b"{")
                client.get("/v2/models/nobody")
                client.get("/wp-login.php")
                found = scraped(server.port)
        here = {"route": "/v2/models/{model}/infer", "model": "iris", "version": "1"}
        total = "pretzel_http_requests_total"
        assert sample(found, total, method="POST", status="200", **here) == 3
        assert sample(found, total, method="POST", status="400", **here) == 1
        nobody = {"route": "/v2/models/{model}", "model": "", "version": ""}
        assert sample(found, total, method="GET", status="404", **nobody) == 1
        nowhere = {"route": "other", "model": "", "version": ""}
        assert sample(found, total, method="", status="404", **nowhere) == 1
        took = "pretzel_http_request_duration_seconds"
        assert sample(found, f"{took}_count", **here) == 4
        assert 0 < sample(found, f"{took}_sum", **here) < 60
        version = {"model": "iris", "version": "1"}
        assert sample(found, "pretzel_calls_total", **version) == 4
        assert sample(found, "pretzel_call_failures_total", **version) == 1
        assert sample(found, "pretzel_rows_total", **version) == 5
        runs = [
            sample(found, "pretzel_engine_calls_total", engine=engine, **version)
            for engine in ("inline", "batch")
        ]
        assert sum(runs) == 4

    def test_memory_of_versions_that_share(self) -> None:
        with Runtime(executors=1) as runtime:
            for name in ("one", "two"):
                runtime.register(name, shift(1.0))
            runtime.register("three", shift(2.0))
            with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
                found = scraped(server.port)

        def held(model: str, kind: str) -> float:
            return sample(found, "pretzel_parameter_bytes", model=model, version="1", kind=kind)

        assert held("one", "own") == 0
        assert held("one", "shared") == held("two", "shared") > 0
        assert held("three", "own") > 0
        unique = sample(found, "pretzel_unique_parameter_bytes")
        assert unique == held("one", "shared") + held("three", "own")
        copies = sample(found, "pretzel_unshared_parameter_bytes")
        assert copies == unique + held("one", "shared")
        assert sample(found, "pretzel_versions") == 3
        assert sample(found, "pretzel_stages") < sample(found, "pretzel_stage_uses")
        assert sample(found, "pretzel_process_resident_bytes") > 10 << 20
        assert sample(found, "pretzel_process_cpu_seconds_total") > 0

    def test_a_budget_that_drops_plans(self) -> None:
        with Runtime(executors=1, memory_budget=1) as runtime:
            for number in range(3):
                runtime.register(f"m{number}", shift(float(number)))
            for number in range(3):
                runtime.predict(f"m{number}", [1.0, 2.0, 3.0, 4.0])
            with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
                found = scraped(server.port)
        assert sample(found, "pretzel_dropped_plans") == 2
        assert sample(found, "pretzel_resident_plans") == 1
        assert sample(found, "pretzel_evictions_total") >= 2
        assert sample(found, "pretzel_cold_hits_total") >= 2
        assert sample(found, "pretzel_cold_hit_seconds_total") > 0
        assert sample(found, "pretzel_memory_budget_bytes") == 1

    def test_caches_and_queues(self) -> None:
        settings = ServerSettings(port=0, cache_bytes=1 << 16)
        with Runtime(executors=1) as runtime:
            filled(runtime)
            runtime.predict("shift", [[1.0, 2.0, 3.0, 4.0]] * 9, engine="batch")
            with Server(runtime, settings) as server:
                for _ in range(5):
                    Client(server.port).post("/v2/models/iris/infer", ROW)
                found = scraped(server.port)
        lookups = "pretzel_cache_lookups_total"
        assert sample(found, lookups, model="iris", result="hit") == 4
        assert sample(found, lookups, model="iris", result="miss") == 1
        assert sample(found, "pretzel_cache_bytes", model="iris") > 0
        assert sample(found, "pretzel_batched_requests_total") == 0
        assert sample(found, "pretzel_jobs_total", state="done") == 1
        assert sample(found, "pretzel_queued_jobs", lane="shared") == 0
        assert sample(found, "pretzel_executors", lane="shared") == 1

    def test_versions_that_are_gone_are_gone(self) -> None:
        with Runtime(executors=1) as runtime:
            runtime.register("old", shift(1.0))
            with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
                client = Client(server.port)
                for _ in range(2):
                    client.post("/predict/old", [1, 2, 3, 4])
                assert b'model="old"' in client.get("/metrics").body
                runtime.unregister("old")
                assert b'model="old"' not in client.get("/metrics").body
                runtime.register("old", shift(2.0), version="1")
                client.post("/predict/old", [1, 2, 3, 4])
                found = scraped(server.port)
        known = {"route": "/predict/{model}", "model": "old", "version": "1"}
        assert sample(found, "pretzel_http_request_duration_seconds_count", **known) == 1

    def test_what_clients_make_up_makes_no_series(self) -> None:
        meters = Meters(lambda _method, _path: None)
        for number in range(10_000):
            request = Request(f"M{number % 7}", f"/{number}", "", {}, b"")
            meters(request, Response(status=404), 0.001)
        (total, _) = meters.families()
        assert [(dict(labels)["route"], count) for labels, count in total.samples] == [
            ("other", 10_000)
        ]

    def test_off_costs_nothing(self) -> None:
        with Runtime(executors=1) as runtime:
            server = Server(runtime, ServerSettings(port=0, metrics=False, status_page=False))
            assert not server.service.observers
            with server:
                for path in ("/metrics", "/", "/explain/any"):
                    assert Client(server.port).get(path).status == 404


class TestTriton:
    def test_other_names_of_the_same(self) -> None:
        with Runtime(executors=1) as runtime:
            filled(runtime)
            with Server(runtime, ServerSettings(port=0, triton_metrics=True)) as server:
                for _ in range(2):
                    Client(server.port).post("/v2/models/iris/infer", ROW)
                Client(server.port).post("/v2/models/iris/infer", {"inputs": []})
                found = scraped(server.port)
        version = {"model": "iris", "version": "1"}
        assert sample(found, "nv_inference_request_success", **version) == 2
        assert sample(found, "nv_inference_request_failure", **version, reason="OTHER") == 1
        assert sample(found, "nv_inference_count", **version) == 2
        assert sample(found, "nv_inference_exec_count", **version) == 2
        seconds = sample(found, "pretzel_call_seconds_total", **version)
        assert sample(found, "nv_inference_request_duration_us", **version) == int(seconds * 1e6)

    def test_not_unless_asked_for(self) -> None:
        with (
            Runtime(executors=1) as runtime,
            Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server,
        ):
            assert b"nv_" not in Client(server.port).get("/metrics").body


class Neighbours:
    """Peers that answer with what they are given."""

    number, count = 0, 3

    def __init__(self, answers: dict[int, Any]) -> None:
        self.answers = answers
        self.offered: dict[str, Callable[[], object]] = {}

    def offer(self, kind: str, provider: Callable[[], object]) -> None:
        self.offered[kind] = provider

    async def snapshot(self, kind: str, timeout: float = 0.2) -> dict[int, Any]:
        await asyncio.sleep(0)
        return self.answers

    async def settled(self) -> None:
        await asyncio.sleep(0)

    async def put_level(self, level: str) -> None:
        await asyncio.sleep(0)

    async def judge(self, what: str, body: Mapping[str, Any]) -> Any:
        await asyncio.sleep(0)
        return []


class TestSeveralProcesses:
    def test_one_answers_for_all(self, caplog: pytest.LogCaptureFixture) -> None:
        peers = Neighbours({})
        with Runtime(executors=1) as runtime:
            filled(runtime)
            with Server(runtime, ServerSettings(port=0, max_unread=0.0), peers=peers) as server:
                for _ in range(3):
                    Client(server.port).post("/v2/models/iris/infer", ROW)
                other = json.loads(json.dumps(peers.offered["metrics"]()))
                peers.answers = {1: other, 2: {"this": "is none"}, 3: "[1]"}
                found = scraped(server.port)
        assert sample(found, "pretzel_workers") == 2
        assert sample(found, "pretzel_calls_total", model="iris", version="1") == 6
        where = {"route": "/v2/models/{model}/infer", "model": "iris", "version": "1"}
        assert sample(found, "pretzel_http_request_duration_seconds_count", **where) == 6
        assert sample(found, "pretzel_versions") == 8
        for number in (2, 3):
            assert f"the metrics of worker {number} cannot be read" in caplog.text

    def test_merge(self) -> None:
        def made(count: int, started: float, slow: list[float]) -> list[Family]:
            took = Distribution()
            for each in slow:
                took.record(each)
            return [
                Family("a_total", "counter", "A.", [((("x", "1"),), count)]),
                Family("b", "gauge", "B.", [((), started)], "min"),
                Family("c", "gauge", "C.", [((), started)], "max"),
                Family("d", "histogram", "D.", [((), took)]),
            ]

        one, two = made(2, 10.0, [0.001, 20.0]), made(3, 7.0, [0.001])
        two[0].add(9, x="2")
        merged = {family.name: dict(family.samples) for family in merge([one, two])}
        assert merged["a_total"] == {(("x", "1"),): 5, (("x", "2"),): 9}
        assert (merged["b"][()], merged["c"][()]) == (7.0, 10.0)
        took = merged["d"][()]
        assert isinstance(took, Distribution)
        assert took.count == 3
        assert took.total == pytest.approx(20.002)
        assert one == made(2, 10.0, [0.001, 20.0]), "what was given is as it was"
        assert merge([]) == []

    @given(st.lists(st.lists(st.floats(0, 30)), min_size=1, max_size=4))
    def test_a_sum_is_what_one_would_have_counted(self, processes: list[list[float]]) -> None:
        def counted(durations: list[float]) -> list[Family]:
            took = Distribution()
            for each in durations:
                took.record(each)
            return [Family("d", "histogram", "D.", [((), took)])]

        merged = merge([from_json(to_json(counted(each))) for each in processes])
        whole = counted([each for part in processes for each in part])
        (_, ours), (_, theirs) = merged[0].samples[0], whole[0].samples[0]
        assert isinstance(ours, Distribution)
        assert isinstance(theirs, Distribution)
        assert ours.counts == theirs.counts
        assert ours.total == pytest.approx(theirs.total)


class TestDurations:
    def test_bounds_are_within(self) -> None:
        took = Distribution()
        for bound in BOUNDS:
            took.record(bound)
        assert took.counts == [1] * len(BOUNDS) + [0]
        took.record(11.0)
        assert took.counts[-1] == 1

    @given(st.lists(st.floats(0, 9.99), min_size=1), st.sampled_from([0.1, 0.5, 0.9, 0.99]))
    def test_quantiles_are_in_the_right_bucket(self, durations: list[float], share: float) -> None:
        took = Distribution()
        for each in durations:
            took.record(each)
        rank = max(0, -int(-share * len(durations) // 1) - 1)
        true = sorted(durations)[rank]
        low = max((bound for bound in BOUNDS if bound < true), default=0.0)
        high = min(bound for bound in BOUNDS if bound >= true)
        guess = took.quantile(share)
        assert guess is not None
        assert low <= guess <= high

    def test_no_durations_have_no_quantile(self) -> None:
        assert Distribution().quantile(0.5) is None

    def test_the_last_bucket_has_no_end(self) -> None:
        took = Distribution()
        took.record(99.0)
        assert took.quantile(0.5) == BOUNDS[-1]


class TestText:
    @given(st.text(), st.floats(allow_nan=False))
    def test_any_label_and_any_number_can_be_read_back(self, text: str, value: float) -> None:
        plain = text.encode("utf-8", "replace").decode()
        family = Family("a_b", "gauge", "Says\nthis \\ that.", [((("label", text),), value)])
        found = read(exposition([family]).decode())["a_b"]
        assert found.samples == {("", frozenset({("label", plain)})): value}

    def test_what_is_no_number(self) -> None:
        values = [float("nan"), float("inf"), float("-inf"), 3, 2.5, 1e300]
        family = Family("a", "gauge", "A.")
        for place, value in enumerate(values):
            family.add(value, n=str(place))
        lines = exposition([family]).decode().splitlines()[2:]
        assert [line.split()[1] for line in lines] == ["NaN", "+Inf", "-Inf", "3", "2.5", "1e+300"]

    def test_families_without_samples_are_left_out(self) -> None:
        assert exposition([Family("a", "gauge", "A.")]) == b"\n"


LIMIT = 1_000_000_000


def written(folder: Path, *counters: int) -> Packages:
    """Packages with these counters, and a part of the first one."""
    for number, counter in enumerate(counters):
        zone(folder / f"intel-rapl:{number}", counter)
    zone(folder / "intel-rapl:0:0", 77, "core")
    zone(folder / "intel-rapl:9", 77, "psys")
    return Packages(folder)


def zone(folder: Path, counter: int, name: str = "package-0") -> None:
    folder.mkdir(exist_ok=True)
    (folder / "name").write_text(name + "\n")
    (folder / "energy_uj").write_text(f"{counter}\n")
    (folder / "max_energy_range_uj").write_text(f"{LIMIT}\n")


@pytest.fixture
def stats() -> tuple[VersionStats, ...]:
    with Runtime() as runtime:
        for name in ("one", "two"):
            runtime.register(name, flour.vector("x", 2).scale([1.0, 2.0], [2.0, 4.0]))
        return runtime.stats().versions


def spent(stats: tuple[VersionStats, ...], *seconds: float) -> list[VersionStats]:
    return [s._replace(compute_seconds=t) for s, t in zip(stats, seconds, strict=True)]


def values(families: list[Family]) -> dict[str, list[float]]:
    return {
        each.name: [value for _, value in each.samples if isinstance(value, float | int)]
        for each in families
    }


def test_packages_count_on_over_their_limit(tmp_path: Path) -> None:
    packages = written(tmp_path, LIMIT - 3_000_000, 0)
    assert packages.readable
    zone(tmp_path / "intel-rapl:0", 2_000_000)
    zone(tmp_path / "intel-rapl:1", 1_000_000)
    assert packages.joules() == pytest.approx(6.0)
    assert packages.joules() == 0
    assert not Packages(tmp_path / "none").readable


def test_joules_are_divided_by_busy_seconds(
    tmp_path: Path, stats: tuple[VersionStats, ...]
) -> None:
    busy = iter((100.0, 110.0, 120.0))
    packages = written(tmp_path, 0)
    energy = Energy(carbon=360.0, packages=packages, busy=lambda: next(busy))
    zone(tmp_path / "intel-rapl:0", 50_000_000)
    found = values(energy.families(spent(stats, 2.0, 1.0)))
    assert found["pretzel_compute_seconds_total"] == [2.0, 1.0]
    assert found["pretzel_energy_joules_total"] == pytest.approx([10.0, 5.0])
    assert found["pretzel_carbon_grams_total"] == pytest.approx([1e-3, 5e-4])
    assert found["pretzel_machine_energy_joules_total"] == pytest.approx([50.0])
    zone(tmp_path / "intel-rapl:0", 60_000_000)
    found = values(energy.families(spent(stats, 2.0, 2.0)))
    assert found["pretzel_energy_joules_total"] == pytest.approx([10.0, 6.0])


def test_a_setting_counts_where_nothing_can_be_read(
    tmp_path: Path, stats: tuple[VersionStats, ...]
) -> None:
    nothing = Packages(tmp_path)
    found = values(Energy(watts=8.0, packages=nothing).families(spent(stats, 2.0, 0.5)))
    assert found["pretzel_energy_joules_total"] == [16.0, 4.0]
    found = values(Energy(packages=nothing).families(spent(stats, 2.0, 0.5)))
    assert [*found] == ["pretzel_compute_seconds_total"]


def test_busy_seconds(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 9999 7 20 30 5 0 0\ncpu0 1 2 3\n")
    assert busy_seconds(stat) == pytest.approx(2.0, rel=0.01)
    assert busy_seconds(tmp_path / "none") == 0


def test_seconds_of_computing_are_counted() -> None:
    rows = np.random.default_rng(0).normal(size=(200_000, 8))
    with Runtime() as runtime:
        for name in ("busy", "idle"):
            program = flour.vector("x", 8).scale(np.zeros(8), np.ones(8))
            runtime.register(name, program, background=False)
        for _ in range(20):
            runtime.predict("busy", rows, engine="batch")
        found = {each.name: each.compute_seconds for each in runtime.stats().versions}
        assert found["idle"] == 0
        assert 1e-4 < found["busy"] < 60
        settings = ServerSettings(port=0, core_watts=10.0, carbon_grams=400.0)
        with Server(runtime, settings) as server:
            text = Client(server.port).get("/metrics").body.decode()
            assert "computing" in Client(server.port).get("/").body.decode()
    assert 'pretzel_compute_seconds_total{model="busy",version="1"}' in text
    assert 'pretzel_energy_joules_total{model="busy",version="1"}' in text
    assert 'pretzel_carbon_grams_total{model="busy",version="1"}' in text
