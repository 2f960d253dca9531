"""What a comparison counts of pairs of answers."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import flour
from flour import Flow
from runtime import Runtime
from runtime.errors import BadCall
from runtime.routing.comparison import SEGMENTS, Comparison, ComparisonCounts
from runtime.routing.pairs import Pair
from tests.house import until


def pair(expected: object, found: object) -> Pair:
    """Two answers to one row, the challenger half a second slower."""
    return Pair("m@1", "m@2", {"x": 1.0}, expected, found, 0.5, 1.0)  # type: ignore[arg-type]  # any


@pytest.mark.parametrize(
    ("expected", "found", "agree"),
    [
        (1.0, 1.0 + 1e-9, True),
        (1.0, 1.1, False),
        (math.nan, math.nan, True),
        (math.nan, 1.0, False),
        (math.inf, math.inf, True),
        (2**60, 2**60 + 1, False),
        ("a", "a", True),
        ("a", "b", False),
        (None, None, True),
        (np.array([1.0, 2.0]), np.array([1.0, 2.0]), True),
        (np.array([1.0, 2.0]), np.array([1.0]), False),
    ],
)
def test_values_agree(expected: object, found: object, *, agree: bool) -> None:
    comparison = Comparison()
    comparison.add(pair({"y": expected}, {"y": found}))
    assert len(comparison.disagreements) == (not agree)


def test_counts() -> None:
    comparison = Comparison(segment="x")
    comparison.add(pair({"y": np.array([1.0, 2.0])}, {"y": np.array([1.0, 2.5])}))
    comparison.add(pair({"y": 1.0}, ValueError()))
    comparison.add(pair({"y": 1.0}, {}))
    found = comparison.to_dict()
    assert found["pairs"] == found["disagreements"] == 3
    assert (found["champion_errors"], found["challenger_errors"]) == (0, 1)
    assert found["seconds"] == {"mean": 0.5, "median": 0.5, "p99": 0.5}
    output = found["outputs"]["y"]
    assert output["agreement"] == 0.5
    assert output["shapes_that_differ"] == 1
    assert (output["mean_difference"], output["largest_difference"]) == (0.25, 0.5)
    assert found["segments"]["values"] == {"1.0": {"pairs": 3, "agreeing": 0, "errors": 1}}
    text = str(comparison)
    assert "50.00% ±35.36% agree" in text
    assert comparison.to_html().startswith("<table>")


def test_scores_that_have_moved_have_a_distance() -> None:
    rng, comparison = np.random.default_rng(0), Comparison()
    for _ in range(5):
        scores = rng.normal(size=500)
        comparison.add(pair({"s": scores, "t": scores}, {"s": scores, "t": scores + 1}))
    outputs = comparison.to_dict()["outputs"]
    assert outputs["s"]["psi"] == 0
    assert outputs["t"]["psi"] > 0.2


@pytest.mark.parametrize("size", [1, 500])  # bins by tenths, or by the first block of each
def test_counts_of_two_processes_add_up(size: int) -> None:
    rng, parts = np.random.default_rng(0), [Comparison(segment="x"), Comparison(segment="x")]
    whole = Comparison(segment="x")
    for number in range(8):
        scores = rng.random(size)
        expected = {"s": scores}
        found: object = {"s": scores + 0.1 * (number % 2)} if number != 5 else ValueError()
        for each in (parts[number // 4], whole):
            each.add(pair(expected, found))
    told = [
        ComparisonCounts.of_json(json.loads(json.dumps(each.counts().to_json()))) for each in parts
    ]
    for _ in range(3):  # what is told stays as it is
        both = ComparisonCounts("x")
        for counts in told:
            both.take(counts)
        one, other = both.to_dict(), whole.to_dict()
        ours, theirs = one["outputs"].pop("s"), other["outputs"].pop("s")
        assert one == other
        assert ours.pop("psi") == pytest.approx(theirs.pop("psi"), rel=0.5)
        assert ours == pytest.approx(theirs)
    assert told[0].to_dict() == parts[0].to_dict()


def test_memory_is_bounded() -> None:
    comparison = Comparison(keep=10, segment="x")
    for number in range(1000):
        made = pair({"y": 1.0}, {"y": 2.0})
        comparison.add(replace(made, rows={"x": number}))
    assert len(comparison.disagreements) == 10
    assert len(comparison.to_dict()["segments"]["values"]) == SEGMENTS + 1


def test_kept_blocks_are_bounded_by_rows() -> None:
    comparison, block = Comparison(), np.zeros(9000)
    for _ in range(5):
        comparison.add(pair({"y": block}, {"y": block + 1}))
    assert len(comparison.disagreements) == 2


def test_answers_that_cannot_be_compared_differ() -> None:
    comparison = Comparison()
    comparison.add(pair({"y": [[1], [1, 2]]}, {"y": [[1], [1, 2]]}))
    comparison.add(pair({"y": np.array(["a", "b"])}, {"y": np.array(["a", "bc"])}))
    assert comparison.to_dict()["outputs"]["y"]["agreement"] == 0.5
    assert comparison.to_dict()["disagreements"] == 2


def scaled(weight: float) -> flour.Flow:
    """A program of two steps, whose weight is one of the second."""
    x = flour.vector("X", 3)
    return flour.outputs(score=(x * 2.0) * [weight, 1.0, 1.0])


@pytest.mark.parametrize(
    ("names", "width", "told"),
    [("ac", 0, "m@1 reads b alone; m@2 reads c alone"), ("", 3, "Vector[3, float64]")],
)
def test_a_shadow_with_other_inputs_is_told_of(
    names: str, width: int, told: str, runtime: Runtime
) -> None:
    """It is asked the champion's rows, which it refuses."""

    def program(names: str, width: int) -> Flow:
        if width:
            return flour.vector("row", width).max().named("top")
        row = flour.record("row", dict.fromkeys(names, flour.Scalar()))
        return row.columns(list(names)).max().named("top")

    for each in (program("ab", 0 if names else 2), program(names, width)):
        runtime.register("m", each, activate=False, background=False)
    runtime.route("m", "m@1", shadow="m@2")
    comparison = runtime.experiments.compare("m")
    runtime.predict("m", {"a": 1.0, "b": 2.0} if names else np.array([1.0, 2.0]))
    until(lambda: comparison.to_dict()["pairs"] == 1)
    found = comparison.to_dict()
    assert found["challenger_errors"] == 1
    assert told in found["first_difference"]
    assert "register the challenger with the champion's inputs" in found["first_difference"]


