"""Plans of programs that the machine has baked before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import joblib
import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from oven.explain import explain
from oven.plans import program_image
from runtime import Runtime
from tests.house import run_python

RNG = np.random.default_rng(11)
ROWS = RNG.normal(size=(60, 3))
TARGET = (ROWS[:, 0] > ROWS[:, 1]).astype(int)
TEXTS = [f"{'good' if each else 'bad'} day {n % 7}" for n, each in enumerate(TARGET)]

_BAKED = """
import json, sys
import joblib, flour, oven
estimator, rows = joblib.load(sys.argv[1])
plan = oven.bake(flour.from_sklearn(estimator)).wait()
known = not plan.program.in_memory
answers = {name: value.tolist() for name, value in plan.run(rows).items()}
compiler = sorted({"llvmlite.binding", "numba"} & set(sys.modules))
print(json.dumps([known, answers, compiler, plan.digest == plan.flow.digest]))
"""


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_image, "KEPT", [True])


def models() -> dict[str, tuple[Any, Any]]:
    """Estimators that no earlier run has fitted, by name, and rows for them."""
    rows, target = ROWS + RNG.normal(size=3) + uuid4().int % 1000, TARGET
    words = [f"{text} {uuid4().hex[:6]}" for text in TEXTS]
    return {
        "linear": (make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, target), rows),
        "trees": (GradientBoostingClassifier(n_estimators=5).fit(rows, target), rows),
        "texts": (make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(words, target), words),
    }


@pytest.mark.rules
@pytest.mark.parametrize("name", ["linear", "trees", "texts"])
@pytest.mark.parametrize("exact", [False, True])
def test_the_second_plan_is_the_first(name: str, exact: bool) -> None:  # noqa: FBT001 (a case)
    fitted, rows = models()[name]
    first = oven.bake(flour.from_sklearn(fitted), exact=exact)
    again = oven.bake(flour.from_sklearn(fitted), exact=exact)
    assert first.program.in_memory
    assert not again.program.in_memory
    for data in (rows, rows[:1]):
        got, want = again.run(data), first.run(data)
        assert got.keys() == want.keys()
        assert all(value.tobytes() == want[key].tobytes() for key, value in got.items())
    assert (again.inputs, again.outputs, again.classes) == (
        first.inputs,
        first.outputs,
        first.classes,
    )
    assert (again.digest, again.program.node_digests) == (first.digest, first.program.node_digests)
    assert (again.program.stage_kinds, again.code.row_work) == (
        first.program.stage_kinds,
        first.code.row_work,
    )
    # Last: these make the program.
    assert again.program.optimised.digest == first.program.optimised.digest


@pytest.mark.rules
@pytest.mark.once
def test_the_next_process_neither_rewrites_nor_compiles(tmp_path: Path) -> None:
    for name, (fitted, rows) in models().items():
        joblib.dump((fitted, rows), tmp_path / name)
        first, second = (json.loads(run_python(_BAKED, str(tmp_path / name))) for _ in range(2))
        assert (first[0], second[0]) == (False, True), name
        assert first[1] == second[1], name
        assert second[2:] == [[], True], name


@pytest.mark.rules
def test_others_are_baked(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, _ = models()["linear"]
    flow = flour.from_sklearn(fitted)
    oven.bake(flow)
    assert not oven.bake(flow).program.in_memory
    assert oven.bake(flow, exact=True).program.in_memory
    assert oven.bake(flow, on_missing="answer").program.in_memory
    assert oven.bake(flow.retype(X=flour.Vector(3, "float32"))).program.in_memory
    monkeypatch.setenv("PRETZEL_WITHOUT", "affine_into_linear")
    assert "Subtract" in explain(oven.bake(flow), "optimised")


@pytest.mark.rules
def test_a_plan_whose_code_has_gone_is_baked(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, rows = models()["linear"]
    want = oven.bake(flour.from_sklearn(fitted)).run(rows)

    def gone(*_: object) -> None:
        raise LookupError("no such code")

    monkeypatch.setattr("oven.plans.image.PlanImage.restore", gone)
    plan = oven.bake(flour.from_sklearn(fitted))
    assert plan.program.in_memory
    assert plan.run(rows)["label"].tolist() == want["label"].tolist()


@pytest.mark.rules
def test_what_is_made_of_such_a_plan(tmp_path: Path) -> None:
    """Data of another width, a file, a runtime, and lines of the program it was asked for in."""
    fitted, rows = models()["linear"]
    oven.bake(flour.from_sklearn(fitted))
    plan = oven.bake(flour.from_sklearn(fitted))
    want = fitted.predict_proba(rows)
    with Runtime(executors=1) as runtime:
        runtime.register("m", plan)
        np.testing.assert_allclose(runtime.predict("m", rows)["probabilities"], want, atol=1e-12)
    assert not plan.program.in_memory
    assert plan.program.resident() >= {
        each for item in plan.program.held for each in item.op.parameters()
    }
    assert plan.program.held
    single = plan.run(rows.astype(np.float32))["probabilities"]
    np.testing.assert_allclose(single, want, atol=2e-3)
    plan.save(tmp_path / "a.plan")
    loaded = oven.load(tmp_path / "a.plan").run(rows)["probabilities"]
    np.testing.assert_allclose(loaded, want, atol=1e-12)
    assert Path(__file__).name in explain(plan, "logical")
