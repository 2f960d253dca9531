"""Plans in pickles: as the file that they would be saved as, and nothing else."""

from __future__ import annotations

import copy
import io
import pickle
import pickletools
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import flour
import oven
import runtime.bulk as pretzel
from flour.core.errors import FlourError
from objectstore import StoreError
from tests.house import ROOT
from tests.oven.plans.test_saved import baked, same
from tests.oven.programs import PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("exact", [False, True])
def test_what_comes_out_is_the_plan(name: str, exact: bool) -> None:  # noqa: FBT001 (a parameter)
    plan, data = baked(name, exact=exact, background=False)
    again = pickle.loads(pickle.dumps(plan))
    assert (again.exact, again.digest) == (plan.exact, plan.digest)
    same(again.run(data), plan.run(data))
    assert pickle.loads(pickle.dumps(again)).digest == plan.digest


def test_a_pickle_names_one_function_of_ours() -> None:
    raw = pickle.dumps(baked(next(iter(PROGRAMS)))[0])
    known = {"GLOBAL", "SHORT_BINUNICODE"}
    named = [arg for op, arg, _ in pickletools.genops(raw) if op.name in known]
    assert named == ["oven.plans.saved", "from_bytes"]


def test_damage_is_found_or_changes_nothing() -> None:
    plan = oven.bake(flour.vector("x", 500).linear([np.arange(500.0)], [0.5])).wait()
    raw, rows = pickle.dumps(plan), np.ones((2, 500))
    for place in range(200, len(raw) - 100, len(raw) // 9):
        with suppress(FlourError, StoreError):
            again = pickle.loads(raw[:place] + bytes([raw[place] ^ 255]) + raw[place + 1 :])
            same(again.run(rows), plan.run(rows))
    with pytest.raises(StoreError):
        pickle.loads(raw[:300] + bytes([raw[300] ^ 255]) + raw[301:])


def test_copies_are_the_plan_itself() -> None:
    plan, _ = baked(next(iter(PROGRAMS)))
    assert copy.copy(plan) is plan
    assert copy.deepcopy({"plans": [plan]})["plans"][0] is plan


def test_another_process_answers_with_the_same_bits(tmp_path: Path) -> None:
    plan, data = baked("linear" if "linear" in PROGRAMS else next(iter(PROGRAMS)))
    path = tmp_path / "both.pickle"
    path.write_bytes(pickle.dumps((plan, data)))
    code = f"import pickle; p, d = pickle.load(open({str(path)!r}, 'rb'));"
    code += f"pickle.dump(p.run(d), open({str(path)!r}, 'wb'))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    same(pickle.loads(path.read_bytes()), plan.wait().run(data))


def test_expressions_of_polars_are_serialized() -> None:
    plan = oven.bake(flour.scalar("a").plus(flour.scalar("b")).named("total"))
    frame = pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    made = pretzel.polars.predict(plan, outputs="total")
    again = pl.Expr.deserialize(io.BytesIO(made.meta.serialize()))
    assert frame.select(again).equals(frame.select(made))
    lazy = frame.lazy().with_columns(made)
    assert pl.LazyFrame.deserialize(io.BytesIO(lazy.serialize())).collect().equals(lazy.collect())
