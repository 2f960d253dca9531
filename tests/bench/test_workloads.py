"""Workloads: real, seeded, shared as in the paper, and made once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bench.workload import CHECKED, NAMES, Pipeline, Spec, saved, scores
from bench.workloads import ac, sa, tab
from tests.bench.conftest import COUNTS, Small


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_read_back_answers_as_when_it_was_made(name: str, small: Small) -> None:
    workload = small(name)
    assert len(workload.inputs) == 1000
    assert len(workload.pipelines()) == COUNTS[name]
    rows = workload.inputs.frame(0, CHECKED)
    for pipeline in workload.pipelines():
        answers = scores(pipeline.estimator(), rows)
        np.testing.assert_array_equal(answers, pipeline.expected())
        assert len(np.unique(answers)) > 5, "the model says the same of everybody"


def test_sharing_is_the_papers() -> None:
    pairs = sa.assignment(seed=0)
    assert len(pairs) == 250
    assert sorted(Counter(char for char, _ in pairs).values()) == sorted(sa.CHAR_USERS)
    assert sorted(Counter(word for _, word in pairs).values()) == sorted(sa.WORD_USERS)
    assert pairs != sa.assignment(seed=1)


def test_dictionaries_grow_with_scale_and_are_shared(small: Small) -> None:
    unions = [pipeline.estimator().steps[0][1] for pipeline in small("sa").pipelines()]
    sizes = [len(union.transformer_list[1][1].vocabulary_) for union in unions]
    assert sizes[0] == 1000
    maker = sa._Vectorizers(Spec("sa", 1, 0.005), sa.reviews())
    assert len(maker.words(0).vocabulary_) == 5000
    assert maker.words(0) is maker.words(0)
    assert len(maker.chars(4).vocabulary_) == 16


def test_regressions_differ_in_shape() -> None:
    shapes = {
        tuple(name for name, _ in estimator.steps[0][1].transformer_list)
        for estimator in ac.make(Spec("ac", 12, 0.02)).pipelines
    }
    assert len(shapes) >= 3


def test_tables_have_holes_and_categories() -> None:
    table = tab.table(seed=0, count=200)
    ages = table.column("age", 0, 200)
    assert 0 < np.isnan(ages).sum() < 50
    assert set(table.column("plan", 0, 200)) == set(tab.CATEGORIES["plan"])
    assert table.record(0)["plan"] in tab.CATEGORIES["plan"]


def test_fewer_are_a_part_of_more(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = small("lin")
    before = workload.pipelines()[0].file("pickle").stat().st_mtime_ns
    monkeypatch.setattr("bench.workload._fill", lambda *_: pytest.fail("made again"))
    again = saved(Spec("lin", 1, 0.05))
    assert again.folder == workload.folder
    assert Pipeline(again.folder, 0).file("pickle").stat().st_mtime_ns == before


def test_the_sample_of_text_is_attributed() -> None:
    notice = Path(sa.__file__).with_name("reviews.NOTICE.md").read_text(encoding="utf-8")
    assert "Attribution 4.0" in notice
    assert len(sa.reviews()) == 400
    assert all(text.isascii() for text in sa.reviews())
