"""Plans loaded again: the same answers at once, and whatever is wrong is found as before."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import flour
import oven
from objectstore import ArchiveError, Blob, FileStore
from oven.compiler import cache
from oven.errors import DamagedPlan
from oven.explain import explain
from oven.plans import image_cache
from oven.plans.plan import Plan
from oven.plans.saved import PRACTICE_BYTES
from oven.plans.skeleton import PlanSkeleton
from oven.plans.values import by_definition
from oven.run.native_run import NativeRun
from tests.oven.plans.test_saved import same
from tests.oven.programs import PROGRAMS
from tests.resident import resident_bytes

#: Of the programs that one native run answers; the others are loaded as ever.
NATIVE = ["scaled_logistic", "wide_linear"]


@pytest.fixture(autouse=True)
def _images_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of this test only; machine code stays where it is."""
    monkeypatch.setattr(image_cache, "_folder", lambda: tmp_path / "images")


def saved(name: str, path: Path, **how: Any) -> tuple[Plan, Any]:
    """A plan in a file, and rows for it."""
    flow, data = PROGRAMS[name]()
    plan = oven.bake(flow, **how)
    plan.save(path, durable=False)
    return plan, data


def known(folder: Path) -> list[Path]:
    """The images that there are."""
    return sorted((folder / "images").glob("??/*.image"))


