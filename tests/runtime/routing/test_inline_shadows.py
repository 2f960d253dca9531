"""Shadows asked together with their champion: its answers keep every bit, whatever the shadow."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

import flour
from flour import Flow
from runtime import Runtime
from runtime.routing.pairs import bits
from tests.house import until
from tests.runtime.plans import WORDS, documents
from tests.runtime.routing.seen import Seen

TEXTS = documents(60, 40)


def text_flow(seed: int) -> Flow:
    """Frequencies of words as shares of a text's length, and a linear score of the seed's own."""
    labels = np.random.default_rng(seed).integers(0, 2, len(TEXTS))
    words = TfidfVectorizer(vocabulary=WORDS)
    return flour.from_sklearn(make_pipeline(words, LogisticRegression()).fit(TEXTS, labels))


def dense(seed: int) -> Flow:
    """A product of a shared vector, and a sum of it, as both read what is shared."""
    rng = np.random.default_rng(seed)
    moved = flour.vector("x", 12).add(np.arange(12.0).tolist())
    return flour.outputs(score=moved.linear(rng.normal(size=(1, 12)), [0.5]))


def registered(runtime: Runtime, *flows: Flow, **options: Any) -> None:
    for number, flow in enumerate(flows, 1):
        runtime.register("m", flow, number, activate=number == 1, background=False, **options)
    runtime.register("alone", flows[0], background=False, **options)
    runtime.wait(60)


def settled(runtime: Runtime, rows: list[Any], name: str = "m") -> str:
    """How the shadow is asked, once that is known."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for row in rows:
            runtime.predict(name, row)
        if not runtime.routes.mirrors.state(name).endswith(("put together", "next rows")):
            break
        time.sleep(0.01)
    return runtime.routes.mirrors.state(name)


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return {name: bits(value) for name, value in one.items()} == {
        name: bits(value) for name, value in other.items()
    }


@pytest.mark.rules  # texts are joined only as the rules hold them
def test_a_text_is_read_once_for_both(runtime: Runtime) -> None:
    registered(runtime, text_flow(1), text_flow(2))
    runtime.route("m", "m@1", shadow="m@2")
    assert settled(runtime, TEXTS) == "inline"
    seen = Seen()
    runtime.experiments.observe("m", seen)
    odd = ["", "word001", "nothing known", "w\x00rd", "café \U0001f600", "word001 " * 5000]
    for text in (*TEXTS, *odd):
        assert equal(runtime.predict("m", text), runtime.predict("alone", text))
    for pair in seen.wait(len(TEXTS) + len(odd)):
        assert isinstance(pair.expected, dict)
        assert isinstance(pair.found, dict)
        assert equal(pair.expected, runtime.predict("m@1", pair.rows))
        assert equal(pair.found, runtime.predict("m@2", pair.rows))
    assert any(pair.champion_seconds is not None for pair in seen.pairs)
    (stats,) = runtime.routes.shadow_stats()
    assert stats.way == "inline"
    assert stats.failed == 0


def test_sums_that_would_be_made_in_another_order_are_not_joined(runtime: Runtime) -> None:
    registered(runtime, dense(1), dense(2))
    runtime.route("m", "m@1", shadow="m@2", inline=True)
    rows = np.random.default_rng(0).normal(size=(40, 12)).tolist()
    state = settled(runtime, rows)
    if state != "inline":
        assert state.startswith("later: ")
    for row in rows:
        assert equal(runtime.predict("m", row), runtime.predict("alone", row))


def test_only_where_it_is_asked_for(runtime: Runtime) -> None:
    registered(runtime, text_flow(1), text_flow(2))
    runtime.route("m", "m@1", shadow="m@2", inline=False)
    assert settled(runtime, TEXTS) == "later"


def test_a_shadow_that_refuses_rows_changes_nothing(runtime: Runtime) -> None:
    known = np.random.default_rng(0).normal(size=(30, 3))
    champion, challenger = (
        flour.from_sklearn(each.fit(known)) for each in (StandardScaler(), Normalizer())
    )
    registered(runtime, champion, challenger)
    runtime.route("m", "m@1", shadow="m@2", inline=True)
    rows = [[1.0, 2.0, float(number)] for number in range(40)]
    assert settled(runtime, rows) == "inline"
    seen = Seen()
    runtime.experiments.observe("m", seen)
    row = [1.0, float("nan"), 2.0]
    assert equal(runtime.predict("m", row), runtime.predict("alone", row))
    (pair,) = seen.wait(1)
    assert isinstance(pair.found, Exception)
    with pytest.raises(flour.FlourError, match="3"):
        runtime.predict("m", [1.0])
    assert isinstance(seen.wait(2)[1].expected, Exception)


@pytest.mark.rules  # texts are joined only as the rules hold them
def test_a_replaced_version_answers_at_once(runtime: Runtime) -> None:
    registered(runtime, text_flow(1), text_flow(2))
    runtime.route("m", "m@1", shadow="m@2")
    assert settled(runtime, TEXTS) == "inline"
    runtime.register("m", text_flow(3), 1, activate=False, background=False, replace=True)
    runtime.register("alone", text_flow(3), background=False)
    runtime.wait(60)
    assert equal(runtime.predict("m", TEXTS[0]), runtime.predict("alone", TEXTS[0]))
    runtime.promote("m")
    assert equal(runtime.predict("m", TEXTS[0]), runtime.predict("m@2", TEXTS[0]))
    runtime.rollback("m")
    runtime.unregister("m")
    with pytest.raises(flour.FlourError, match="m"):
        runtime.predict("m", TEXTS[0])


def test_what_callers_do_with_rows_and_answers_is_not_compared(runtime: Runtime) -> None:
    x = flour.vector("x", 4)
    for number in (1, 2):
        flow = flour.outputs(moved=x.add([float(number)] * 4), top=x.max())
        runtime.register("m", flow, number, activate=number == 1, background=False)
    runtime.wait(60)
    seen = Seen()
    runtime.experiments.observe("m", seen)
    runtime.route("m", "m@1", shadow="m@2", inline=False)
    rows: list[Any] = [np.arange(4.0), [1.0, 2.0, 3.0, 4.0], np.ones((1, 4)), (4.0, 3.0, 2.0, 1.0)]
    for row in rows:
        before = np.array(row).copy()
        answers = runtime.predict("m", row)
        answers["moved"] *= 0
        answers["new"] = 1
        if not isinstance(row, tuple):
            row[0] = -1.0
        pair = seen.wait(1)[0]
        assert np.array_equal(np.asarray(pair.rows), before)
        assert isinstance(pair.expected, dict)
        assert np.array_equal(pair.expected["moved"], before + 1)
        assert pair.expected.keys() == {"moved", "top"}
        seen.pairs.clear()


def test_a_full_list_sheds_and_counts(runtime: Runtime) -> None:
    registered(runtime, text_flow(1), text_flow(2))
    runtime.route("m", "m@1", shadow="m@2", inline=False)
    for _ in range(20_000):
        runtime.predict("m", "word001")
    until(lambda: sum(each.asked + each.shed for each in runtime.routes.shadow_stats()) == 20_000)
