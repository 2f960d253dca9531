"""The entry for documents answers as `Plan.run` does, whatever comes in, and leaks nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.types import Record, Text
from flour.language.flow import Flow, source
from oven.plans.plan import Plan
from tests.oven.entry.answers import data_may_change, leaks_nothing, threads_do_not_meet
from tests.oven.entry.test_array_entry import of_run, same, same_row
from tests.oven.entry.test_record_entry import Word, agree

WORDS = ["bad", "bad bad", "good", "good day", "é", "한국"]
DOCUMENTS = [
    *[
        "",
        "bad",
        "Good DAY",
        "bad bad bad good day é",
        "é한국 한국",
        "nul \0 bad\0",
        "\U0001f600 bad",
    ],
    *["İstanbul ΣΑΣ", "x" * 5000 + " bad", "good day " * 700, "\n\t bad \u2003 good", "é" * 3000],
]


def program(x: Flow) -> Flow:
    """A label that is a string, a number, a vector."""
    counts = x.lower().tokenize(r"\w+").word_ngrams(WORDS, 1, 2)
    weights = np.random.default_rng(0).normal(size=(3, len(WORDS)))
    scores = counts.linear(weights, [0.0, 0.5, 0.1])
    label = scores.arg_max().take(["yes", "no", "né"])
    return flour.outputs(label=label, scores=scores, best=scores.max())


@cache
def plan() -> Plan:
    """A plan over documents."""
    return oven.bake(program(flour.text("review")))


@cache
def of_column() -> Plan:
    """A plan over one column of documents."""
    return oven.bake(program(source("X", Record((("review", Text()),))).field("review")))


@pytest.mark.parametrize("document", DOCUMENTS, ids=range(len(DOCUMENTS)))
def test_a_document_is_a_row(document: str) -> None:
    want = of_run(plan(), [document])
    same_row(plan().entry()(document), want)
    same_row(plan().entry()({"review": document}), want)
    same_row(of_column().entry()({"review": document}), want)


@pytest.mark.parametrize("count", [1, 2, len(DOCUMENTS)])
def test_several_documents_are_a_block(count: int) -> None:
    some = DOCUMENTS[:count]
    want, call = of_run(plan(), some), plan().entry()
    array = np.array([*some, None], object)[:-1]
    frozen = np.array(some)
    for block in (some, tuple(some), array, array.repeat(2)[::2], frozen, {"review": some}):
        same(call(block), want)
    same(of_column().entry()({"review": some}), of_run(of_column(), {"review": some}))


def test_many_documents_are_worked_on_without_the_lock() -> None:
    many = DOCUMENTS * 40
    same(plan().entry()(many), of_run(plan(), many))


WRONG: list[Any] = [None, 1, 1.5, b"bad", [None], ["bad", None], [["bad"], ["good"]], [1, "x"], []]
WRONG += [{"other": "bad"}, {}, {"review": None}, {"review": ["bad", 3]}, np.empty(2, object)]
WRONG += ["half \ud800", ["bad", "\udfff"], Word("bad"), [Word("bad"), "good"]]
WRONG += [
    np.array(["a", "b"]),
    {"review": "bad", "more": "x"},
    np.array("bad", object),
    np.array([["bad"]], object),
]


@pytest.mark.parametrize("made", [plan, of_column], ids=["document", "column"])
@pytest.mark.parametrize("place", range(len(WRONG)))
def test_anything_else_is_answered_by_python(made: Any, place: int) -> None:
    """By the same words as without machine code."""
    agree(made(), WRONG[place])
    assert made().entry()({"review": "bad"})[0] in {"yes", "no", "né"}  # it goes on working


def test_nothing_is_leaked() -> None:
    given: list[Any] = ["bad é", "good " * 2000, "half \ud800", None, ["bad é", "good"], ("bad",)]
    given += [np.array(["bad", "good"], object), ["bad", None], [str(i) for i in range(3)]]
    leaks_nothing(plan().entry(), [*given, *({"review": item} for item in given)])


def test_threads_do_not_meet() -> None:
    many = [DOCUMENTS[start:] * 5 for start in range(3)]
    threads_do_not_meet(plan().entry(), [*DOCUMENTS, *many])


def test_a_list_may_shrink_while_the_answers_are_made() -> None:
    data_may_change(plan().entry(), lambda _: (victim := ["bad"] * 3, victim))
