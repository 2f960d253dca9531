"""Plans as files: what was saved comes back, and answers the same."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour import Flow
from flour.core.errors import FlourError
from flour.core.sparse import densify
from objectstore import Archive, ArchiveError, Blob, FileStore, MemoryStore
from objectstore.archive import write
from oven.errors import DamagedPlan
from oven.plans.code import PlanCode
from oven.plans.manifest import MAX_NODES
from oven.plans.plan import Plan
from oven.plans.program import PlanProgram
from tests.house import run_python
from tests.oven.programs import PROGRAMS

ROOT = Path(__file__).parents[3]


def same(got: dict[str, Any], want: dict[str, Any]) -> None:
    """Every bit of every output."""
    assert list(got) == list(want)
    for name in want:
        left, right = (np.asarray(densify(dense(side[name]))) for side in (got, want))
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right, err_msg=name)


def dense(value: Any) -> Any:
    """The same values with their zeros."""
    return value.toarray() if hasattr(value, "toarray") else value


def baked(name: str, **how: Any) -> tuple[Plan, Any]:
    flow, data = PROGRAMS[name]()
    return oven.bake(flow, **how), data


def rewritten(plan: Plan, path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The plan's file with its manifest changed and everything sealed again."""
    plan.save(path)
    with Archive.open(path) as archive:
        manifest: dict[str, Any] = json.loads(json.dumps(archive.manifest))
        change(manifest)
        write(path, manifest, {digest: archive.get(digest) for digest in archive.digests()})
    return path


# --- there and back ---------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [False, True], ids=["default", "exact"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loaded_plan_answers_as_the_saved_one(name: str, *, exact: bool, tmp_path: Path) -> None:
    plan, data = baked(name, exact=exact)
    plan.save(tmp_path / "a.plan")
    loaded = oven.load(tmp_path / "a.plan")
    same(loaded.run(data), plan.run(data))
    assert loaded.exact == exact
    assert loaded.flow.outputs == plan.flow.outputs
    assert loaded.program.optimised.outputs == plan.program.optimised.outputs
    assert [stage.source for stage in loaded.program.stages] == [
        stage.source for stage in plan.program.stages
    ]
    for ours, theirs in (
        (loaded.flow, plan.flow),
        (loaded.program.optimised, plan.program.optimised),
    ):
        known = theirs.origins()
        assert ours.origins() == {item: known[item] for item in ours.nodes() if item in known}


@pytest.mark.parametrize("name", PROGRAMS)
def test_saving_a_loaded_plan_gives_the_same_file(name: str, tmp_path: Path) -> None:
    plan, _ = baked(name)
    plan.save(tmp_path / "a.plan")
    oven.load(tmp_path / "a.plan").save(tmp_path / "b.plan")
    assert (tmp_path / "b.plan").read_bytes() == (tmp_path / "a.plan").read_bytes()


def test_the_order_of_outputs_is_kept(tmp_path: Path) -> None:
    x = flour.vector("x", 2)
    names = ["z", "a", "m", "b"]
    plan = oven.bake(
        flour.outputs(**{name: x.add([float(i), 1.0]) for i, name in enumerate(names)})
    )
    plan.save(tmp_path / "a.plan")
    assert list(oven.load(tmp_path / "a.plan").run(np.ones((1, 2)))) == names


def test_a_plan_file_holds_no_code_and_no_python_names(tmp_path: Path) -> None:
    plan, _ = baked("scaled_logistic")
    plan.save(tmp_path / "a.plan")
    raw = (tmp_path / "a.plan").read_bytes()
    for word in (b"flour", b"oven", b"sklearn.", b"import", b"lambda", b"numpy", b"def "):
        assert word not in raw
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(raw)


def test_parameters_are_views_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    weights = np.random.default_rng(8).normal(size=(1, 40_000))
    oven.bake(flour.vector("x", 40_000).linear(weights, [0.5])).save(path)
    del weights
    loaded = oven.load(path)
    big = max(
        (item for item in loaded.program.parameters() if isinstance(item, Blob)),
        key=lambda b: b.nbytes,
    )
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    mapped = [line.split()[0].split("-") for line in lines if line.endswith(str(path))]
    where = big.array.ctypes.data
    assert any(int(start, 16) <= where < int(end, 16) for start, end in mapped), "an own array"


def test_what_code_wants_in_another_order_is_mapped_too(tmp_path: Path) -> None:
    plan, data = baked("wide_linear")
    plan.save(tmp_path / "a.plan")
    with Archive.open(tmp_path / "a.plan") as archive:
        derived: Any = archive.manifest["derived"]
    assert derived, "the kernel reads its weights in another order"
    want = plan.run(data)
    loaded = oven.load(tmp_path / "a.plan")
    read = {item.digest for stage in loaded.program.stages for item in stage.parameters()}
    assert set(derived) <= read
    same(loaded.run(data), want)


# --- one copy ----------------------------------------------------------------------------------