@pytest.mark.parametrize("exact", [False, True], ids=["default", "exact"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_loaded_again_is_the_same_plan(name: str, tmp_path: Path, *, exact: bool) -> None:
    plan, data = saved(name, tmp_path / "a.plan", exact=exact)
    again = oven.load(tmp_path / "a.plan")
    assert again.program.in_memory is (not known(tmp_path))
    want = plan.run(data)
    same(again.run(data), want)
    same(_chunked(again, data), want)
    assert (again.inputs, again.outputs, again.exact) == (plan.inputs, plan.outputs, plan.exact)
    facts = attrgetter("digest", "classes", "mixes_rows", "code.row_work")
    assert facts(again) == facts(plan)
    told = attrgetter("program.node_digests", "program.stage_kinds")
    assert told(again) == told(plan)
    assert again.begin(data).memory_bytes == plan.begin(data).memory_bytes
    assert repr(again) == repr(plan)
    assert again.flow.outputs == plan.flow.outputs
    assert again.program.optimised.outputs == plan.program.optimised.outputs
    assert explain(again) == explain(plan)
    assert again.program.parameters() == plan.program.parameters()


def _chunked(plan: Plan, data: Any) -> dict[str, Any]:
    work = plan.begin(data)
    chunk = work.chunk(0, work.rows)
    for number in range(work.steps):
        work.step(number, chunk)
    return work.finish()


@pytest.mark.parametrize("name", NATIVE)
def test_what_is_loaded_again_is_not_made_again(name: str, tmp_path: Path) -> None:
    plan, data = saved(name, tmp_path / "a.plan")
    assert len(known(tmp_path)) == 1
    again = oven.load(tmp_path / "a.plan")
    assert not again.program.in_memory
    same(again.run(data), plan.run(data))
    assert not again.program.in_memory


def test_labels_of_text_are_no_reason_to_make_a_plan_again(tmp_path: Path) -> None:
    scores = flour.vector("x", 3).linear(np.eye(3), [0.0, 1.0, 2.0])
    labels = scores.arg_max().take(["no", "yes", "maybe"])
    plan = oven.bake(flour.outputs(label=labels, scores=scores))
    plan.save(tmp_path / "a.plan")
    again = oven.load(tmp_path / "a.plan")
    assert len(plan.code.steps) == 2, "its labels are a step of Python"
    data = np.random.default_rng(3).normal(size=(9, 3))
    same(again.run(data), plan.run(data))
    same(_chunked(again, data), plan.run(data))
    assert again.classes == plan.classes == ("no", "yes", "maybe")
    facts = attrgetter("code.row_work", "code.entry_work", "program.stage_kinds")
    assert facts(again) == facts(plan)
    assert not again.program.in_memory


def test_loading_writes_an_image_where_there_is_none(tmp_path: Path) -> None:
    saved("scaled_logistic", tmp_path / "a.plan")
    (one,) = known(tmp_path)
    one.unlink()
    assert oven.load(tmp_path / "a.plan").program.in_memory
    assert known(tmp_path) == [one]
    assert not oven.load(tmp_path / "a.plan").program.in_memory


def test_other_widths_and_definitions_are_made_from_the_file(tmp_path: Path) -> None:
    plan, data = saved("scaled_logistic", tmp_path / "a.plan")
    again = oven.load(tmp_path / "a.plan")
    (tmp_path / "a.plan").unlink()  # it is mapped
    narrow = np.asarray(data, np.float32)
    same(again.run(narrow), plan.run(narrow))
    columns = {next(iter(plan.inputs)): np.asarray(data, float)}
    same(*(by_definition(each.program.optimised, columns) for each in (again, plan)))
    again.save(tmp_path / "b.plan")
    plan.save(tmp_path / "a.plan")
    assert (tmp_path / "b.plan").read_bytes() == (tmp_path / "a.plan").read_bytes()


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other"])
def test_a_damaged_image_is_as_good_as_none(damage: str, tmp_path: Path) -> None:
    plan, data = saved("wide_linear", tmp_path / "a.plan")
    (one,) = known(tmp_path)
    raw = one.read_bytes()
    other = bytearray(raw)
    other[len(raw) // 2] ^= 4
    found = {"cut": raw[:-1], "bit": bytes(other), "empty": b"", "other": b"?" * 99}
    one.write_bytes(found[damage])
    again = oven.load(tmp_path / "a.plan")
    assert again.program.in_memory
    same(again.run(data), plan.run(data))
    assert one.read_bytes() == raw, "it is written again"


def test_an_image_that_others_can_write_to_is_not_read(tmp_path: Path) -> None:
    saved("scaled_logistic", tmp_path / "a.plan")
    (one,) = known(tmp_path)
    one.chmod(0o666)
    assert oven.load(tmp_path / "a.plan").program.in_memory


def test_damage_in_what_a_known_plan_reads_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    weights = np.random.default_rng(8).normal(size=(1, 4000))
    oven.bake(flour.vector("x", 4000).linear(weights, [0.5])).save(path)
    assert known(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[-9] ^= 1  # of the last array
    path.write_bytes(raw)
    with pytest.raises((ArchiveError, DamagedPlan), match="damaged"):
        oven.load(path)
    path.write_bytes(raw[:-1])
    with pytest.raises(ArchiveError, match="length"):
        oven.load(path)


def test_without_its_machine_code_a_plan_is_loaded_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, data = saved("scaled_logistic", tmp_path / "a.plan")
    PlanSkeleton._all.clear()
    with monkeypatch.context() as patched:
        patched.setattr(cache, "find", lambda *_: None)
        patched.setattr("oven.compiler.cache.find", lambda *_: None)
        again = oven.load(tmp_path / "a.plan")
    assert again.program.in_memory
    same(again.run(data), plan.run(data))


def test_another_release_has_images_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved("scaled_logistic", tmp_path / "a.plan")
    image_cache._release.cache_clear()
    monkeypatch.setattr(image_cache, "_sources", lambda _: iter(["other.py 1 2"]))
    try:
        assert oven.load(tmp_path / "a.plan").program.in_memory
        assert len(known(tmp_path)) == 2
    finally:
        image_cache._release.cache_clear()


def test_operators_of_others_have_no_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = flour.vector("x", 3).add([1.0, 2.0, 3.0])
    monkeypatch.setattr(type(flow.node.op), "__module__", "theirs.operators")
    oven.bake(flow).save(tmp_path / "a.plan")
    assert not known(tmp_path)
    assert oven.load(tmp_path / "a.plan").program.in_memory


def test_equal_large_parameters_are_one_in_memory_and_small_ones_are_counted(
    tmp_path: Path,
) -> None:
    shared = np.random.default_rng(1).normal(size=(50, 200))
    plans = []
    for number in range(2):
        flow = flour.vector("x", 200).linear(shared, np.full(50, float(number)))
        oven.bake(flow).save(tmp_path / f"{number}.plan")
        plans.append(oven.load(tmp_path / f"{number}.plan"))
    first, second = (plan.program.resident() for plan in plans)
    assert first == second
    assert first
    assert {id(item) for item in first} == {id(item) for item in second}
    assert all(isinstance(item, Blob) and item.nbytes >= 4096 for item in first)
    (step,) = plans[0].code.steps
    assert isinstance(step, NativeRun)
    assert step.table_bytes > 50 * 8


def _centred(path: Path, centre: NDArray[np.float64], weights: NDArray[np.float64]) -> None:
    """A plan of two small parameters, which stay two."""
    oven.bake(flour.vector("x", 300).subtract(centre).linear(weights, [0.5]), exact=True).save(path)


def test_equal_small_parameters_of_plans_of_one_structure_are_one_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    centre, rows = rng.normal(size=300), rng.normal(size=(7, 300))
    weights = rng.normal(size=(3, 1, 300))
    for number, each in enumerate(weights):
        _centred(tmp_path / f"{number}.plan", centre, each)
    _centred(tmp_path / "other.plan", centre + 1, weights[0])
    plans = [oven.load(tmp_path / f"{number}.plan") for number in range(3)]
    other = oven.load(tmp_path / "other.plan")
    shared = set.intersection(*({id(one) for one in plan.program.resident()} for plan in plans))
    assert len(shared) == 1, "the centre"
    assert shared.isdisjoint({id(one) for one in other.program.resident()})
    for plan in plans:
        (step,) = plan.code.steps
        assert isinstance(step, NativeRun)
        assert step.table_bytes < centre.nbytes
    found = [plan.run(rows)["output"] for plan in (*plans, other)]
    for each, answer in zip(weights, found, strict=False):
        np.testing.assert_allclose(answer, (rows - centre) @ each.T + 0.5, rtol=1e-9)
    np.testing.assert_allclose(found[3], (rows - centre - 1) @ weights[0].T + 0.5, rtol=1e-9)
    del plans[0]
    gc.collect()
    again = [oven.load(tmp_path / f"{number}.plan") for number in range(3)]
    for plan, answer in zip([*plans, *again], [*found[1:3], *found[:3]], strict=True):
        np.testing.assert_array_equal(plan.run(rows)["output"], answer)


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux about its pages")
def test_a_new_plan_has_no_page_of_its_file_until_it_is_asked(tmp_path: Path) -> None:
    path, table = _wide(tmp_path)
    shutil.rmtree(tmp_path / "images")
    loaded = oven.load(path)
    assert loaded.program.in_memory
    assert resident_bytes(path) == 0
    rows = np.eye(_COLUMNS)[:3]
    np.testing.assert_array_equal(loaded.run(rows)["output"], table[:, :3].T)
    assert resident_bytes(path) > 0


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux about its pages")
@pytest.mark.parametrize("most", [0, PRACTICE_BYTES], ids=["all", "a row"])
def test_the_first_row_of_a_known_plan_waits_for_no_page(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oven.plans.saved.PRACTICE_BYTES", most)
    path, table = _wide(tmp_path)
    loaded = oven.load(path)
    assert not loaded.program.in_memory
    there = resident_bytes(path)
    assert most == 0 or 0 < there < path.stat().st_size
    (answer,) = loaded.entry()(np.eye(_COLUMNS)[0])
    np.testing.assert_array_equal(answer, table[:, 0])
    if most or there:  # kernels before 5.14 bring nothing unless it is read
        assert resident_bytes(path) == there


_COLUMNS = 20_000


def _wide(folder: Path) -> tuple[Path, NDArray[np.float64]]:
    """A plan whose weights are more than what is brought into memory for anybody."""
    table = np.random.default_rng(2).normal(size=(2, _COLUMNS))
    path = folder / "a.plan"
    oven.bake(flour.vector("x", _COLUMNS).linear(table, [0.0, 0.0])).save(path)
    return path, table


def test_a_store_is_given_what_a_known_plan_reads(tmp_path: Path) -> None:
    plan, data = saved("wide_linear", tmp_path / "a.plan")
    with FileStore(tmp_path / "store", durable=False) as store:
        again = oven.load(tmp_path / "a.plan", store=store)
        assert not again.program.in_memory
        store.hold("me", again.program.parameters())
        assert {item.digest for item in again.program.resident()} <= set(store.digests())
        same(again.run(data), plan.run(data))


def test_images_never_take_more_than_their_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_cache, "MOST_BYTES", 40_000)
    monkeypatch.setattr(image_cache, "LARGEST", 10_000)
    monkeypatch.setattr(image_cache, "_BYTES_A_LOOK", 10_000)
    for number in range(30):
        image_cache.write(bytes([number] * 16), bytes(4000))
        assert sum(each.stat().st_size for each in known(tmp_path)) <= 40_000
    image_cache.write(bytes(16), bytes(10_001))
    assert not image_cache._path(bytes(16)).exists()


def test_the_oldest_images_go_first(tmp_path: Path) -> None:
    for number in range(4):
        oven.bake(flour.vector("x", 2).add([number, 1.0])).save(tmp_path / "a.plan")
    every = known(tmp_path)
    for age, one in enumerate(every):
        os.utime(one, (1e9 - age, 1e9 - age))
    image_cache.evict(2 * every[0].stat().st_size)
    assert known(tmp_path) == every[:2]
