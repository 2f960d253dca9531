"""ONNX's own backend tests as data: models, inputs and the outputs they must have."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import oven
from flour.onnx import NotNative, OnnxProgram, import_model
from runtime.onnx import backend

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True, eq=False)
class OnnxCase:
    """A model of ONNX's own suite, with sets of inputs and the outputs they give."""

    name: str
    model: Any
    sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the model, with their domains."""
        nodes = self.model.graph.node
        return tuple(sorted({f"{n.domain}::{n.op_type}".removeprefix("::") for n in nodes}))

    def feed(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Inputs by name; initialisers that are listed as inputs are not fed."""
        given = {item.name for item in self.model.graph.initializer}
        names = [item.name for item in self.model.graph.input if item.name not in given]
        return dict(zip(names, map(texts, inputs), strict=False))


def texts(value: Any) -> Any:
    """Tensors as arrays, strings as Python strings in an array of objects."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "OSU":
        return value
    flat = [v.decode() if isinstance(v, bytes) else str(v) for v in value.reshape(-1).tolist()]
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(value.shape)


@cache
def cases() -> tuple[OnnxCase, ...]:
    """Every case that lies in the installed package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes its expectations out loud
        found = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    return tuple(map(_case, found))


def _case(case: Any) -> OnnxCase:
    if case.model is not None:
        return OnnxCase(case.name, case.model, case.data_sets, case.rtol, case.atol)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = [
        (_arrays(part, "input"), _arrays(part, "output"))
        for part in sorted(folder.glob("test_data_set_*"))
    ]
    return OnnxCase(case.name, model, sets, case.rtol, case.atol)


def imported(case: OnnxCase) -> OnnxProgram:
    """The case's program, native throughout.

    ONNX's suite makes inputs of what real models have as constants: axes, shapes, counts. Where
    these are needed at import they are fixed to the case's own.
    """
    try:
        return import_model(case.model, native_only=True)
    except NotNative as refusal:
        for values in _fixed(case):
            try:
                return import_model(case.model, native_only=True, fixed=values)
            except NotNative:
                continue
        raise refusal from None


@cache
def refusal(case: OnnxCase) -> str:
    """Why a case is not native throughout; the empty string if it is."""
    try:
        imported(case)
    except NotNative as refused:
        return f"{refused.what}: {refused.found}"
    return ""


@cache
def native_alone(case: OnnxCase) -> bool:
    """Whether the backend runs a case without onnxruntime; it fixes no inputs."""
    return backend.is_compatible(case.model, native_only=True)


def _fixed(case: OnnxCase) -> list[dict[str, Any]]:
    """The case's whole numbers and bools without its first input, with it, and all its inputs."""
    if len(case.sets) != 1:
        return []
    every = {
        name: np.asarray(value)
        for name, value in case.feed(case.sets[0][0]).items()
        if isinstance(value, np.ndarray | np.generic)
    }
    given = {name: value for name, value in every.items() if value.dtype.kind in "biu"}
    first = case.model.graph.input[0].name if case.model.graph.input else ""
    rest = {name: value for name, value in given.items() if name != first}
    return [values for values in (rest, given, every) if values]


def _arrays(folder: Path, what: str) -> list[Any]:
    paths = sorted(folder.glob(f"{what}_*.pb"), key=lambda path: int(path.stem.split("_")[-1]))
    made = []
    for path in paths:
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        made.append(numpy_helper.to_array(tensor))
    return made


def problem(case: OnnxCase, program: OnnxProgram, *, native: bool) -> str:
    """What is wrong with the program's answers, or the empty string."""
    plan = oven.bake(program.flow) if native else None
    if plan is not None and not all(stage.native for stage in plan.program.stages):
        return "not all stages are native"
    for inputs, wanted in case.sets:
        data = program.feed(case.feed(inputs))
        columns = plan.run(data) if plan is not None else program.flow.reference(data)
        said = difference(case, program.answer(columns), wanted)
        if said:
            return said
    return ""


def difference(case: OnnxCase, got: Mapping[str, Any], wanted: Sequence[Any]) -> str:
    """How outputs differ from those that are wanted, or the empty string."""
    names = [item.name for item in case.model.graph.output]
    for name, want in zip(names, map(texts, wanted), strict=True):
        said = unequal(got[name], want, case.rtol, case.atol)
        if said:
            return f"{name}: {said}"
    return ""


def unequal(got: Any, want: Any, rtol: float, atol: float) -> str:
    """How two arrays, or lists of these, differ, or the empty string."""
    if isinstance(want, list) and isinstance(got, list) and len(got) == len(want):
        pairs = zip(got, map(texts, want), strict=True)
        return next(filter(None, (unequal(*pair, rtol, atol) for pair in pairs)), "")
    if isinstance(got, list):
        return f"{len(got)} tensors instead of {want}"
    want = np.asarray(want)
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if want.dtype.kind == "V":  # numpy compares none of such types
        got, want = got.astype(np.float32), want.astype(np.float32)
    try:
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol, atol)
        else:
            np.testing.assert_array_equal(got, want)
    except AssertionError as difference:
        return " ".join(str(difference).split())[:200]
    return ""
