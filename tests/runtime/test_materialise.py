"""Common first parts of plans: found, tried, used where it pays, right in any case."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour import Flow
from runtime import Runtime
from runtime.service import groups, materialise
from runtime.service.groups import (
    CANDIDATE_SECONDS,
    DETOUR_SECONDS,
    LOOKS,
    OFF,
    ON,
    REVIEW_CALLS,
    TRIAL,
    TRIAL_CALLS,
    GroupCalls,
)
from runtime.service.materialise import cut
from runtime.service.results import Results, key_of, size_of
from tests.runtime.plans import documents, shift, text_flow

EXECUTORS = 1

TEXTS = documents(12, 4000)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are made as soon as calls are slow enough to gain from them."""
    monkeypatch.setattr(materialise, "BUILD_TIMES", 0)


def served_texts(count: int = 3) -> Runtime:
    runtime = Runtime(executors=1)
    for n in range(count):
        runtime.register(f"t{n}", text_flow(n))
    return runtime


def ask_all(runtime: Runtime, rounds: int, count: int = 3) -> None:
    """The same pairs of texts to every plan, as whoever compares models does."""
    for n in range(rounds):
        for m in range(count):
            start = n % (len(TEXTS) - 1)
            runtime.predict(f"t{m}", TEXTS[start : start + 2])
        if n % 16 == 0:
            runtime._materialiser.settle(60)


def test_a_call_that_outlives_its_version_keeps_nothing_of_it(runtime: Runtime) -> None:
    """It says what it took when the version has gone already."""
    for seconds in (CANDIDATE_SECONDS / 2, 1.0):
        runtime.register("a", shift(1.0))
        served = runtime.endpoints.find("a")
        runtime.unregister("a")
        runtime._materialiser.consider(served, seconds)
        del served
        gc.collect()
        assert runtime.stats().catalog.versions == 0


def test_a_common_first_part_is_found_and_used() -> None:
    with served_texts() as runtime:
        assert runtime.stats().groups == ()
        ask_all(runtime, 400)
        (group,) = runtime.stats().groups
        assert group.members == ("t0@1", "t1@1", "t2@1")
        assert group.mode == ON
        assert group.hits > 10 * group.misses > 0
        assert group.hit_rate > 0.9
        assert 0 < group.suffix_seconds < group.whole_seconds
        assert runtime.stats().result_bytes > 0
        assert (group.row_mode, group.block_mode) == (OFF, ON)
        assert "materialisation is off for rows, on for blocks" in runtime.explain("t0")


def test_answers_stay_the_same_all_the_way() -> None:
    with served_texts() as runtime:
        want = [oven.bake(text_flow(n)).run(TEXTS)["score"] for n in range(3)]
        for turn in range(300):
            n, text = turn % 3, turn // 3 % len(TEXTS)
            got = runtime.predict(f"t{n}", TEXTS[text])["score"]
            np.testing.assert_allclose(got, want[n][text], rtol=1e-12)
            block = runtime.predict(f"t{n}", TEXTS[:5])["score"]
            np.testing.assert_allclose(block, want[n][:5], rtol=1e-12)
        runtime._materialiser.settle(60)


def test_it_goes_with_the_last_member() -> None:
    with served_texts() as runtime:
        ask_all(runtime, 200)
        assert runtime.stats().result_bytes > 0
        runtime.unregister("t0")
        (group,) = runtime.stats().groups
        assert group.members == ("t1@1", "t2@1")
        runtime.unregister("t1")
        runtime.unregister("t2")
        stats = runtime.stats()
        assert stats.groups == ()
        assert stats.result_bytes == 0
        assert runtime._materialiser._nodes == {}
        assert runtime._materialiser._members == {}


def test_parts_are_made_when_calls_have_cost_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(materialise, "BUILD_TIMES", 1)
    monkeypatch.setattr(materialise, "BUILD_SECONDS", 0.2)
    with Runtime(executors=1) as runtime:
        plans = [runtime.register(f"t{n}", text_flow(n)) for n in range(2)]
        served = runtime.endpoints.find("t0")
        assert len(plans) == 2
        for _ in range(2):
            runtime._materialiser.consider(served, 1e-3, 2, 90)
            runtime._materialiser.consider(served, 1e-6, 2, 90)  # a quick one halves what was spent
        runtime._materialiser.settle(60)
        assert runtime.stats().groups == ()
        for _ in range(2):
            runtime._materialiser.consider(served, 1e-3, 2, 90)
        runtime._materialiser.settle(60)
        assert runtime.stats().groups != ()


