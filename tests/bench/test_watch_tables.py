"""`bench watch-tables` finds faults in tables of a folder, and draws them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from bench.experiments.watch_tables import measured


def test_it_looks_at_tables_with_a_known_target(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    hours, age = rng.normal(40, 9, 4000), rng.normal(50, 12, 4000)
    city = rng.choice(["Graz", "Linz", "Wien"], 4000)
    frame = pd.DataFrame({"hours_per_week": hours, "age": age, "city": city})
    frame["who"] = [f"person {number}" for number in range(4000)]
    frame["income"] = np.where(hours + (city == "Graz") * 20 + 0.3 * age > 58, ">", "<")
    frame.to_csv(tmp_path / "people.csv", index=False)
    frame.drop(columns="income").to_csv(tmp_path / "other.csv", index=False)
    traced, alarms = measured(tmp_path, tmp_path)
    assert "people: % of 13 faults" in traced.name
    assert traced.met
    assert alarms.met
    assert "<svg" in (tmp_path / "watch-people.svg").read_text()
    assert not (tmp_path / "watch-other.svg").exists()
