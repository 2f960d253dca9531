"""Models from a stranger: an error of ours for each; no crash, no hang, no file of others."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from flour.core.errors import FlourError
from flour.onnx import DamagedModel, from_onnx
from tests.house import ended
from tests.onnx_parts import FLOAT, black_in_the_middle, model, node

ROOT = Path(__file__).resolve().parents[3]


def plain() -> ModelProto:
    """A model with nothing wrong in it."""
    return model(
        [node("Add", ["x", "w"], ["y"])],
        [("x", FLOAT, ["N", 4])],
        [("y", FLOAT, ["N", 4])],
        {"w": np.ones(4, np.float32)},
    )


def cycle(made: ModelProto) -> None:
    other = model(
        [node("Add", ["x", "b"], ["a"]), node("Abs", ["a"], ["b"])],
        [("x", FLOAT, ["N", 4])],
        [("b", FLOAT, ["N", 4])],
    )
    made.CopyFrom(other)


def missing_value(made: ModelProto) -> None:
    made.graph.node[0].input[1], made.graph.node[0].name = "nowhere", "the_sum"


def missing_output(made: ModelProto) -> None:
    made.graph.output[0].name = "nothing"


def output_without_a_name(made: ModelProto) -> None:
    made.graph.output[0].name = ""


def made_twice(made: ModelProto) -> None:
    made.graph.node.append(made.graph.node[0])


def absurd_shape(made: ModelProto) -> None:
    made.graph.initializer[0].dims[:] = [2**40, 2**40]


def another_shape(made: ModelProto) -> None:
    made.graph.initializer[0].dims[:] = [3]


def negative_shape(made: ModelProto) -> None:
    made.graph.initializer[0].dims[:] = [-4]


def absurd_input(made: ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2**62


def absurd_expansion(made: ModelProto) -> None:
    other = model(
        [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"])],
        [("x", FLOAT, ["N", 1])],
        [("y", FLOAT, ["N", None])],
        {"s": np.array([1, 2**45], np.int64)},
    )
    made.CopyFrom(other)


def no_opset(made: ModelProto) -> None:
    del made.opset_import[:]


def unknown_operator(made: ModelProto) -> None:
    made.graph.node[0].op_type = "Frobnicate"


def custom_domain(made: ModelProto) -> None:
    made.graph.node[0].domain = "evil.corp"
    made.opset_import.append(helper.make_opsetid("evil.corp", 1))


def function_in_itself(made: ModelProto) -> None:
    call = helper.make_node("F", ["a"], ["b"], domain="own")
    own = [helper.make_opsetid("own", 1), helper.make_opsetid("", 18)]
    made.functions.append(helper.make_function("own", "F", ["a"], ["b"], [call], own))
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.graph.node[0].CopyFrom(helper.make_node("F", ["x"], ["y"], domain="own"))


def short_data(made: ModelProto) -> None:
    made.graph.initializer[0].raw_data = b"\0" * 3


def deep(levels: int = 2000) -> bytes:
    """Graphs in graphs, far deeper than anybody writes, byte by byte: no library would."""
    graph = b""
    for _ in range(levels):
        attribute = _field(6, graph) + b"\xa0\x01\x05"  # g, and that it is one
        graph = _field(1, _field(4, b"If") + _field(5, attribute))
    return b"\x08\x08" + _field(7, graph)


def _field(number: int, data: bytes) -> bytes:
    """A field of protobuf's that holds bytes."""
    size, length = len(data), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


DAMAGED: dict[Callable[[ModelProto], None], str] = {
    cycle: "Add 'a'",
    missing_value: "Add 'the_sum'",
    missing_output: "outputs",
    output_without_a_name: "the graph 'test'",
    made_twice: "Add 'y'",
    absurd_shape: "tensor 'w'",
    another_shape: "tensor 'w'",
    negative_shape: "tensor 'w'",
    short_data: "tensor 'w'",
    absurd_input: "x",
    no_opset: "opset_import",
    function_in_itself: "functions",
}
OTHERS: dict[Callable[[ModelProto], None], str] = {
    absurd_expansion: "ConstantOfShape 'c'",
    unknown_operator: "",
    custom_domain: "",
}
HOSTILE = [
    *((*each, DamagedModel) for each in DAMAGED.items()),
    *((*each, FlourError) for each in OTHERS.items()),
]


@pytest.mark.parametrize(
    ("change", "where", "error"), HOSTILE, ids=[each[0].__name__ for each in HOSTILE]
)
@pytest.mark.parametrize("native_only", [True, False])
def test_it_is_refused(
    change: Callable[[ModelProto], None], where: str, error: type[FlourError], *, native_only: bool
) -> None:
    made = plain()
    change(made)
    with pytest.raises(error) as caught:
        from_onnx(made.SerializeToString(), native_only=native_only)
    assert caught.value.where
    assert where in str(caught.value.where)
    assert len(str(caught.value)) < 3000


def test_the_one_that_is_fine_is_fine() -> None:
    np.testing.assert_array_equal(from_onnx(plain()).reference(np.zeros((2, 4)))["y"], 1)


NO_MODELS = [
    *(b"", b"\0", b"not a model at all", b"\x0a\xff\xff\xff\xff\x7f"),
    b"\x08\x08\x3a\xff\xff\xff\xff\x07",  # a graph of 2**31 - 1 bytes, and nothing behind it
    *(plain().SerializeToString()[:size] for size in (1, 10, 60, 110)),
]


@pytest.mark.parametrize("data", NO_MODELS)
def test_bytes_that_are_no_model(data: bytes) -> None:
    with pytest.raises(DamagedModel):
        from_onnx(data)