def test_a_runtime_compares_a_shadow_and_says_where_it_differs(runtime: Runtime) -> None:
    row = np.array([1.0, 2.0, 3.0])
    for number, weight in enumerate((1.0, 1.0, 5.0), 1):
        runtime.register("m", scaled(weight), version=number, background=False)
    runtime.route("m", "m@1", shadow="m@3")
    comparison = runtime.experiments.compare("m")
    assert "no shadow was asked" in str(comparison)
    for wrong, hint in (
        ("x2", r"columns: X(.|\n)*did you mean 'X'"),
        ("nope", "columns: X"),
        (5, "5"),
    ):
        with pytest.raises(BadCall, match=hint):
            runtime.experiments.compare("m", segment=wrong)  # type: ignore[arg-type]  # what is refused
    runtime.predict("m", row)
    until(lambda: comparison.to_dict()["pairs"] == 1)
    assert runtime.experiments.compare("m") is comparison
    found = comparison.to_dict()
    assert found["outputs"]["score"]["largest_difference"] == pytest.approx(8.0)
    where = found["first_difference"]
    assert where is not None
    assert "[[10." in where
    assert "[[2." in where
    runtime.route("m", "m@1", shadow="m@2")
    again = runtime.experiments.compare("m", segment="X")
    assert again is not comparison
    runtime.predict("m", row)
    until(lambda: again.to_dict()["pairs"] == 1)
    assert again.to_dict()["first_difference"] is None
