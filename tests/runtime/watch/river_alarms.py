"""Writes river_alarms.json: where river's detectors alarm. Run it where river is installed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).with_suffix(".json")
_PARTS = ((0.2, 0.1, 700), (0.5, 0.1, 900), (0.45, 0.2, 1500), (5, 3, 500), (0.1, 0.01, 400))


def stream(seed: int) -> list[float]:
    """Scores whose mean and spread change; of odd seeds, whether they exceed a bound."""
    rng = np.random.default_rng(seed)
    found = np.concatenate([rng.normal(*part) for part in _PARTS])
    return [float(each > 0.3) if seed % 2 else float(each) for each in found]


def main() -> None:
    """Let river's detectors see the streams."""
    from river import drift  # type: ignore[import-not-found,unused-ignore]  # an oracle

    alarms: dict[str, list[list[int]]] = {}
    for name, kind in (("Adwin", drift.ADWIN), ("PageHinkley", drift.PageHinkley)):
        for seed in range(12):
            detector, found = kind(), []
            for place, score in enumerate(stream(seed)):
                detector.update(score)
                if detector.drift_detected:
                    found.append(place)
            alarms.setdefault(name, []).append(found)
    GOLDEN.write_text(json.dumps(alarms) + "\n")


if __name__ == "__main__":
    main()
