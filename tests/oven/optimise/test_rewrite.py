"""The driver: order, fix-point, verification, trace, switches, provenance."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import oven
from flour.core.node import Node, node
from flour.core.source import Source
from flour.core.types import Vector
from flour.language.flow import Flow, outputs
from flour.ops.elementwise import Add, Cast, Multiply
from flour.ops.unary import Abs, Exp, Negate
from oven.errors import RewriteError
from oven.optimise.passes import PASSES, Pass
from oven.optimise.pattern import (
    APPROXIMATES,
    BITS,
    REASSOCIATES,
    Match,
    Preserves,
    ProgramFacts,
    Rule,
    chain,
    hole,
    match,
    op,
    rest,
)
from oven.optimise.rewrite import optimise, substitute, trace, verify
from oven.optimise.rules import RULES
from oven.optimise.summary import expression
from tests.rewrites import vector

pytestmark = pytest.mark.rules
RULE_FILES = Path(inspect.getfile(oven)).parent / "optimise" / "rules"
TEST_FILES = Path(__file__).parents[1] / "rules"


def a_pass(*rules: Rule) -> tuple[Pass, ...]:
    """One pass of these rules."""
    return (Pass("test", "for a test", rules),)


def replace(kind: type, build: Callable[[Match], Node | None], **how: object) -> Rule:
    """A rule that replaces operators of a class."""
    fields = {"preserves": BITS, "name": "a_rule", **how}
    return Rule(pattern=op(kind, name="step")(hole("x")), build=build, **fields)  # type: ignore[arg-type]


# --- what is there --------------------------------------------------------------------------------


def test_every_rule_is_a_file_and_has_a_test_of_its_name() -> None:
    files = {path.stem for path in RULE_FILES.glob("*.py")} - {"__init__"}
    tests = {path.stem.removeprefix("test_") for path in TEST_FILES.glob("test_*.py")}
    assert set(RULES) == files == tests
    assert all(
        rule.place.startswith(f"oven/optimise/rules/{name}.py:") for name, rule in RULES.items()
    )


def test_every_rule_is_in_a_pass() -> None:
    assert {rule.name for one in PASSES for rule in one.rules} == set(RULES)
    assert len({one.name for one in PASSES}) == len(PASSES)
    assert all(one.why for one in PASSES)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_says_why_unless_and_numerics(name: str) -> None:
    doc = RULES[name].doc
    assert "→" in doc.splitlines()[0]
    words = re.findall(r"^(Why|Unless|Numerics) ", doc, re.MULTILINE)
    assert words == ["Why", "Unless", "Numerics"]


@pytest.mark.parametrize("name", RULES)
def test_every_rule_fires_on_its_example_in_the_real_passes(name: str) -> None:
    module = load(TEST_FILES / f"test_{name}.py")
    example: Flow = module.example()
    assert name in trace(example).fired
    if RULES[name].preserves is not BITS:
        assert name not in trace(example, exact=True).fired


def load(path: Path) -> ModuleType:
    """A test file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_the_three_kinds_of_test(name: str) -> None:
    text = (TEST_FILES / f"test_{name}.py").read_text(encoding="utf-8")
    assert "def test_it_fires(" in text
    assert "def test_it_declines" in text