def test_plans_share_what_they_have_in_common() -> None:
    shared = np.random.default_rng(1).normal(size=(50, 200))
    also = np.random.default_rng(2).normal(size=(1, 50))
    store = MemoryStore()
    x = flour.vector("x", 200)
    plans = []
    for number in range(250):
        flow = x.linear(shared, np.full(50, float(number))).tanh().linear(also, [float(number)])
        plans.append(oven.bake(flow, exact=True))
        store.hold(f"tenant-{number}", plans[-1].program.parameters())
    unique = {item.digest: item.nbytes for plan in plans for item in plan.program.parameters()}
    report = store.report()
    assert report.unique_bytes == sum(unique.values())
    assert report.unique_bytes < 2.5 * (shared.nbytes + also.nbytes) + 250 * 3 * 500
    assert report.held_bytes > 200 * shared.nbytes
    assert store.own_bytes("tenant-7") < 1000 < store.shared_bytes("tenant-7")
    assert {stage.source for plan in plans for stage in plan.program.stages} == {
        stage.source for stage in plans[0].program.stages
    }


def test_plans_of_one_shape_share_the_text_of_their_code(tmp_path: Path) -> None:
    plans = []
    for n in range(2):
        oven.bake(flour.vector("x", 3).linear([[n, 2.0, 3.0]], [0.5])).save(tmp_path / "a.plan")
        plans.append(oven.load(tmp_path / "a.plan"))
    one, other = (plan.program.stages[0] for plan in plans)
    assert one.source is other.source
    assert one.slots != other.slots


def test_where_nodes_come_from_is_one_object_for_all_plans(tmp_path: Path) -> None:
    """Lines of programs repeat in every plan that they made."""
    flows = [flour.vector("x", 3).add([n, 2.0, 3.0]) for n in (1.0, 2.0)]
    found = []
    for flow in flows:
        oven.bake(flow).save(tmp_path / "a.plan")
        (origins,) = {*oven.load(tmp_path / "a.plan").flow.origins().values()}
        found.append(origins)
        assert origins == flow.origins()[flow.node]
    assert found[0][0] is found[1][0]


def test_equal_content_meets_whatever_form_it_came_in() -> None:
    values = np.arange(1.0, 7.0)
    forms: list[Any] = [values, values.tolist(), values.astype(">f8"), np.repeat(values, 2)[::2]]
    plans = [oven.bake(flour.vector("x", 6).subtract(form)) for form in forms]
    first = {id(item) for item in plans[0].program.parameters()}
    assert all({id(item) for item in plan.program.parameters()} == first for plan in plans)


def test_a_store_keeps_one_copy_for_all_plans_loaded_into_it(tmp_path: Path) -> None:
    plan, data = baked("wide_linear")
    want = plan.run(data)
    for name in "abc":
        plan.save(tmp_path / f"{name}.plan")
    digests = {item.digest for item in plan.program.parameters()}
    del plan
    with FileStore(tmp_path / "store", durable=False) as store:
        loaded = [oven.load(tmp_path / f"{name}.plan", store=store) for name in "abc"]
        for name, one in zip("abc", loaded, strict=True):
            store.hold(name, one.program.parameters())
            same(one.run(data), want)
        assert digests <= set(store.digests())
        assert store.report().unique_bytes == sum(
            {
                item.digest: item.nbytes for one in loaded for item in one.program.parameters()
            }.values()
        )


# --- a fresh process ---------------------------------------------------------------------------

COUNT = """
import sys
import oven
from oven.compiler.cache import counters
for path in sys.argv[1:]:
    oven.load(path)
print(counters.compiled, "numba" in sys.modules, counters.from_disk > 0)
"""


def test_a_process_with_a_warm_cache_compiles_nothing(tmp_path: Path) -> None:
    paths = []
    for name in PROGRAMS:
        plan, _ = baked(name)
        plan.save(tmp_path / f"{name}.plan")
        paths.append(str(tmp_path / f"{name}.plan"))
    said = run_python(COUNT, *paths)
    assert said.split() == ["0", "False", "True"]


SPEED = """
import sys
from time import process_time
import oven
paths = sys.argv[1:]
oven.load(paths[0])
start = process_time()
for path in paths[1:]:
    oven.load(path)
print((process_time() - start) / (len(paths) - 1), oven.compiler.cache.counters.compiled)
"""


