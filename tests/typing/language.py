"""What a type checker (and so an editor) knows of a program; `scripts/check` runs mypy over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import flour
import oven
from flour import Flow

if TYPE_CHECKING:
    from oven import Plan


def the_language_is_typed() -> None:
    """Every step is a flow; running one gives its outputs by name."""
    columns = flour.csv(columns={"id": flour.Scalar("int64"), "text": flour.Text()})
    review = assert_type(columns["text"], Flow)
    words = assert_type(review.tokenize().word_ngrams(["good", "bad"], 1, 2), Flow)
    chars = assert_type(review.char_ngrams(["goo"], low=3, high=3), Flow)
    both = assert_type(chars.concat(words), Flow)
    program = assert_type(both.linear_classifier([1, 2, 3], classes=["no", "yes"]), Flow)
    assert_type(program["label"], Flow)
    assert_type(program.type, flour.Type)
    assert_type(program.types, dict[str, flour.Type])
    assert_type(flour.show(program), str)
    assert_type(flour.outputs(a=both, b=both.sum()), Flow)
    assert_type(both * 2.0 + both, Flow)
    assert_type(program.reference(["1,good"]), dict[str, Any])
    plan: Plan = oven.bake(program)
    assert_type(plan.run(["1,good"]), dict[str, Any])


def mistakes_are_found_before_running() -> None:
    """Each line is an error to a type checker; the ignores fail the check if it is not."""
    x = flour.vector("x", 3)
    x.no_such_operator()  # type: ignore[attr-defined]
    x.linear()  # type: ignore[call-arg]
    x.element("first")  # type: ignore[arg-type]
    x.concat([1, 2])  # type: ignore[arg-type]
    flour.csv(columns=["id"])  # type: ignore[arg-type]
