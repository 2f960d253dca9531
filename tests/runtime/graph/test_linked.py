"""Graphs answer what their models answer when they are called by hand, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import flour
import oven
from runtime import Runtime
from runtime.errors import BadRegistration, InUse, UnknownEndpoint
from runtime.graph.cutting import MOST_HEADS
from runtime.graph.facts import GraphFacts
from tests.house import until
from tests.runtime.graph.models import columns, forest, people, row, table_model, text_model

FRAME = people(64, seed=7)
ROWS = columns(FRAME)
TABLE, NOTES = FRAME[["age", "income", "city"]], FRAME["note"].tolist()


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=2) as made:
        made.register("linear", table_model(0), background=False)
        made.register("trees", table_model(1, trees=True), background=False)
        for seed in range(3):
            made.register(f"text{seed}", text_model(seed), background=False)
        made.register("forest", forest(0), background=False)
        made.register("forest3", forest(1, 3), background=False)
        yield made


def register(runtime: Runtime, name: str, graph: flour.Flow) -> Any:
    """Register a graph, and wait for its code; its plan."""
    runtime.register(name, graph, background=False)
    plan: Any = runtime.endpoints.versions()[f"{name}@1"].plan
    return plan


def same(left: Any, right: Any) -> None:
    """Equal in every bit, NaN included."""
    left, right = np.asarray(left), np.asarray(right)
    assert left.dtype == right.dtype
    assert left.shape == right.shape
    if left.dtype == object:
        assert left.tolist() == right.tolist()
    else:
        assert left.tobytes() == right.tobytes()


def test_a_model_in_a_graph_answers_as_it_does_alone(runtime: Runtime) -> None:
    person = row()
    for name, data in {"linear": TABLE, "trees": TABLE, "text1": NOTES}.items():
        reads = person["note"] if name == "text1" else person["age", "income", "city"]
        register(runtime, f"only {name}".replace(" ", "-"), flour.model(name)(reads))
        answers, alone = runtime.predict(f"only-{name}", ROWS), runtime.predict(name, data)
        assert answers.keys() == alone.keys()
        for output in alone:
            same(answers[output], alone[output])


def test_a_chain_is_its_models_one_after_the_other(runtime: Runtime) -> None:
    person = row()
    income = flour.model("linear")(person["age", "income", "city"])["probabilities"]
    doubt = flour.model("text0")(person["note"])["probabilities"]
    plan = register(runtime, "chain", flour.model("forest")(income[1] * 40, doubt[1]))
    assert isinstance(plan, oven.Plan)
    first = runtime.predict("linear", TABLE)["probabilities"][:, 1] * 40
    second = runtime.predict("text0", NOTES)["probabilities"][:, 1]
    by_hand = runtime.predict("forest", np.column_stack([first, second]))
    answers = runtime.predict("chain", ROWS)
    for name in by_hand:
        same(answers[name], by_hand[name])
    single = runtime.predict("chain", {name: values[3] for name, values in ROWS.items()})
    assert single["label"] == by_hand["label"][3]


def test_exact_sums_have_the_same_bits_whatever_is_shared(runtime: Runtime) -> None:
    """Here vectors that several models read are kept, so that other loops add them up."""
    x, person = flour.vector("x", 40), row()
    rng = np.random.default_rng(3)
    rows = rng.gamma(2.0, size=(33, 40))
    weights = rng.normal(size=(3, 1, 40))
    logs = [x.log().linear_classifier(each, 0.1, classes=["no", "yes"]) for each in weights]
    notes = [text_model(seed) for seed in range(3)]
    cases = {"log": (logs, x, rows, rows), "note": (notes, person["note"], NOTES, ROWS)}
    for kind, (models, reads, alone, together) in cases.items():
        names = [f"{kind}{number}" for number in range(len(models))]
        for name, model in zip(names, models, strict=True):
            runtime.register(name, model, background=False, exact=True)
        scores = {name: flour.model(name)(reads)["scores"] for name in names}
        runtime.register(f"all-{kind}", flour.outputs(**scores), background=False, exact=True)
        answers = runtime.predict(f"all-{kind}", together)
        for name in names:
            same(answers[name], runtime.predict(name, alone)["scores"])


# Without rules, a vector that several models read is kept, and sums of kept ones round otherwise
# unless they are exact.
@pytest.mark.rules
def test_what_models_share_is_one_node(runtime: Runtime) -> None:
    person = row()
    notes = [flour.model(f"text{seed}")(person["note"]) for seed in range(3)]
    plan = register(runtime, "mean", flour.ensemble(notes).mean())
    assert sum(item.op.name == "WordNgrams" for item in plan.program.optimised.nodes()) == 1
    alone = [runtime.predict(f"text{seed}", NOTES)["probabilities"] for seed in range(3)]
    same(runtime.predict("mean", ROWS)["output"], (alone[0] + alone[1] + alone[2]) / 3.0)


@pytest.mark.rules
@pytest.mark.parametrize(("count", "steps"), [(40, 1), (2 * MOST_HEADS + 1, 3)])
def test_very_many_models_of_one_vocabulary(runtime: Runtime, count: int, steps: int) -> None:
    """They read a text once, or as often as native code has room for; in every bit as alone."""
    note, seeds = row()["note"], range(count)
    plans = {f"s{seed}": oven.bake(text_model(seed), background=False) for seed in seeds}
    scores = {name: flour.plan(plan)(note)["scores"] for name, plan in plans.items()}
    mean = flour.ensemble(list(scores.values())).mean()
    plan: Any = register(runtime, "many", flour.outputs(**scores, mean=mean))
    if steps == 1:
        assert [stage.kind for stage in plan.program.stages] == ["fused"]
    else:  # and the mean of what they say
        assert len(plan.graph.steps) == steps + 1
    answers = runtime.predict("many", ROWS)
    same(answers["mean"], sum(answers[name] for name in scores) / float(count))
    single = runtime.predict("many", {name: values[5] for name, values in ROWS.items()})
    for name, model in plans.items():
        alone = model.run(NOTES)["scores"]
        same(answers[name], alone)
        assert single[name] == alone[5]


def test_weights_and_votes(runtime: Runtime) -> None:
    person = row()
    table = person["age", "income", "city"]
    members = [
        *(flour.model(name)(table) for name in ("linear", "trees")),
        flour.model("forest3")(person["income"], person["income"] * person["income"]),
    ]
    register(runtime, "vote", flour.ensemble(members).vote())
    register(runtime, "sum", flour.ensemble(members[:2]).weighted([3, 1]))
    income = FRAME["income"].to_numpy()
    third = runtime.predict("forest3", np.column_stack([income, income * income]))
    votes = pd.DataFrame(
        {
            "a": runtime.predict("linear", TABLE)["label"],
            "b": runtime.predict("trees", TABLE)["label"],
            "c": third["label"],
        }
    )
    expected = [min(v, key=lambda x: (-list(v).count(x), x)) for v in votes.to_numpy()]
    assert runtime.predict("vote", ROWS)["output"].tolist() == expected
    one, two = (runtime.predict(name, TABLE)["probabilities"] for name in ("linear", "trees"))
    same(runtime.predict("sum", ROWS)["output"], (one * 3.0 + two * 1.0) / 4.0)


def test_a_plan_is_part_of_a_graph_without_a_name(runtime: Runtime) -> None:
    person = row()
    plan = oven.bake(text_model(2), background=False)
    register(runtime, "own", flour.plan(plan)(person["note"]))
    same(runtime.predict("own", ROWS)["probabilities"], plan.run(NOTES)["probabilities"])


def test_a_graph_of_graphs_is_one_program(runtime: Runtime) -> None:
    person = row()
    inner = flour.model("text0")(person["note"])["probabilities"][1]
    register(runtime, "inner", flour.outputs(doubt=inner))
    outer = register(runtime, "outer", flour.outputs(twice=flour.model("inner")(person) * 2))
    assert isinstance(outer, oven.Plan)
    same(runtime.predict("outer", ROWS)["twice"], runtime.predict("inner", ROWS)["doubt"] * 2)


# --- mistakes are told at the author's line ------------------------------------------------------


def test_a_graph_says_what_is_wrong_where_it_was_written(runtime: Runtime) -> None:
    person = row()
    with pytest.raises(UnknownEndpoint, match="did you mean 'linear'"):
        runtime.register("graph", flour.model("lineer")(person["age"]))
    wrong = flour.model("forest")(person["income"])["label"]
    with pytest.raises(flour.FlourError, match="reads 2 columns, and was given 1") as caught:
        runtime.register("graph", wrong)
    assert "test_linked.py" in str(caught.value)
    named = flour.model("linear")(person)["lable"]
    with pytest.raises(flour.FlourError, match="did you mean 'label'"):
        runtime.register("graph", named)
    added = flour.model("linear")(person["age", "income", "city"])["label"] + 1.0
    with pytest.raises(flour.FlourError) as caught:
        runtime.register("graph", added)
    assert "test_linked.py" in str(caught.value)


def test_a_graph_does_not_run_before_it_is_registered() -> None:
    graph = flour.model("linear")(row())
    with pytest.raises(flour.FlourError, match=r"runtime\.register"):
        oven.bake(graph)
    with pytest.raises(flour.FlourError, match="called on flows"):
        flour.model("linear")(3.0)  # type: ignore[arg-type]  # which is the point


def test_cycles_are_refused(runtime: Runtime) -> None:
    person = row()
    register(runtime, "first", flour.model("linear")(person["age", "income", "city"]))
    again = flour.model("first")(person)
    with pytest.raises(BadRegistration, match="its own answer"):
        runtime.register("linear", again)
    with pytest.raises(BadRegistration, match="its own answer"):
        runtime.register("first", flour.model("first")(person))
    runtime.register("first", flour.model("first@1")(person))


# --- models come, switch and go ------------------------------------------------------------------


@pytest.mark.rules
def test_a_graph_follows_a_name_and_stays_with_a_version(runtime: Runtime) -> None:
    person = row()
    followed, pinned = flour.model("text0")(person["note"]), flour.model("text0@1")(person["note"])
    runtime.register("both", flour.outputs(new=followed["scores"], old=pinned["scores"]))
    runtime.register("over", flour.outputs(x=flour.model("both")(person)["new"]))
    before = runtime.predict("text0", NOTES)["scores"]
    runtime.register("text0", text_model(2), background=False)
    after = runtime.predict("text0", NOTES)["scores"]
    until(lambda: np.array_equal(runtime.predict("both", ROWS)["new"], after))
    same(runtime.predict("both", ROWS)["old"], before)
    until(lambda: np.array_equal(runtime.predict("over", ROWS)["x"], after))
    runtime.switch("text0", 1)
    until(lambda: np.array_equal(runtime.predict("both", ROWS)["new"], before))


def test_a_version_that_a_graph_needs_stays(runtime: Runtime) -> None:
    runtime.register("uses", flour.model("text0")(row()["note"]))
    with pytest.raises(InUse, match="uses@1"):
        runtime.unregister("text0")
    runtime.register("text0", text_model(2), background=False)
    until(lambda: _is_free(runtime, "text0", 1))
    runtime.unregister("uses")
    runtime.unregister("text0")


def _is_free(runtime: Runtime, name: str, version: int) -> bool:
    try:
        runtime.unregister(name, version)
    except InUse:
        return False
    return True


def test_a_graph_that_cannot_follow_goes_on(runtime: Runtime) -> None:
    person = row()
    runtime.register("uses", flour.outputs(x=flour.model("text0")(person["note"])["scores"]))
    before = runtime.predict("uses", ROWS)["x"]
    runtime.register("text0", forest(0), background=False)
    until(lambda: facts_of(runtime, "uses@1").problem)
    assert "reads 2 columns" in facts_of(runtime, "uses@1").problem
    assert runtime.graphs.facts("text0@1") is None
    same(runtime.predict("uses", ROWS)["x"], before)


def facts_of(runtime: Runtime, owner: str) -> GraphFacts:
    facts = runtime.graphs.facts(owner)
    assert facts is not None
    return facts


def test_explain_names_the_models_of_a_graph_and_what_they_share(runtime: Runtime) -> None:
    person = row()
    notes = [flour.model(f"text{n}")(person["note"])["scores"] for n in (0, 1)]
    risk = flour.model("linear@1")(person["age", "income", "city"])["probabilities"][1]
    total = flour.first_match([(risk > 0.5, notes[0] + notes[1])], otherwise=risk)
    register(runtime, "told", flour.outputs(x=total))
    runtime.predict("told", ROWS)
    text = runtime.explain("told")
    assert "a graph of 3 models" in text
    assert re.search(r"text0 \(text0@1\): \d+ operators, \d+ shared with text1", text)
    assert re.search(r"linear@1 \(linear@1\): \d+ operators\n", text)
    assert re.search(r"step 0, plan of .*: 1 calls, 64 rows", text)
