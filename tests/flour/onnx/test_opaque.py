"""Parts of ONNX models on onnxruntime: where they begin and end, what they share and hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import flour
import oven
from flour.core.errors import OpaqueFailed, ParameterError
from flour.onnx import import_model
from flour.onnx.errors import NotNative
from flour.onnx.model import NodeDef
from flour.onnx.opaque import OpaquePart, keeps_rows_apart
from flour.onnx.tensor import Tensor
from flour.ops.opaque import Opaque, PartWire
from objectstore import Blob
from oven import Plan
from oven.errors import DamagedPlan
from oven.explain import explain
from runtime import Runtime
from tests.onnx_parts import (
    FLOAT,
    INT64,
    STRING,
    black_in_the_middle,
    black_weights,
    model,
    node,
    theirs,
)

ROWS = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)


def opaque_of(plan: Plan) -> Opaque:
    """The one opaque operator of a plan."""
    (found,) = [item.op for item in plan.program.optimised.nodes() if isinstance(item.op, Opaque)]
    return found


def test_only_what_has_no_native_code_is_black() -> None:
    made = black_in_the_middle()
    plan = oven.bake(import_model(made).flow)
    np.testing.assert_allclose(plan.run(ROWS)["y"], theirs(made, x=ROWS)[0], atol=1e-5)
    kinds = [stage.kind for stage in plan.program.stages]
    assert kinds.count("python") == 1
    assert kinds[0] != "python" != kinds[-1]
    assert "onnxruntime (black)" in explain(plan)
    assert "DynamicQuantizeLinear" in explain(plan)
    assert "runs on onnxruntime" in explain(plan, "source")


def test_native_only_refuses_and_names_the_node() -> None:
    with pytest.raises(NotNative, match="DynamicQuantizeLinear"):
        import_model(black_in_the_middle(), native_only=True)


def test_rows_that_look_at_each_other_are_never_cut() -> None:
    made = black_in_the_middle()
    plan = oven.bake(import_model(made).flow)
    assert plan.mixes_rows
    rows = np.random.default_rng(2).normal(size=(5000, 4)).astype(np.float32)
    want = theirs(made, x=rows)[0]
    work = plan.begin(rows)
    assert work.uncut
    with pytest.raises(AssertionError):
        work.chunk(0, 100)
    with Runtime(executors=2) as runtime:
        runtime.register("m", plan)
        for engine in ("inline", "batch"):
            got = runtime.predict("m", rows, engine=engine)["y"]
            np.testing.assert_allclose(got, want, atol=1e-5)
        late = runtime.predict("m", rows, timeout=60.0)["y"]
        np.testing.assert_allclose(late, want, atol=1e-5)
    # The check can fail: in two halves every row's answer is another one.
    halves = np.concatenate([plan.run(rows[:2500])["y"], plan.run(rows[2500:])["y"]])
    assert not np.allclose(halves, want, atol=1e-5)


def test_a_saved_plan_answers_the_same(tmp_path: Path) -> None:
    made = black_weights()
    rows = np.random.default_rng(3).normal(size=(9, 64)).astype(np.float32)
    want = theirs(made, x=rows[:, None])[0][:, :, 0]
    plan = oven.bake(import_model(made).flow)
    plan.save(tmp_path / "p.plan")
    again = oven.load(tmp_path / "p.plan")
    np.testing.assert_array_equal(again.run(rows)["y"], plan.run(rows)["y"])
    np.testing.assert_allclose(again.run(rows)["y"], want, rtol=1e-4, atol=1e-5)


def test_large_constants_are_parameters_that_models_share() -> None:
    first, second = (
        opaque_of(oven.bake(import_model(black_weights(seed)).flow)) for seed in (1, 2)
    )
    shared = set(first.weights) & set(second.weights)
    assert [blob.nbytes for blob in shared] == [4 * 64 * 200]
    assert first.model.nbytes < 2000
    assert all(one is two for one in shared for two in second.weights if one == two)


def test_sessions_are_made_late_and_given_back() -> None:
    plan = oven.bake(import_model(black_weights()).flow)
    op = opaque_of(plan)
    assert op.held_bytes() > 0
    assert not op.running()
    rows = np.ones((2, 64), np.float32)
    want = plan.run(rows)["y"]
    assert op.running()
    plan.program.release()
    assert not op.running()
    np.testing.assert_array_equal(plan.run(rows)["y"], want)


def test_a_plan_that_is_dropped_for_memory_drops_its_session(tmp_path: Path) -> None:
    flows = {f"m{seed}": import_model(black_weights(seed)).flow for seed in range(3)}
    rows = np.ones((2, 64), np.float32)
    with Runtime(memory_budget=250_000, spill=tmp_path) as runtime:
        for name, flow in flows.items():
            runtime.register(name, flow)
            runtime.predict(name, rows)
        memory = runtime.stats().memory
        assert memory.evictions
        held = [
            item.op.running()
            for flow in flows.values()
            for item in flow.nodes()
            if isinstance(item.op, Opaque)
        ]
        assert held.count(True) < len(held)
        for name, flow in flows.items():  # and back again
            want = flow.reference(rows)["y"]
            np.testing.assert_allclose(runtime.predict(name, rows)["y"], want, rtol=1e-6)


def test_many_threads_share_one_session() -> None:
    plan = oven.bake(import_model(black_weights()).flow)
    blocks = [np.full((3, 64), k % 7, np.float32) for k in range(40)]
    want = [plan.run(block)["y"] for block in blocks]
    plan.program.release()
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda block: plan.run(block)["y"], blocks))
    for one, two in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, two)


def test_no_rows_give_no_rows() -> None:
    plan = oven.bake(import_model(black_weights()).flow)
    assert plan.run(np.empty((0, 64), np.float32))["y"].shape == (0, 200)


# --- values for all rows ------------------------------------------------------------------------


def test_answers_whose_shape_depends_on_the_data_run_as_a_whole() -> None:
    made = model(
        [node("NonZero", ["x"], ["z"]), node("Mul", ["x", "x"], ["y"])],
        [("x", FLOAT, ["N", "M"])],
        [("z", TensorProto.INT64, [2, None]), ("y", FLOAT, ["N", "M"])],
    )
    plan = oven.bake(import_model(made).flow)
    for shape in ((3, 4), (5, 2), (0, 3)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        for got, want in zip(plan.run({"x": x}).values(), theirs(made, x=x), strict=True):
            np.testing.assert_array_equal(got, want)
    with Runtime() as runtime:
        runtime.register("m", plan)
        x = np.ones((3, 4), np.float32)
        assert runtime.predict("m", {"x": x})["z"].shape == (2, 12)
        assert runtime.predict("m", {"x": x}, engine="batch")["z"].shape == (2, 12)


def test_sequences_come_out_as_they_are(tmp_path: Path) -> None:
    made = model(
        [node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=0)],  # as many as there are rows
        [("x", FLOAT, ["N", 3])],
        [("s", FLOAT, None)],
    )
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    made.graph.output[0].type.CopyFrom(kind)
    plan = oven.bake(import_model(made).flow)
    assert str(plan.outputs["s"]) == "Whole[seq(tensor(float))]"
    plan.save(tmp_path / "p.plan")
    for each in (plan, oven.load(tmp_path / "p.plan")):
        found = each.run({"x": ROWS[:, :3]})["s"]
        assert isinstance(found, list)
        np.testing.assert_array_equal(np.stack(found), ROWS[:, :3])


# --- what goes wrong ----------------------------------------------------------------------------


def gather(**fields: Any) -> Opaque:
    """An operator that fails for indices that are out of bounds."""
    made = model(
        [node("Gather", ["table", "i"], ["y"])],
        [("i", TensorProto.INT64, ["N", 1])],
        [("y", FLOAT, ["N", 1])],
        {"table": np.arange(3, dtype=np.float32)},
    )
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    known = {
        "reads": (PartWire("i", "int64", (1, 1)),),
        "leaves": (PartWire("y", "float32", (1, 1)),),
        "place": "Gather 'y'",
    }
    return Opaque(np.frombuffer(made.SerializeToString(), np.uint8), **{**known, **fields})


def test_what_onnxruntime_says_is_an_error_with_the_place() -> None:
    plan = oven.bake(gather()(flour.vector("i", 1, "int64")).named("y"))
    np.testing.assert_array_equal(plan.run(np.array([[2], [0]]))["y"], [[2], [0]])
    with pytest.raises(OpaqueFailed, match="Gather 'y'") as caught:
        plan.run(np.array([[2], [7]]))
    assert caught.value.code == "InvalidArgument"
    assert "out of" in str(caught.value)


def test_an_answer_of_another_shape_is_an_error() -> None:
    wrong = gather(leaves=(PartWire("y", "float32", (1, 2)),))
    with pytest.raises(OpaqueFailed, match="another shape"):
        wrong(flour.vector("i", 1, "int64")).reference(np.array([[1]]))


@pytest.mark.parametrize(
    "fields",
    [
        {"layout": "sideways"},
        {"names": ("table",)},
        {"leaves": ()},
        {"leaves": "y"},
        {"reads": (("i", "int64", (-1,), 0),)},
        {"reads": (("i", "int64", (1,), 3),)},
        {"reads": (("i", "tensor(int64)", (), 0),)},
        {"leaves": (PartWire("y", "float32", (1, 1)), PartWire("y", "float32", (1, 1)))},
    ],
)
def test_fields_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        gather(**fields)


def test_a_part_that_names_a_file_is_never_loaded(tmp_path: Path) -> None:
    made = model([node("Identity", ["x"], ["y"])], [("x", FLOAT, [1, 1])], [("y", FLOAT, [1, 1])])
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "secret")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=str(tmp_path / "secret"))
    inner = helper.make_node("Constant", [], ["c"], value=tensor)
    made.graph.node.append(inner)
    op = Opaque(
        Blob.of(np.frombuffer(made.SerializeToString(), np.uint8)),
        reads=(PartWire("x", "float32", (1, 1)),),
        leaves=(PartWire("y", "float32", (1, 1)),),
    )
    plan = oven.bake(op(flour.vector("x", 1, "float32")).named("y"))
    plan.save(tmp_path / "p.plan")
    for each in (plan, oven.load(tmp_path / "p.plan")):
        with pytest.raises(OpaqueFailed, match="refers to another file"):
            each.run(np.ones((1, 1), np.float32))


def test_a_plan_with_a_damaged_part_is_an_error(tmp_path: Path) -> None:
    broken = gather()
    flow = broken.replace(model=np.frombuffer(b"\x00\xff" * 40, np.uint8))(
        flour.vector("i", 1, "int64")
    ).named("y")
    oven.bake(flow).save(tmp_path / "p.plan")
    loaded = oven.load(tmp_path / "p.plan")
    with pytest.raises(OpaqueFailed):
        loaded.run(np.array([[1]]))
    assert issubclass(DamagedPlan, flour.FlourError)


@pytest.mark.parametrize(
    ("operators", "shape", "apart"),
    [
        (["Normalizer"], (1, 3), True),
        (["Normalizer"], (1,), False),
        (["Binarizer"], (1,), True),
        (["Binarizer", "Normalizer"], (1,), False),
        (["LinearClassifier", "LabelEncoder"], (1, 3), True),
        (["LinearClassifier", "Normalizer"], (1, 3), False),  # labels are a vector
        (["Unheard"], (1, 3), False),
    ],
    ids=str,
)
def test_a_vector_is_one_row_to_operators_of_models(
    operators: list[str], shape: tuple[int, ...], *, apart: bool
) -> None:
    names = ["x", "a", "b"]
    nodes = tuple(
        NodeDef(name, "ai.onnx.ml", "", (names[k],), (names[k + 1],))
        for k, name in enumerate(operators)
    )
    reads = {"x": Tensor(shape, "float32", 0)}
    model_def = import_model(black_in_the_middle()).model
    assert keeps_rows_apart(OpaquePart(model_def, nodes, reads, {}, (names[-1],))) is apart


def test_what_is_sparse_goes_in_densely() -> None:
    """Counted words are sparse; a part reads tensors."""
    pool: dict[str, Any] = {
        "pool_strings": ["a", "b"],
        "ngram_counts": [0],
        "ngram_indexes": [0, 1],
    }
    lengths: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    made = model(
        [
            node("TfIdfVectorizer", ["x"], ["t"], mode="TF", **pool, **lengths),
            node("DynamicQuantizeLinear", ["t"], ["q", "scale", "zero"]),
            node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        ],
        [("x", STRING, ["N", 3])],
        [("y", FLOAT, ["N", 2])],
    )
    words = np.array([["a", "b", "a"], ["c", "", "b"]], object)
    program = import_model(made)
    got = program.run(oven.bake(program.flow).run, {"x": words})["y"]
    np.testing.assert_allclose(got, theirs(made, x=words)[0], rtol=1e-5)


def test_a_constant_for_every_row_is_one_for_every_row_in_a_part_too() -> None:
    made = model(
        [
            node("Shape", ["x"], ["full"]),
            node("ConstantOfShape", ["full"], ["zeros"]),
            node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
            node("DequantizeLinear", ["q", "scale", "zero"], ["b"]),
            node("Cast", ["q"], ["q_as_number"], to=FLOAT),
            node("ScatterElements", ["zeros", "places", "b"], ["moved"], axis=0),
            node("Add", ["moved", "q_as_number"], ["y"]),
        ],
        [("x", FLOAT, ["N", 1]), ("places", INT64, ["N", 1])],
        [("y", FLOAT, ["N", 1])],
    )
    x = np.arange(5, dtype=np.float32)[:, None]
    places = np.array([[4], [2], [0], [1], [3]], np.int64)
    program = import_model(made)
    got = program.run(program.flow.reference, {"x": x, "places": places})["y"]
    np.testing.assert_array_equal(got, theirs(made, x=x, places=places)[0])