def test_the_page_about_rules_names_all_of_them_and_what_they_preserve() -> None:
    docs = TEST_FILES.parent.parent.parent / "docs"
    page = (docs / "contributing" / "rules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert dict(rows) == {name: rule.preserves.name for name, rule in RULES.items()}
    order = re.search(r"The passes, in order: (.*?);", page, re.DOTALL)
    assert order is not None
    assert re.findall(r"`(\w+)`", order[1]) == [one.name for one in PASSES]


# --- fix-point ----------------------------------------------------------------------------------


def test_rules_apply_until_nothing_changes() -> None:
    flow = vector(3).abs().abs().abs().abs()
    outer = op(Abs, name="outer")(op(Abs, name="inner")(hole("x")))
    rule = Rule(outer, lambda m: m["inner"], BITS, name="abs_of_abs")
    made = trace(flow, passes=a_pass(rule))
    assert expression(made.flow.node) == "Abs(x)"
    assert len(made.firings) == 3


def test_rules_that_undo_each_other_are_an_error_with_both_programs() -> None:
    there = replace(Abs, lambda m: node(Negate(), [m["x"]]), name="there")
    back = replace(Negate, lambda m: node(Abs(), [m["x"]]), name="back")
    with pytest.raises(RewriteError, match="has seen this program before: back, there") as caught:
        trace(vector(3).abs(), passes=a_pass(there, back))
    assert "Abs(%0)" in str(caught.value)
    assert "Negate(%0)" in str(caught.value)


def test_a_rule_that_never_rests_is_an_error() -> None:
    def grow(m: Match) -> Node:
        return node(Add(np.asarray(m.op("step", Add).operand, "f8") + 1), [m["x"]])

    with pytest.raises(RewriteError, match="does not come to rest: a_rule"):
        trace(vector(3).add([1.0]), passes=a_pass(replace(Add, grow)))


def test_a_program_that_never_stops_growing_is_an_error() -> None:
    def grow(m: Match) -> Node:
        step = m.op("step", Add)
        more = Add(np.asarray(step.operand, "f8") / 2)
        return node(more, [node(more, [m["x"]])])

    with pytest.raises(RewriteError, match="does not come to rest: a_rule"):
        trace(vector(3).add([1.0]), passes=a_pass(replace(Add, grow)))


def test_a_rule_that_wraps_what_it_replaces_is_an_error() -> None:
    rule = replace(Abs, lambda m: node(Exp(), [m.root]))
    with pytest.raises(RewriteError, match="by something that reads it"):
        trace(vector(3).abs(), passes=a_pass(rule))


# --- verification ---------------------------------------------------------------------------------


def test_a_rule_that_changes_a_type_is_an_error_that_names_it() -> None:
    rule = replace(Abs, lambda m: node(Cast("float32"), [m["x"]]))
    with pytest.raises(
        RewriteError, match=r"rule a_rule \(.*test_rewrite\.py:\d+\) changed a type"
    ):
        trace(vector(3).abs(), passes=a_pass(rule))


def test_a_rule_that_makes_an_input_is_an_error() -> None:
    rule = replace(Abs, lambda _: node(Source("other", Vector(3)), []))
    with pytest.raises(RewriteError, match="made an input of its own"):
        trace(vector(3).abs(), passes=a_pass(rule))


def test_outputs_keep_their_names_and_types() -> None:
    x, y = vector(3).node, vector(3).abs().node
    verify({"a": x, "b": y}, {"a": x, "b": x}, "nobody")
    with pytest.raises(RewriteError, match="changed the outputs"):
        verify({"a": x, "b": y}, {"b": y, "a": x}, "somebody")
    with pytest.raises(RewriteError, match="in output 'a', changed a type"):
        verify({"a": x}, {"a": vector(3).sum().node}, "somebody")


def forged(made: Node, **changed: object) -> Node:
    """A node that says something else of itself than it should."""
    copy = Node.__new__(Node)
    for key in ("op", "inputs", "type", "digest"):
        object.__setattr__(copy, key, changed.get(key, getattr(made, key)))
    return copy


def test_a_node_with_another_type_than_inferred_is_an_error() -> None:
    good = vector(3).abs().exp().node
    wrong = forged(good.inputs[0], type=Vector(3, "float32"))
    with pytest.raises(RewriteError, match="changed a type"):
        verify({"a": good}, {"a": forged(good, inputs=(wrong,))}, "somebody")


def test_a_node_that_cannot_have_a_type_is_an_error() -> None:
    good = vector(3).multiply([1.0, 2.0, 3.0]).node
    other = vector(4, name="y").abs().node
    with pytest.raises(RewriteError, match="has no type"):
        verify({"a": good, "b": other}, {"a": forged(good, inputs=(other,)), "b": other}, "it")


def test_a_circle_is_an_error() -> None:
    first = vector(3).abs().node
    looped = forged(first)
    object.__setattr__(looped, "inputs", (looped,))
    with pytest.raises(RewriteError, match="made a circle"):
        verify({"a": first}, {"a": looped}, "somebody")


# --- switches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["remove_identity", "tidy, finish", "all", "merge,all"])
def test_rules_and_passes_can_be_left_out(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = vector(3).as_float().sigmoid()
    assert "remove_identity" in trace(flow).fired or names
    monkeypatch.setenv("PRETZEL_WITHOUT", names)
    left = {"tidy, finish": {"remove_identity"}}.get(names, set())
    assert trace(flow).fired == left


def test_a_name_that_means_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRETZEL_WITHOUT", "merge,remove_identities")
    with pytest.raises(RewriteError, match="no rule or pass: remove_identities") as caught:
        optimise(vector(3), exact=False)
    assert "remove_identity" in str(caught.value)


@pytest.mark.parametrize(
    ("preserves", "default", "exact"),
    [(BITS, True, True), (REASSOCIATES, True, False), (APPROXIMATES, False, False)],
)
def test_what_a_rule_preserves_decides_when_it_applies(
    preserves: Preserves, *, default: bool, exact: bool
) -> None:
    rule = replace(Abs, lambda m: m["x"], preserves=preserves)
    flow = vector(3).abs()
    assert bool(trace(flow, passes=a_pass(rule)).firings) is default
    assert bool(trace(flow, exact=True, passes=a_pass(rule)).firings) is exact


# --- trace ----------------------------------------------------------------------------------------


def scaled_model() -> Flow:
    """A scaler and a linear map."""
    x = vector(2).as_float().subtract([1.0, 2.0]).divide([3.0, 4.0])
    return x.linear([[1.0, 2.0]], [0.5])


def test_the_trace_says_what_fired_where_and_what_did_not() -> None:
    made = trace(scaled_model())
    text = re.sub(r"\.py:\d+", ".py:N", made.text())
    assert text == (
        "== tidy\n"
        "remove_identity  (oven/optimise/rules/remove_identity.py:N)\n"
        "    AsFloat(x)\n"
        " -> x\n"
        "%0 = x : Vector[2, float64]\n"
        "%1 = Subtract[2](%0) : Vector[2, float64]\n"
        "%2 = Divide[2](%1) : Vector[2, float64]\n"
        "%3 = Linear[1x2, 1](%2) : Vector[1, float64]\n"
        "output = %3\n"
        "== decide (unchanged)\n"
        "== narrow (unchanged)\n"
        "== merge\n"
        "affine_into_linear  (oven/optimise/rules/affine_into_linear.py:N)\n"
        "    Linear[1x2, 1](Divide[2](Subtract[2](x)))\n"
        " -> Linear[1x2, 1](x)\n"
        "%0 = x : Vector[2, float64]\n"
        "%1 = Linear[1x2, 1](%0) : Vector[1, float64]\n"
        "output = %1\n"
        "== collapse (unchanged)\n"
        "== join (unchanged)\n"
        "== finish (unchanged)"
    )


def test_the_table_counts_tries_and_hits() -> None:
    table = trace(scaled_model()).table()
    (line,) = (line for line in table.splitlines() if "affine_into_linear" in line)
    assert re.match(r"    1 / \d+ +\d+\.\d{3} ms  affine_into_linear  oven/optimise/rules/", line)
    assert len(table.splitlines()) == len(RULES)


def test_an_unchanged_program_is_the_same_object() -> None:
    flow = vector(3).sigmoid()
    assert optimise(flow, exact=False) is flow


def test_optimising_twice_changes_nothing() -> None:
    once = optimise(scaled_model(), exact=False)
    assert optimise(once, exact=False) is once


# --- provenance -----------------------------------------------------------------------------------


def test_what_a_rule_makes_comes_from_what_it_replaced() -> None:
    flow = scaled_model()
    made = optimise(flow, exact=False)
    lines = {place.line for places in flow.origins().values() for place in places}
    found = {place.line for place in made.origins()[made.node]}
    assert found <= lines
    assert len(found) == 2, "the scaler's line and the linear map's"


def test_what_only_moved_keeps_its_origins() -> None:
    flow = vector(3).as_float().exp()
    made = optimise(flow, exact=False)
    assert made.origins()[made.node] == flow.origins()[flow.node]


# --- patterns -------------------------------------------------------------------------------------


def test_a_hole_that_is_named_twice_is_one_node() -> None:
    x, y = vector(3), vector(3, name="y")
    pattern = op(type((x + y).node.op), name="sum")(hole("x"), hole("x"))
    for flow, fits in ((x + x, True), (x + y, False)):
        facts = ProgramFacts([flow.node])
        assert (match(pattern, flow.node, facts) is not None) is fits


def test_a_chain_takes_as_many_as_fit_and_a_rest_what_is_left() -> None:
    flow = vector(3).add([1.0]).multiply([2.0]).add([3.0]).concat(vector(1, name="y"))
    item = flow.node
    found = match(
        op(type(item.op))(chain(Add, Multiply)(hole("x")), rest("more")), item, ProgramFacts([item])
    )
    assert found is not None
    assert [step.op.name for step in found.many("steps")] == ["Add", "Multiply", "Add"]
    assert found["x"] is vector(3).node
    assert found.many("more") == (vector(1, name="y").node,)
    assert found.holes == (vector(1, name="y").node, vector(3).node)


def test_a_pattern_needs_as_many_inputs_as_it_names() -> None:
    item = vector(3).concat(vector(1, name="y")).node
    assert match(op(type(item.op))(hole("x")), item, ProgramFacts([item])) is None


def test_facts_know_the_readers() -> None:
    x = vector(3)
    flow = outputs(a=x.abs(), b=x.abs().exp())
    facts = ProgramFacts(list(flow.outputs.values()))
    assert facts.sole_reader(x.node) is x.abs().node
    assert facts.sole_reader(x.abs().node) is None, "an output has an unknown reader"
    assert facts.is_output(x.abs().node)
    assert not facts.is_output(x.node)


def test_substitution_follows_replacements_of_replacements() -> None:
    x = vector(3)
    first, second, third = x.abs().node, x.abs().exp().node, x.abs().exp().sum().node
    moved = substitute([third], {first: x.node, second: x.abs().negate().node})
    assert moved[third] is x.negate().sum().node
