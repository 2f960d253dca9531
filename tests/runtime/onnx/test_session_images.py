"""Sessions over models that this machine has loaded before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper
from sklearn.ensemble import GradientBoostingClassifier

import flour
from flour.onnx.reading import Raw
from oven.explain import explain
from oven.plans import image_cache
from runtime.onnx.session import InferenceSession
from runtime.onnx.session_image import SessionImage, StoredModel
from tests.house import run_python
from tests.onnx_parts import FLOAT, model, node

ROWS = np.random.default_rng(3).normal(size=(70, 4))
SINGLE = ROWS.astype(np.float32)
ML = "ai.onnx.ml"

_LOAD = """
import json, sys
import numpy as np
from runtime.onnx.session import InferenceSession
session = InferenceSession(sys.argv[1])
answers = [one.tolist() for one in session.run(None, {"X": np.load(sys.argv[2])})]
about = [list(map(list, each)) for each in (session.get_inputs(), session.get_outputs())]
there = sorted({"onnx", "llvmlite.binding", "numba"} & set(sys.modules))
print(json.dumps([about, answers, there, session.plan.program.in_memory]))
assert session.program.flow.digest == session.plan.flow.digest  # imported when it is looked at
"""


@pytest.fixture(autouse=True)
def _no_adapters_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests of this process register some, which stay.
    monkeypatch.setattr("runtime.onnx.session_image.from_outside", lambda: 0)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys of the images that are written."""
    keys: list[bytes] = []
    write = image_cache.write

    def counted(name: bytes, image: bytes) -> None:
        keys.append(name)
        write(name, image)

    monkeypatch.setattr(image_cache, "write", counted)
    return keys


def new(data: bytes) -> bytes:
    """The same model with bytes that no session has seen before."""
    made = ModelProto.FromString(data)
    made.doc_string = uuid4().hex
    return bytes(made.SerializeToString())


def boosted(seed: int) -> bytes:
    """A model of trees."""
    target = (ROWS[:, 0] + ROWS[:, 1] * ROWS[:, 2] > 0).astype(int)
    made = GradientBoostingClassifier(n_estimators=9, random_state=seed, subsample=0.7)
    return new(flour.to_onnx(flour.from_sklearn(made.fit(ROWS, target))))


def with_maps() -> bytes:
    """A classifier whose probabilities are a list of dicts."""
    nodes = [
        node(
            "LinearClassifier",
            ["X"],
            ["label", "p"],
            domain=ML,
            coefficients=[0.5, -1.0, 2.0, 0.0, -0.5, 1.0, -2.0, 0.0],
            intercepts=[0.25, -0.25],
            classlabels_strings=["no", "yes"],
            post_transform="SOFTMAX",
        ),
        node("ZipMap", ["p"], ["maps"], domain=ML, classlabels_strings=["no", "yes"]),
    ]
    maps = helper.make_value_info(
        "maps",
        helper.make_sequence_type_proto(
            helper.make_map_type_proto(8, helper.make_tensor_type_proto(FLOAT, []))
        ),
    )
    made = model(nodes, [("X", FLOAT, ["N", 4])], [("label", 8, ["N"])])
    made.graph.output.append(maps)
    return new(made.SerializeToString())


def ready(data: bytes, **how: Any) -> InferenceSession:
    """A session whose code is there, and with it its image."""
    made = InferenceSession(data, **how)
    made.plan.wait()
    return made


def from_image(data: bytes, **how: Any) -> bool:
    """Whether a session comes out of an image."""
    return isinstance(InferenceSession(data, **how)._program, StoredModel)


@pytest.mark.parametrize(
    ("data", "every"),
    [
        pytest.param(boosted(0), ROWS, id="trees"),
        # With all rules off it is a plan of several stages, of which there is no image.
        pytest.param(with_maps(), SINGLE, id="maps", marks=pytest.mark.rules),
    ],
)
def test_the_next_session_is_the_same(data: bytes, every: NDArray[Any]) -> None:
    first = ready(data)
    assert not isinstance(first._program, StoredModel)
    again = InferenceSession(data)
    assert isinstance(again._program, StoredModel)
    assert not again.plan.program.in_memory
    for rows in (every, every[:1]):
        for one, other in zip(
            first.run(None, {"X": rows}), again.run(None, {"X": rows}), strict=True
        ):
            if isinstance(one, list):
                assert one == other
            else:
                assert one.dtype == other.dtype
                assert one.tolist() == other.tolist()
    last = first.get_outputs()[-1].name
    assert len(again.run([last], {"X": every})[0]) == len(ROWS)
    assert (first.get_inputs(), first.get_outputs()) == (again.get_inputs(), again.get_outputs())
    assert again.get_modelmeta() == first.get_modelmeta()
    assert again.program.flow.digest == again.plan.flow.digest == first.plan.flow.digest
    assert again.plan.program.stage_kinds == first.plan.program.stage_kinds


