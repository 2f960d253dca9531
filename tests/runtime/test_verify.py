"""Verification replays rows in every form, and says in which one they are answered otherwise."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from sklearn.impute import KNNImputer
from sklearn.linear_model import LinearRegression, LogisticRegression

import flour
import oven
from oven import Plan
from runtime.errors import Unfaithful
from runtime.verify import verify, verify_answers
from tests.forms import frame_of

FRAME = frame_of(("int64", "float64"), 20)
ORIGINAL = LinearRegression().fit(FRAME, FRAME.to_numpy(np.float64) @ [100.0, 1.0])


def plan() -> Plan:
    return oven.bake(flour.from_sklearn(ORIGINAL, FRAME))


def test_frames_and_arrays_pass() -> None:
    verify(plan(), ORIGINAL, FRAME)
    rows = FRAME.to_numpy(np.float64)
    nameless = LinearRegression().fit(rows, rows @ [100.0, 1.0])
    verify(oven.bake(flour.from_sklearn(nameless, rows)), nameless, rows)


def form_of(data: Any) -> str:
    """What verification calls this form."""
    first = next(iter(data.values() if isinstance(data, dict) else data))
    if isinstance(data, dict):
        return "a dict of lists" if isinstance(first, list) else "a dict"
    inner: dict[type, str] = {dict: "a list of dicts", list: "a list of lists"}
    return inner.get(type(first), "a list")


@pytest.mark.parametrize(
    "form", ["a dict of lists", "a list of dicts", "a list of lists", "a dict", "a list"]
)
def test_a_form_that_is_answered_otherwise_is_named(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    whole = Plan.entry

    def entry(self: Plan) -> Any:
        answer = whole(self)
        return lambda data: tuple(part + (form_of(data) == form) for part in answer(data))

    monkeypatch.setattr(Plan, "entry", entry)
    with pytest.raises(Unfaithful, match=f"otherwise when rows come as {form}\\s"):
        verify(plan(), ORIGINAL, FRAME)


def test_a_model_that_chooses_among_equals_is_named() -> None:
    rows = np.random.default_rng(0).integers(0, 3, (40, 3)) * 1.0
    holes = np.where(np.eye(3, dtype=bool)[np.arange(40) % 3], np.nan, rows)
    made = oven.bake(flour.from_sklearn(KNNImputer().fit(rows)))
    with pytest.raises(Unfaithful, match="rows that are equally near") as caught:
        verify(made, KNNImputer().fit(rows[::-1] + 1.0), holes)
    assert "report this bug of the import" in str(caught.value)


def test_float32_answers_may_differ_in_their_last_places() -> None:
    rows = np.random.default_rng(0).normal(size=(120, 6)).astype(np.float32)
    model = LogisticRegression().fit(rows, np.digitize(rows[:, 0], [-0.5, 0.5]))
    verify(oven.bake(flour.from_sklearn(model, rows)), model, rows)


def test_answers_made_of_float32_may_differ_in_their_last_places() -> None:
    x = flour.vector("X", 2)
    rows = np.arange(8.0).reshape(4, 2)
    for narrow in (x.cast("float32").cast("float64"), x):
        made = oven.bake(flour.outputs(value=narrow.sum()))
        answers = {"value": made.run(rows)["value"] * (1 + 4e-7)}
        if narrow is x:
            with pytest.raises(Unfaithful):
                verify_answers(made, answers, rows, "the original")
        else:
            verify_answers(made, answers, rows, "the original")


def test_all_forms_are_compared_by_native_code_that_is_still_compiled() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 40))
    model = LogisticRegression().fit(rows, np.digitize(rows[:, 0], [-0.5, 0.5]))
    with ThreadPoolExecutor(1) as thread:
        made = oven.bake(flour.from_sklearn(model), background=thread)
        verify(made, model, rows)
        assert made.code.tier == 1
