"""Seconds, joules and grams by endpoint, with counters of energy in a folder of our own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.snapshots import Family
from runtime.http.watch.metrics_energy import Energy, Packages, busy_seconds
from runtime.service.stats import VersionStats
from tests.runtime.http.client import Client

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