@pytest.mark.parametrize("levels", [20, 45, 2000])
def test_graphs_in_graphs_end_somewhere(levels: int) -> None:
    with pytest.raises(DamagedModel):
        from_onnx(deep(levels))


# --- files --------------------------------------------------------------------------------------


THREES = np.full(4, 3, np.float32).tobytes()


def beside(folder: Path, location: str, **extent: str) -> Path:
    """A model in a folder whose weights are said to be in a file, which the folder has."""
    made = plain()
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    extent = extent or {"offset": "0", "length": "16"}
    for key, value in {"location": location, **extent}.items():
        tensor.external_data.add(key=key, value=value)
    folder.mkdir(exist_ok=True)
    (folder / "weights").write_bytes(b"skipped!" + THREES)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    return folder / "m.onnx"


def test_weights_beside_the_model_are_read(tmp_path: Path) -> None:
    path = beside(tmp_path, "weights", offset="8", length="16")
    for given in (path, str(path)):
        np.testing.assert_array_equal(from_onnx(given).reference(np.zeros((1, 4)))["y"], 3)
    data = path.read_bytes()
    with pytest.raises(DamagedModel, match="was not read from one"):  # bytes have no folder
        from_onnx(data)


OUTSIDE = {
    "up": "../secret",
    "link": "l",
    "linked folder": "d/secret",
    "empty": "",
    "directory": "sub",
    "itself": ".",
    "backslash": "a\\b",
    "nothing": "nothing.bin",
    "long": "w" * 5000,
    "zero": "weights\0x",
    "absolute": "/etc/passwd",
}


@pytest.mark.parametrize("location", OUTSIDE.values(), ids=OUTSIDE)
def test_nothing_outside_the_folder_is_read(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(THREES)
    path = beside(tmp_path / "in", location)
    (path.parent / "l").symlink_to(tmp_path / "secret")
    (path.parent / "d").symlink_to(tmp_path)
    (path.parent / "sub").mkdir()
    with pytest.raises(DamagedModel, match="folder") as caught:
        from_onnx(path)
    assert caught.value.where == "tensor 'w'"


EXTENTS = [
    *({"offset": "9"}, {"offset": "8", "length": "17"}, {"offset": "-1"}, {"length": "x"}),
    *({"length": "9" * 25}, {"length": "-5"}),
]


@pytest.mark.parametrize("extent", EXTENTS, ids=str)
def test_data_that_does_not_fit_its_tensor(tmp_path: Path, extent: dict[str, str]) -> None:
    with pytest.raises(DamagedModel) as caught:
        from_onnx(beside(tmp_path, "weights", **extent))
    assert caught.value.where == "tensor 'w'"


@pytest.mark.parametrize("kind", ["pipe", "device", "circle"])
def test_files_that_are_none_are_not_read(tmp_path: Path, kind: str) -> None:
    path, weights = beside(tmp_path, "weights"), tmp_path / "weights"
    weights.unlink()
    if kind == "pipe":
        os.mkfifo(weights)  # opening it would wait for a writer for ever
    else:
        weights.symlink_to("/dev/zero" if kind == "device" else "weights")
    with pytest.raises(DamagedModel) as caught:
        from_onnx(path)
    assert caught.value.where == "tensor 'w'"


def test_a_model_that_is_a_pipe_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    for path in (tmp_path / "m.onnx", Path("/dev/zero")):
        with pytest.raises(FlourError, match="no file"):
            from_onnx(path)


# --- mutations ----------------------------------------------------------------------------------

_FUZZ = """
import faulthandler, random, resource, sys, warnings
from pathlib import Path
faulthandler.enable()
import numpy as np
from flour.core.errors import FlourError
from flour.onnx import import_model
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
warnings.simplefilter("ignore")
data = Path(sys.argv[1]).read_bytes()
rng, native_only = random.Random(int(sys.argv[2])), sys.argv[4] == "native"
refused = ran = 0
for number in range(int(sys.argv[3])):
    mutant = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, kind = rng.randrange(len(mutant)), rng.random()
        if kind < 0.6:
            mutant[at] = rng.randrange(256)
        elif kind < 0.8:
            del mutant[at : at + rng.randrange(1, 9)]
        else:
            mutant[at:at] = mutant[at : at + rng.randrange(1, 30)]
    try:
        program = import_model(bytes(mutant), native_only=native_only)
        kinds = program.flow.inputs()
        rows = {n: np.ones((2, k.width), k.dtype) for n, k in kinds.items() if k.dtype != "string"}
        program.flow.reference(rows)
        ran += 1
    except FlourError:
        refused += 1
print(refused, ran)
"""


@pytest.mark.parametrize("native_only", [True, False])
@pytest.mark.parametrize("source", ["linear", "trees", "black"])
def test_mutated_models_never_crash(tmp_path: Path, source: str, *, native_only: bool) -> None:
    count = 250 if native_only else 60
    made = _real(source)
    (tmp_path / "m.onnx").write_bytes(made)
    words = (tmp_path / "m.onnx", "1", str(count), "native" if native_only else "any")
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = ended(sys.executable, "-c", _FUZZ, *words, timeout=100, env=path)
    assert done.returncode == 0, done.stderr[-3000:]
    refused, ran = map(int, done.stdout.splitlines()[-1].split())
    assert refused + ran == count
    assert refused > count // 10


def _real(source: str) -> bytes:
    if source == "black":
        return bytes(black_in_the_middle(hidden=8).SerializeToString())
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    X: Any = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    kind = LogisticRegression() if source == "linear" else DecisionTreeClassifier(max_depth=3)
    data: bytes = to_onnx(kind.fit(X, y), X[:1]).SerializeToString()
    return data