def test_small_plans_load_in_milliseconds(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    paths = []
    for number in range(60):
        scaled = flour.vector("x", 20).subtract(rng.normal(size=20)).divide(rng.uniform(1, 2, 20))
        plan = oven.bake(scaled.linear(rng.normal(size=(1, 20)), rng.normal(size=1)).sigmoid())
        paths.append(str(tmp_path / f"{number}.plan"))
        plan.save(paths[-1], durable=False)
    said = run_python(SPEED, *paths)
    seconds, compiled = said.split()
    assert compiled == "0"
    # About 0.001 of a quiet processor; the rest is room for busy and slow ones.
    assert float(seconds) < 0.01


# --- files that are not plans --------------------------------------------------------------------


def change_format(manifest: dict[str, Any]) -> None:
    manifest["format"] = 2


def change_format_to_bool(manifest: dict[str, Any]) -> None:
    manifest["format"] = True


def drop_key(manifest: dict[str, Any]) -> None:
    del manifest["origins"]


def add_key(manifest: dict[str, Any]) -> None:
    manifest["script"] = "print()"


def exact_is_a_number(manifest: dict[str, Any]) -> None:
    manifest["exact"] = 1


def read_forward(manifest: dict[str, Any]) -> None:
    manifest["nodes"][1][1] = [len(manifest["nodes"]) - 1]


def read_itself(manifest: dict[str, Any]) -> None:
    manifest["nodes"][1][1] = [1]


def read_before_all(manifest: dict[str, Any]) -> None:
    manifest["nodes"][1][1] = [-1]


def read_true(manifest: dict[str, Any]) -> None:
    manifest["nodes"][2][1] = [True]


def unknown_operator(manifest: dict[str, Any]) -> None:
    manifest["nodes"][1][0][0] = "Eval"


def abstract_operator(manifest: dict[str, Any]) -> None:
    manifest["nodes"][1][0][0] = "Elementwise"


def missing_parameter(manifest: dict[str, Any]) -> None:
    for node in manifest["nodes"]:
        for value in node[0][1].values():
            if isinstance(value, dict) and "parameter" in value:
                value["parameter"] = "0" * 32


def no_digest(manifest: dict[str, Any]) -> None:
    manifest["derived"] = ["../../etc/passwd"]


def nodes_are_a_dict(manifest: dict[str, Any]) -> None:
    manifest["nodes"] = {}


def no_outputs(manifest: dict[str, Any]) -> None:
    manifest["flow"], manifest["optimised"] = [], []


def same_output_twice(manifest: dict[str, Any]) -> None:
    manifest["flow"] = [*manifest["flow"], manifest["flow"][0]]
    manifest["optimised"] = [*manifest["optimised"], manifest["optimised"][0]]


def other_outputs(manifest: dict[str, Any]) -> None:
    manifest["optimised"][0][0] += "x"


def other_types(manifest: dict[str, Any]) -> None:
    manifest["optimised"][0][1] = 0


def origin_without_line(manifest: dict[str, Any]) -> None:
    manifest["origins"] = [[0, [["file.py", "1", ""]]]]


def origin_of_nothing(manifest: dict[str, Any]) -> None:
    manifest["origins"] = [[len(manifest["nodes"]), []]]


def too_many_nodes(manifest: dict[str, Any]) -> None:
    manifest["origins"] = [0] * (MAX_NODES + 1)


def source_without_a_type(manifest: dict[str, Any]) -> None:
    manifest["nodes"][0][0][1]["kind"] = "float64"


@pytest.mark.parametrize(
    "change",
    [
        change_format,
        change_format_to_bool,
        drop_key,
        add_key,
        exact_is_a_number,
        read_forward,
        read_itself,
        read_before_all,
        read_true,
        unknown_operator,
        abstract_operator,
        missing_parameter,
        no_digest,
        nodes_are_a_dict,
        no_outputs,
        same_output_twice,
        other_outputs,
        other_types,
        origin_without_line,
        origin_of_nothing,
        too_many_nodes,
        source_without_a_type,
    ],
    ids=lambda change: change.__name__,
)
def test_a_manifest_that_makes_no_sense_is_refused(
    change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    plan, _ = baked("scaled_logistic")
    path = rewritten(plan, tmp_path / "a.plan", change)
    with pytest.raises((DamagedPlan, ArchiveError, FlourError)) as caught:
        oven.load(path)
    assert isinstance(caught.value, DamagedPlan), type(caught.value)
    assert "a.plan" in str(caught.value.where)


def as_file(flow: Flow, path: Path) -> Path:
    """A file of this program, unoptimised, made without baking it."""
    plan = Plan.__new__(Plan)
    plan.program = PlanProgram(lambda: (flow, flow), exact=True)
    plan.exact, plan.program._stages = True, ()
    plan.code = PlanCode(plan.program, {}, (), background=False)
    plan.save(path)
    return path


def test_a_program_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    x = flour.vector("x", 2)
    for step in range(4000):
        x = x.add([float(step), 1.0])
    path = as_file(x, tmp_path / "a.plan")
    with pytest.raises(DamagedPlan):
        oven.load(path)


def test_a_vector_beyond_all_memory_is_refused(tmp_path: Path) -> None:
    wide = flour.vector("x", 2**29)
    flow = wide.concat(wide).sum()
    path = as_file(flow, tmp_path / "a.plan")
    with pytest.raises(DamagedPlan, match="too wide"):
        oven.load(path)


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    path.write_bytes(pickle.dumps({"plan": 1}))
    with pytest.raises(ArchiveError, match="not a Pretzel container"):
        oven.load(path)


def test_a_file_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot be opened"):
        oven.load(tmp_path / "none.plan")