def test_a_common_part_that_is_next_to_nothing_is_not_shared(runtime: Runtime) -> None:
    """All that both do with the same input is to take it as numbers."""
    rng = np.random.default_rng(0)
    for n in range(2):
        numbers = flour.vector("x", 400).sqrt()
        wide = numbers.linear(rng.normal(size=(300, 400)), np.zeros(300))
        runtime.register(f"p{n}", flour.outputs(y=wide))
    for _ in range(4):
        runtime._materialiser.consider(runtime.endpoints.find("p0"), 1e-3, 100, 90)
    runtime._materialiser.settle(60)
    assert runtime.stats().groups == ()


def test_plans_with_nothing_in_common_are_left_alone(runtime: Runtime) -> None:
    runtime.register("a", text_flow(0))
    runtime.register("b", shift(1.0))
    for n in range(100):
        runtime.predict("a", [TEXTS[n % 12]] * 2)
    runtime._materialiser.settle(60)
    assert runtime.stats().groups == ()


def test_without_room_for_results_nothing_is_tried() -> None:
    with Runtime(executors=1, result_bytes=0) as runtime:
        for n in range(2):
            runtime.register(f"t{n}", text_flow(n))
        ask_all(runtime, 40, 2)
        assert runtime.stats().groups == ()


def test_a_plan_dropped_for_memory_leaves_its_group() -> None:
    with Runtime(executors=1, memory_budget=1 << 40) as runtime:
        for n in range(2):
            runtime.register(f"t{n}", text_flow(n))
        ask_all(runtime, 100, 2)
        assert len(runtime.stats().groups[0].members) == 2
        runtime._memory.budget = 1
        runtime.register("big", shift(1.0))
        assert runtime.stats().groups == ()
        want = oven.bake(text_flow(0)).run(TEXTS)["score"][0]
        np.testing.assert_allclose(runtime.predict("t0", TEXTS[0])["score"], want, rtol=1e-12)


def test_what_callers_do_to_answers_does_not_spread(runtime: Runtime) -> None:
    """Two versions of one program: all of it is in common, outputs included."""
    for n in range(2):
        runtime.register(f"t{n}", text_flow(7))
    ask_all(runtime, 200, 2)
    assert runtime.stats().groups != ()
    first = runtime.predict("t0", [TEXTS[0]])["score"]
    want = first.copy()
    first[:] = 77.0
    np.testing.assert_array_equal(runtime.predict("t1", [TEXTS[0]])["score"], want)


def test_many_threads() -> None:
    want = [oven.bake(text_flow(n)).run(TEXTS)["score"] for n in range(3)]
    with served_texts() as runtime:

        def ask(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(300):
                n, text = int(rng.integers(3)), int(rng.integers(12))
                got = runtime.predict(f"t{n}", [TEXTS[text], TEXTS[0]])["score"]
                np.testing.assert_allclose(got, want[n][[text, 0]], rtol=1e-12)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(ask, range(4)))
        runtime._materialiser.settle(60)
        assert runtime.stats().groups[0].hits > 0


# --- when it pays --------------------------------------------------------------------------------


def way_after(*, whole: float, first: float, rest: float, hit_rate: float) -> GroupCalls:
    """A way after a trial in which calls took so long."""
    way = GroupCalls(())
    for _ in range(LOOKS):
        assert way.mode == OFF
        way.passed(1, 1.0)
    assert way.mode == TRIAL
    way.whole = type(way.whole)()
    for n in range(TRIAL_CALLS + 1):
        if not way.next():
            way.whole.add(whole)
            continue
        hit = (n * 7919 % 100) < 100 * hit_rate
        way.looked(hit=hit)
        way.rest.add(rest)
        if not hit:
            way.first.add(first)
    return way


@pytest.mark.parametrize(
    ("facts", "mode"),
    [
        ({"whole": 100e-6, "first": 90e-6, "rest": 15e-6, "hit_rate": 0.9}, ON),
        ({"whole": 100e-6, "first": 90e-6, "rest": 15e-6, "hit_rate": 0.0}, OFF),
        ({"whole": 100e-6, "first": 10e-6, "rest": 95e-6, "hit_rate": 1.0}, OFF),
        ({"whole": 20e-6, "first": 90e-6, "rest": 15e-6, "hit_rate": 0.5}, OFF),
    ],
    ids=["pays", "no hits", "a cheap first part", "the cut costs more"],
)
def test_only_what_pays_is_used(facts: dict[str, float], mode: str) -> None:
    assert way_after(**facts).mode == mode


