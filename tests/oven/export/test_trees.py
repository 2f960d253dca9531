"""Trees in exports: small nodes take every row the way that the plan's own do."""

from __future__ import annotations

from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest

from flour.ops.trees import lean
from flour.ops.trees.walk import Walk
from objectstore import Blob
from oven.export import export, image, targets
from tests.oven.export import models

pytestmark = [pytest.mark.once, pytest.mark.apart]


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("small", [32, 4])
def test_rows_at_thresholds(name: str, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are at, above and below, infinite or missing, for nodes of four bytes and of eight."""
    monkeypatch.setattr(lean, "SMALL_BITS", small)
    plan = models.fitted(name).plan
    ops = [item.op for item in plan.flow.nodes() if isinstance(item.op, Walk)]
    limits = np.concatenate([op.threshold.array for op in ops])
    rng = np.random.default_rng(4)
    rows = rng.choice([*limits, np.inf, -np.inf, np.nan, 0.0, -0.0], (2000, 6))
    rows = np.nextafter(rows, rng.choice([-np.inf, np.inf, 0], rows.shape))
    if name == "xgboost":  # it does not take infinity
        rows = np.nan_to_num(rows, nan=np.nan, posinf=9.0, neginf=-9.0)
    made, output = image.portable_plan(plan), list(plan.outputs)[-1]
    assert np.allclose(made.run(rows)[output], plan.run(rows)[output], rtol=1e-12)
    held = [each.array for each in made.program.parameters() if isinstance(each, Blob)]
    tables = {str(array.dtype) for array in held if array.size > 500}
    assert ("uint32" in tables) == (small == 32)


@pytest.mark.parametrize("name", ["lightgbm", "forest"])
def test_blocks(name: str, tmp_path: Path) -> None:
    """Code for blocks of rows, and for more processors, has the same bits and takes its place."""
    if which("cc") is None:
        pytest.skip("there is no C compiler")
    plan, rows = models.fitted(name)
    here = targets.this_machine().startswith("x86_64")
    ways: list[Any] = [{}, {"blocks": True}]
    ways += [{"blocks": True, "cpus": ["x86-64-v3", "x86-64-v4"]}] * here
    made = [export(plan, tmp_path / str(k), rows=rows, **way) for k, way in enumerate(ways)]
    sizes = [each.files[0].stat().st_size for each in made]
    assert [each.rows for each in made] == [models.COUNT] * len(ways)
    assert sizes == sorted(set(sizes))
