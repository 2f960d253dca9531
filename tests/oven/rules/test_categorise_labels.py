"""A label that is compared with words is compared by its number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flour
import oven
from flour.language.flow import Flow
from oven.export import export
from tests.oven.rules.test_choose_before_text import labels
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "categorise_labels"


def example() -> Flow:
    """A program the rule applies to."""
    return labels(vector(2), "no", "yes") == "yes"


def test_it_fires() -> None:
    assert_fires(example(), RULE, "GreaterEqual[1](Take[{-1 0}](ArgMax(Linear[2x2, 2](x))))")


def test_it_declines_labels_that_are_refused() -> None:
    x = vector(2)
    strict = labels(x, "no", "yes").categorise_text(
        ["no"], [0], [0, 1], [-1], [-1], [-1], strict=True
    )
    assert_declines(strict, RULE)


def test_a_graph_that_asks_for_a_label_is_exported(tmp_path: Path) -> None:
    """The label is an answer beside, too."""
    x = vector(2)
    label = labels(x, "no", "yes")
    graph = flour.outputs(score=flour.where((label == "no") & (x[0] > 90), 0.0, x[1]), label=label)
    rows = 100 * np.random.default_rng(5).normal(size=(60, 2))
    assert export(oven.bake(graph), tmp_path, name="m", rows=rows).rows == 60
