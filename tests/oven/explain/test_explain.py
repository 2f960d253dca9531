"""Explaining a plan, at every step of its way."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import FlourError, ParameterError
from oven.explain import explain
from oven.explain.steps import FORMS, STEPS
from oven.explain.timing import measure, sample
from tests.oven.programs import PROGRAMS


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("step", STEPS)
def test_every_step_has_every_form(step: str, form: str) -> None:
    plan = oven.bake(PROGRAMS["worded_logistic"]()[0])
    text = explain(plan, step, form)
    assert len(text) > 100
    assert text.startswith("<!doctype html>") == (form == "html")


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_pipeline_can_be_explained(name: str) -> None:
    plan = oven.bake(PROGRAMS[name]()[0])
    for step in ("logical", "optimised", "stages", "source", "timed"):
        assert explain(plan, step)


def test_stages_name_the_estimators_they_came_from() -> None:
    text = explain(oven.bake(PROGRAMS["scaled_logistic"]()[0], exact=True), "stages")
    assert "'standardscaler'" in text
    assert "'logisticregression'" in text
    assert re.search(r"at programs\.py:\d+", text)


def test_pages_show_the_graph_and_bars_and_sources_name_their_operators() -> None:
    plan = oven.bake(PROGRAMS["worded_logistic"]()[0])
    stages, timed = explain(plan, "stages", "html"), explain(plan, "timed", "html")
    assert stages.count("<rect") == len(plan.program.optimised.nodes())
    widths = re.findall(r'<td>(\d+%)<div class="bar" style="width: (\d+%)">', timed)
    assert len(widths) == len(plan.program.stages)
    assert all(shown == drawn for shown, drawn in widths)
    for stage, line in zip(
        plan.program.stages,
        re.findall(r"^# --- .*$", explain(plan, "source"), re.MULTILINE),
        strict=True,
    ):
        assert line.endswith(": " + ", ".join(item.op.name for item in stage.nodes))


def test_lines_of_csv_are_made_to_be_timed() -> None:
    columns: dict[str, flour.Type] = {
        "age": flour.Scalar("int8"),
        "text": flour.Text(),
        "city": flour.Category(),
        "member": flour.Scalar("bool"),
    }
    lines = flour.csv(columns, ";")
    program = flour.outputs(age=lines["age"] + 1, length=lines["text"].length())
    assert "256 random rows" in explain(oven.bake(program), "timed")


def test_mistakes_are_at_the_line_of_the_user() -> None:
    plan = oven.bake(flour.vector("x", 1).concat(flour.vector("y", 1)))
    twice = flour.vector("x", 1).concat(flour.vector("x", 2))
    for mistake in (
        lambda: explain(plan, "stagse"),
        lambda: explain(plan, form="pdf"),
        lambda: oven.bake(twice),
    ):
        with pytest.raises(FlourError) as caught:
            mistake()
        assert re.match(r"test_explain\.py:\d+$", str(caught.value.where))
    with pytest.raises(ParameterError, match="did you mean 'stages'"):
        explain(plan, "stagse")


def test_stages_name_the_lines_they_came_from() -> None:
    text = explain(oven.bake(flour.vector("x", 3).add([1.0, 2.0, 3.0])), "stages")
    assert re.search(r"from +test_explain\.py:\d+", text)


def test_parts_without_native_code_are_black() -> None:
    plan = oven.bake(flour.text("review").lower())
    text = explain(plan, "stages")
    assert "1 of them black" in text
    assert re.search(r"python \(black\)\n +operators +Lower", text)
    assert '<tr class="black">' in explain(plan, "stages", "html")
    assert "runs as Python" in explain(plan, "source")


def test_labels_that_are_text_are_looked_up_without_python() -> None:
    plan = oven.bake(PROGRAMS["worded_logistic"]()[0])
    text = explain(plan, "stages")
    assert "0 of them black" in text
    assert re.search(r"labels\n +operators +TakeText", text)
    assert '<tr class="black">' not in explain(plan, "stages", "html")
    assert "TakeText runs in numpy" in explain(plan, "source")
    assert plan.code.row_work is not None


def test_the_source_is_what_is_compiled() -> None:
    plan = oven.bake(flour.vector("x", 3).sum())
    assert plan.program.stages[0].source.strip() in explain(plan, "source")
    assert "define" in explain(plan, "llvm")
    assert re.search(r"^\s+ret", explain(plan, "asm"), re.MULTILINE)


class _Outside(HTMLParser):
    """Collects what a page would fetch from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {key}={value}" for key, value in attrs if key in {"src", "href"}]
        if tag in {"script", "link", "iframe"}:
            self.found.append(tag)
        if tag not in {"meta", "br", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("step", ["stages", "source", "asm", "timed"])
def test_pages_need_nothing_from_elsewhere(step: str) -> None:
    page = _Outside()
    page.feed(explain(oven.bake(PROGRAMS["worded_logistic"]()[0]), step, "html"))
    assert page.found == []
    assert page.open == []


def test_text_in_pages_is_escaped() -> None:
    plan = oven.bake(flour.vector("<b>&", 2).sum())
    assert "&lt;b&gt;&amp;" in explain(plan, "stages", "html")
    assert "<b>&" not in explain(plan, "stages", "html")


@pytest.mark.parametrize("step", ["", "native", "Stages"])
def test_an_unknown_step_is_refused_with_the_known_ones(step: str) -> None:
    plan = oven.bake(flour.vector("x", 2).sum())
    with pytest.raises(ParameterError) as caught:
        explain(plan, step)
    assert all(name in str(caught.value) for name in STEPS)


def test_an_unknown_form_is_refused() -> None:
    plan = oven.bake(flour.vector("x", 2).sum())
    with pytest.raises(ParameterError, match="form 'pdf'"):
        explain(plan, "stages", "pdf")


def test_given_rows_are_timed() -> None:
    flow, data = PROGRAMS["layers"]()
    plan = oven.bake(flow)
    run = measure(plan, data)
    assert run.rows == len(data)
    assert run.source == "given"
    assert [one.stage for one in run.stages] == list(plan.program.stages)
    assert all(one.seconds > 0 for one in run.stages)
    text = explain(plan, "timed", data=data)
    assert f"{len(data)} given rows" in text
    assert "100%" in text or text.count("%") == len(plan.program.stages)


def test_bytes_are_those_of_columns_and_parameters() -> None:
    plan = oven.bake(flour.vector("x", 3).add([1.0, 2.0, 3.0]))
    (one,) = measure(plan, np.ones((10, 3))).stages
    assert one.bytes == 2 * 10 * 3 * 8 + 3 * 8


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_rows_fit_every_program(name: str) -> None:
    flow, _ = PROGRAMS[name]()
    plan = oven.bake(flow)
    found = plan.run_columns(sample(plan.inputs, 9), 9)
    assert set(found) == set(flow.outputs)
