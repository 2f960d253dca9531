"""Drift with several workers is that of all their rows, as one process would compute it."""

from __future__ import annotations

import time
from http.client import HTTPConnection
from json import dumps
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

import flour
import oven
from runtime.watch import Reference, drift, training_of
from tests.house import until
from tests.runtime.workers.house import Served, serving

rng = np.random.default_rng(0)
USUAL = {"age": rng.normal(40, 10, 2000), "city": rng.choice(["Graz", "Oslo"], 2000)}
BLOCK = 200
WARM: dict[str, list[Any]] = {"age": [40.0] * BLOCK, "city": ["Graz"] * BLOCK}
ROWS = 'pretzel_drift_rows{column="age"}'
NOW = {"age": rng.normal(48, 12, 8000), "city": rng.choice(["Graz", "Oslo", "Rome"], 8000)}


def shown(served: Served) -> dict[str, float]:
    with urlopen(f"{served.url}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    pairs = (each.rsplit(" ", 1) for each in lines if each.startswith("pretzel_drift_"))
    return {name.replace('model="m",version="1",', ""): float(value) for name, value in pairs}


def ask(served: Served, rows: dict[str, Any]) -> None:
    """A block, all rows of which are looked at, on a new connection: any worker may have it."""
    body = [dict(zip(rows, each, strict=True)) for each in zip(*rows.values(), strict=True)]
    connection = HTTPConnection("127.0.0.1", served.port, timeout=60)
    try:
        connection.request("POST", "/predict/m", dumps(body))
        assert connection.getresponse().status == 200
    finally:
        connection.close()


def watched(served: Served) -> float:
    """Ask until each worker watches, which begins soon after it serves: how many were counted."""

    def all_counted() -> bool:
        before = shown(served).get(ROWS, 0.0)
        for _ in range(8):
            ask(served, WARM)
        time.sleep(1.0)
        return shown(served).get(ROWS) == before + 8 * BLOCK

    until(all_counted, "not every worker watches")
    return shown(served)[ROWS]


def test_the_counts_of_all_workers_are_compared(tmp_path: Path) -> None:
    row = flour.record(age=float, city=flour.Category())
    plan = oven.bake(flour.outputs(score=row["age"] * 2.0, city=row["city"]))
    (tmp_path / "m" / "1").mkdir(parents=True)
    plan.save(tmp_path / "m" / "1" / "model.pretzel", training=training_of(plan, USUAL))
    (tmp_path / "m" / "notes.toml").write_text("[watch]\ndrift = true\n")
    with serving(tmp_path, 2, "--poll", "0.05") as served:
        warm = watched(served)
        for start in range(0, len(NOW["age"]), BLOCK):
            ask(served, {name: each[start : start + BLOCK] for name, each in NOW.items()})
        count = warm + len(NOW["age"])
        until(lambda: shown(served)[ROWS] == count, "not all rows are counted")
        found = [shown(served) for _ in range(4)]
    assert all(each == found[0] for each in found)  # whichever worker is asked
    for column, usual in USUAL.items():
        kind = object if column == "city" else float
        (sketch,) = Reference.of({column: usual.astype(kind)}).columns.values()
        values = [*NOW[column], *WARM[column] * (int(warm) // BLOCK)]
        expected = drift(column, sketch, *sketch.counted(np.array(values, kind)))
        assert expected.psi > 0.05
        for figure in ("psi", "ks", "missing", "unseen", "rows"):
            known = found[0].get(f'pretzel_drift_{figure}{{column="{column}"}}')
            assert known == pytest.approx(getattr(expected, figure)), (column, figure)