def test_what_is_over_sooner_than_a_look_up_is_never_tried() -> None:
    way = GroupCalls(())
    way.detour = DETOUR_SECONDS
    for _ in range(1000):
        way.passed(1 << 20, CANDIDATE_SECONDS)
    assert way.mode == OFF
    assert not way.next()
    for _ in range(40):
        way.passed(1 << 20, CANDIDATE_SECONDS + 2 * DETOUR_SECONDS)
    assert way.mode == TRIAL


def test_one_call_that_was_interrupted_starts_no_trial() -> None:
    way = GroupCalls(())
    for _ in range(8):
        way.passed(1 << 20, 2e-6)
    way.passed(1 << 20, 50e-3)
    assert way.mode == OFF


def test_a_trial_in_which_nothing_can_be_looked_up_ends() -> None:
    """Large blocks have no key; the shortest way must not stay shut for them."""
    way = GroupCalls(())
    for _ in range(LOOKS):
        way.passed(1, 1.0)
    assert way.mode == TRIAL
    for _ in range(TRIAL_CALLS + 1):
        way.next()
    assert way.mode == OFF


def test_the_way_around_the_entry_is_a_cost() -> None:
    """What is not lost by blocks is lost by rows: they had the shortest way."""
    modes = []
    for detour in (0.0, 20e-6):
        way = GroupCalls(())
        way.detour = detour
        for _ in range(LOOKS):
            way.passed(1, 1.0)
        for _ in range(TRIAL_CALLS + 1):
            if way.next():
                way.looked(hit=True)
                way.rest.add(15e-6)
            else:
                way.whole.value = 30e-6
        modes.append(way.mode)
    assert modes == [ON, OFF]


def test_rows_keep_their_way_when_blocks_share() -> None:
    """Blocks that gain much must not cost single rows anything."""
    with served_texts() as runtime:
        ask_all(runtime, 400)
        for n in range(3):
            served = runtime.endpoints.find(f"t{n}")
            assert served.shared is not None
            assert served.entry.function is served.residence.opened is not None
        (group,) = runtime.stats().groups
        assert (group.row_mode, group.block_mode) == (OFF, ON)
        looks = group.hits + group.misses
        for text in TEXTS:
            runtime.predict("t0", text)
        (group,) = runtime.stats().groups
        assert group.hits + group.misses == looks


