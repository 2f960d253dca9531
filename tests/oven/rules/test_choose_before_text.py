"""Strings of a choice are looked up once the place is chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flour
import oven
from flour.language.flow import Flow
from oven.export import export
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "choose_before_text"


def labels(x: Flow, *names: str) -> Flow:
    """The label of a small classifier."""
    return x.linear(np.eye(len(names), 2), np.zeros(len(names))).arg_max().take(list(names))


def chosen(x: Flow, yes: Flow, no: Flow | str) -> Flow:
    """One of two labels."""
    return flour.first_match([(x[0] > 0, yes)], otherwise=no)


def example() -> Flow:
    """A program the rule applies to."""
    x = vector(2)
    return chosen(x, labels(x, "no", "yes"), "unsure")


def test_it_fires() -> None:
    yes = "Take[{0 1}](ArgMax(Linear[2x2, 2](x)))"
    no = "Take[{2 2}](Cast[int64](Greater[1](Element[0](x))))"
    after = f"TakeText[3 texts](Choose(Greater[1](Element[0](x)), {yes}, {no}))"
    assert_fires(example(), RULE, after)


def test_it_fires_beside_the_labels_themselves() -> None:
    x = vector(2)
    one, two = labels(x, "b", "a"), labels(x * 2, "a", "ü", "\ud800")
    flow = flour.outputs(both=chosen(x, one, two), one=one)
    places = "Take[{0 1}](ArgMax(Linear[2x2, 2](x)))"
    others = "Take[{1 2 3}](ArgMax(Linear[3x2, 3](Multiply[1](x))))"
    after = f"TakeText[4 texts](Choose(Greater[1](Element[0](x)), {places}, {others}))"
    assert_fires(flow, RULE, after, output="both")


def test_it_declines_texts_of_the_caller() -> None:
    x, text = vector(2), flour.category("t")
    assert_declines(chosen(x, labels(x, "no", "yes"), text), RULE)


def test_a_choice_of_labels_is_exported(tmp_path: Path) -> None:
    x = vector(2)
    plan = oven.bake(chosen(x, labels(x, "b", "a"), labels(x * -1, "a", "c")))
    rows = np.random.default_rng(5).normal(size=(60, 2))
    made = export(plan, tmp_path, name="m", rows=rows)
    assert made.files