@pytest.mark.once
def test_the_next_process_imports_neither_the_model_nor_a_compiler(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(boosted(1))
    np.save(tmp_path / "rows.npy", ROWS)
    files = str(tmp_path / "a.onnx"), str(tmp_path / "rows.npy")
    first, second = (json.loads(run_python(_LOAD, *files)) for _ in range(2))
    assert first[:2] == second[:2]
    assert second[2:] == [[], False]


def test_what_a_model_is_imported_by_is_part_of_the_key() -> None:
    data = boosted(2)
    ready(data)
    assert from_image(data)
    assert not from_image(data, native_only=True)
    assert not from_image(data, compiled=False)
    assert not from_image(boosted(3))


def test_a_session_without_its_code_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = boosted(4)
    want = ready(data).run(None, {"X": ROWS})

    def gone(*_: object) -> None:
        raise LookupError("no such code")

    with monkeypatch.context() as patched:
        patched.setattr("oven.plans.image.PlanImage.restore", gone)
        got = ready(data)
    assert not isinstance(got._program, StoredModel)
    assert [one.tolist() for one in got.run(None, {"X": ROWS})] == [one.tolist() for one in want]
    assert from_image(data)


def test_every_model_has_an_image_of_its_own(written: list[bytes]) -> None:
    models = [_linear(seed) for seed in range(4)]
    for data in models:
        assert not from_image(data)
        ready(data)
    assert all(map(from_image, models))
    assert len({*written}) == 4


def test_a_session_goes_on_after_its_file(tmp_path: Path) -> None:
    """The program is made of bytes of its own, not of a file that has gone."""
    path = tmp_path / "model.onnx"
    path.write_bytes(_linear(7))
    ready(path.read_bytes())
    session = InferenceSession(str(path))
    path.unlink()
    assert isinstance(session._program, StoredModel)
    assert "Linear" in explain(session.plan, "optimised")
    wide = session.plan.run(ROWS)["y"]  # on a plan of its own, made of the program
    np.testing.assert_allclose(wide, session.run(["y"], {"X": SINGLE})[0], rtol=1e-5, atol=1e-6)


def test_errors_are_those_of_an_imported_model() -> None:
    data = _linear(8)
    want, got = ready(data), InferenceSession(data)
    assert isinstance(got._program, StoredModel)
    for names, feed in (
        (None, {"X": SINGLE[:, :2]}),
        (None, {"X": ROWS}),
        (["z"], {"X": SINGLE}),
        (None, {}),
    ):
        with pytest.raises(Exception) as theirs:
            want.run(names, feed)
        with pytest.raises(type(theirs.value)) as ours:
            got.run(names, feed)
        assert str(ours.value) == str(theirs.value)
    assert got.run(None, {"X": SINGLE[:0]})[0].shape == (0, 2)


def _linear(seed: int) -> bytes:
    weights = np.random.default_rng(seed).normal(size=8).astype(np.float32).tolist()
    nodes = [
        node(
            "LinearRegressor",
            ["X"],
            ["y"],
            domain=ML,
            coefficients=weights,
            intercepts=[0.5, 1.5],
            targets=2,
        )
    ]
    made = model(nodes, [("X", FLOAT, ["N", 4])], [("y", FLOAT, ["N", 2])])
    return new(made.SerializeToString())


def test_weights_elsewhere_and_adapters_from_outside_have_no_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways = False, None
    assert SessionImage.of(Raw(b"a model", None), ways) is not None
    assert SessionImage.of(Raw(b"the key location", None), ways) is None
    assert SessionImage.of(None, ways) is None
    monkeypatch.setattr("runtime.onnx.session_image.from_outside", lambda: 1)
    assert SessionImage.of(Raw(b"a model", None), ways) is None


_OUTSIDE = """
from flour.core.modules import load_onnx
from flour.onnx.registry import from_outside, onnx_op
load_onnx("")
before = from_outside()
onnx_op("Odd", domain="tests")(lambda call: call.inputs[0])
print(before, from_outside())
"""


@pytest.mark.once
def test_adapters_from_outside_are_counted() -> None:
    assert run_python(_OUTSIDE).split() == ["0", "1"]