def test_long_rows_share_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose first part takes far longer than the entry saves."""
    monkeypatch.setattr(groups, "TRIAL_SHARE", 1)
    monkeypatch.setattr(groups, "REST_CALLS", 1)
    texts = documents(6, 20_000)
    with served_texts() as runtime:
        for n in range(4000):
            for m in range(3):
                runtime.predict(f"t{m}", texts[n % len(texts)])
            if n % 64 == 63:
                runtime._materialiser.settle(60)
                if [group.row_mode for group in runtime.stats().groups] == [ON]:
                    break  # a trial among others' work may find that it does not pay
        (group,) = runtime.stats().groups
        assert group.row_mode == ON
        assert group.hits > group.misses > 0
        want = oven.bake(text_flow(1)).run(texts)["score"]
        found = [runtime.predict("t1", text)["score"] for text in texts]
        np.testing.assert_allclose(found, want, rtol=1e-12)


def test_what_does_not_pay_any_more_ends_and_is_tried_again() -> None:
    way = way_after(whole=100e-6, first=90e-6, rest=15e-6, hit_rate=0.9)
    for _ in range(REVIEW_CALLS + 1):
        if way.next():
            way.looked(hit=False)
            way.first.add(90e-6)
    assert way.mode == OFF
    way.passed(1 << 30, 100e-6)
    assert way.mode == TRIAL


def test_what_has_become_faster_without_it_goes_back() -> None:
    """One call in some goes the ordinary way, also while that is not the usual one."""
    way = way_after(whole=100e-6, first=90e-6, rest=15e-6, hit_rate=0.9)
    assert way.mode == ON
    for _ in range(20 * REVIEW_CALLS):
        if way.mode == OFF:
            break
        if way.next():
            way.looked(hit=True)
            way.rest.add(15e-6)
        else:
            way.whole.add(10e-6)
    assert way.mode == OFF


def test_a_row_of_a_member_is_not_put_to_the_policy() -> None:
    with served_texts() as runtime:
        ask_all(runtime, 200)
        served = runtime.endpoints.find("t0")
        assert served.shared is not None
        for mode in (OFF, ON):
            served.shared.group.rows.mode = mode
            served.open()
            assert (served.entry.function is None) is (mode is ON)
            served.learned.decision = None
            runtime.predict("t0", "word001 word002")
            assert served.learned.decision is None


# --- where programs part -------------------------------------------------------------------------


def parts(flow: Flow, shared: Callable[[str], bool]) -> list[list[str]] | None:
    found = cut(flow, lambda item: shared(item.op.name))
    if found is None:
        return None
    return [
        [item.op.name for item in part.nodes() if item.op.name != "Source"]
        for part in (found.prefix, found.suffix)
    ]


def test_a_program_is_cut_after_what_it_shares() -> None:
    flow = text_flow(0)
    assert parts(flow, lambda name: name != "Linear") == [["Tokenize", "WordNgrams"], ["Linear"]]
    assert parts(flow, lambda name: name == "Tokenize") == [["Tokenize"], ["WordNgrams", "Linear"]]
    assert parts(flow, lambda _: False) is None


def test_a_rest_that_needs_the_data_again_is_no_rest() -> None:
    x = flour.vector("x", 2)
    flow = flour.outputs(a=x.add([1.0, 2.0]).max(), b=x.multiply([2.0]))
    assert parts(flow, lambda name: name == "Add") is None


def test_the_parts_together_are_the_program() -> None:
    flow = text_flow(3)
    found = cut(flow, lambda item: item.op.name != "Linear")
    assert found is not None
    middle = found.prefix.reference(TEXTS)
    columns = {name: np.asarray(value.toarray()) for name, value in middle.items()}
    end = oven.bake(found.suffix).run(columns)["score"]
    np.testing.assert_allclose(end, flow.reference(TEXTS)["score"], rtol=1e-12)


# --- what is kept --------------------------------------------------------------------------------


def test_results_are_bounded_and_the_oldest_go() -> None:
    value = {"v": np.zeros(50)}
    each = 400 + size_of(value) + size_of(1)
    results = Results(10 * each)
    for n in range(10):
        results.put(1, n, value)
    assert results.get(1, 0) is value
    results.put(2, 0, value)
    assert results.get(1, 1) is None
    assert results.get(1, 0) is value
    assert results.used == 10 * each <= results.budget
    results.put(1, 99, {"v": np.zeros(500)})
    assert results.get(1, 99) is None, "one large result is not worth many small ones"
    results.drop(1)
    assert (len(results), results.used) == (1, each)


SAME: list[tuple[Any, Any]] = [
    (np.ones((2, 2)), np.ones((2, 2))),
    (["a", "b"], ["a", "b"]),
    ({"x": [1.0], "y": ["a"]}, {"x": [1.0], "y": ["a"]}),
    ([[1.0, 2.0]], [[1.0, 2.0]]),
    (["x" * 1000], ["x" * 1000]),
    ({"x": 1.0, "y": "a", "z": None}, {"x": 1.0, "y": "a", "z": None}),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (np.ones((2, 2)), np.ones((1, 4))),
    (np.ones((2, 2)), np.ones((2, 2), np.float32)),
    (np.zeros((1, 1)), -np.zeros((1, 1))),
    (["ab", "c"], ["a", "bc"]),
    (["1;a"], ["1", "a"]),
    ({"x": [1.0]}, {"x": [1]}),
    ({"x": [1]}, {"x": [True]}),
    ({"x": ["1"]}, {"x": [1]}),
    ([[1.0, 2.0]], [[1.0, 2]]),
    (["x" * 1000], ["x" * 999 + "y"]),
    (np.zeros((1, 100)), np.ones((1, 100))),
    ({"x": 1.0}, {"x": [1.0]}),
    ({"x": 1.0}, {"x": 1}),
    ({"x": "1"}, {"x": 1}),
    ({"x": None}, {"x": "None"}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_inputs_have_equal_keys(one: Any, other: Any) -> None:
    assert key_of(one) == key_of(other) is not None


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_inputs_have_different_keys(one: Any, other: Any) -> None:
    assert key_of(one) != key_of(other)


@pytest.mark.parametrize(
    "block", [np.zeros((300, 1)), ["a"] * 300, [object()], object(), [[1], [2]]]
)
def test_what_is_not_looked_at(block: Any) -> None:
    assert key_of(block) is None
