"""Programs as ONNX models: each operator that has an ONNX form writes it, all others are refused.

A vector is a tensor (rows, width), one value per row a tensor (rows,), a record one input of shape
(rows, 1) for each column. Sparse vectors are written as dense ones. float64 stays float64.

The modules of this folder register the forms; an operator that none of them names is not
exportable:

    @form("Softmax")
    def _softmax(out, item, x):
        return out("Softmax", x, axis=1)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import UnsupportedSetting
from flour.core.node import Node
from flour.core.source import Source
from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from flour.language.flow import Flow

OPSET, ML_OPSET, IR = 19, 5, 10
ML = "ai.onnx.ml"
#: Operator -> (writer, its node, the names of its inputs) -> the name of what it makes.
FORMS: dict[str, Callable[..., str]] = {}


def form(*names: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register the ONNX form of operators."""

    def register(function: Callable[..., str]) -> Callable[..., str]:
        for name in names:
            FORMS[name] = function
        return function

    return register


def load() -> None:
    """Register every form."""
    for found in iter_modules([str(Path(__file__).parent)]):
        import_module(f"flour.onnx.export.{found.name}")


class HasFlow(Protocol):
    """Anything with a program inside, such as a plan or a `pretzel.Model`."""

    @property
    def flow(self) -> Flow:
        """The program."""


def to_onnx(program: Flow | HasFlow) -> bytes:
    """A serialised ModelProto that computes the program's outputs, by their names."""
    from onnx import helper

    import flour.onnx.protobuf  # noqa: F401 (it says what to install where there is no onnx)

    load()
    flow = program if isinstance(program, Flow) else program.flow
    out = Export()
    origins = flow.origins()
    for item in flow.nodes():
        out.names[item] = _written(out, item, " and ".join(map(str, origins.get(item, ()))))
    for name, item in flow.outputs.items():
        out.nodes.append(helper.make_node("Identity", [out.names[item]], [name]))
    made = [_declared(name, item.type) for name, item in flow.outputs.items()]
    graph = helper.make_graph(out.nodes, "pretzel", out.inputs, made, out.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)]
    others = sorted({node.domain for node in out.nodes} - {"", ML})
    opsets += [helper.make_opsetid(domain, 1) for domain in others]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=IR, producer_name="pretzel-runtime"
    )
    data: bytes = model.SerializeToString()
    return data


def _written(out: Export, item: Node, where: str) -> str:
    if isinstance(item.op, Source):
        return out.source(item.op.label, item.type)
    write = FORMS.get(item.op.name)
    if write is None:
        raise UnsupportedSetting(
            f"{item.op.name} has no ONNX form",
            where=where or item.op.name,
            found=reason(item.op.name),
            hint="export the steps before it, or save the plan as it is",
        )
    return write(out, item, *(out.names[source] for source in item.inputs))


class Export:
    """The model so far: nodes, constants, inputs, and the name of every value."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.names: dict[Node, str] = {}
        self._count = 0
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def __call__(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """One more node; the name of its output."""
        from onnx import helper

        name = self._fresh(op_type.lower())
        self.nodes.append(
            helper.make_node(op_type, list(inputs), [name], name, domain=domain, **attributes)
        )
        return name

    def second(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """One more node of two outputs; the name of the second."""
        name = self(op_type, *inputs, **attributes)
        self.nodes[-1].output.append(f"{name}_places")
        return f"{name}_places"

    def spread(self, values: Any, like: str) -> str:
        """These values for every row of another value."""
        rows = self("Slice", self("Shape", like), *(self.constant([k], np.int64) for k in (0, 1)))
        tail = self.constant(np.shape(values), np.int64)
        return self("Expand", self.constant(values), self("Concat", rows, tail, axis=0))

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"

    def constant(self, values: Any, dtype: Any = None) -> str:
        """The name of a constant; equal ones are one."""
        array = np.asarray(values, dtype)
        texts = array.dtype.kind in "OUS"
        raw = "\0".join(map(str, array.reshape(-1))).encode() if texts else array.tobytes()
        key = ("string" if texts else array.dtype.name, array.shape, raw)
        if key not in self._known:
            self._known[key] = self._fresh("c")
            self.constants.append(_tensor(self._known[key], array, texts=texts))
        return self._known[key]

    def cast(self, x: str, have: str, want: str) -> str:
        """The value in another dtype, if it is not of that one."""
        return x if have == want else self("Cast", x, to=element(want))

    def column(self, x: str) -> str:
        """One value per row as a matrix of one column."""
        return self("Unsqueeze", x, self.constant([1], np.int64))

    def source(self, label: str, kind: Type) -> str:
        """An input of the program; a record has one for each column, and no value itself."""
        if not isinstance(kind, Record):
            self.inputs.append(_declared(label, kind))
            return label
        from onnx import helper

        for name, sub in kind.fields:
            if name not in kind.unread:
                shape = [None, 1]
                self.inputs.append(
                    helper.make_tensor_value_info(name, element(dtype_of(sub)), shape)
                )
        return ""


def _tensor(name: str, array: NDArray[Any], *, texts: bool) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    if not texts:
        return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
    values = [str(item).encode() for item in array.reshape(-1)]
    return helper.make_tensor(name, TensorProto.STRING, array.shape, values)  # type: ignore[arg-type]  # strings are bytes


def dtype_of(kind: Type) -> str:
    """The dtype of a column's values in ONNX."""
    match kind:
        case Vector(dtype=dtype) | Scalar(dtype=dtype) | Category(dtype=dtype):
            return dtype
        case Text():
            return "string"
    raise UnsupportedSetting(f"a value of type {kind} has no ONNX form", where="to_onnx")


def element(dtype: str) -> int:
    """The number of a dtype in ONNX."""
    from onnx import TensorProto, helper

    if dtype == "string":
        return TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _declared(name: str, kind: Type) -> Any:
    from onnx import helper

    shape: list[Any] = [None, kind.width] if isinstance(kind, Vector) else [None]
    return helper.make_tensor_value_info(name, element(dtype_of(kind)), shape)


_UNICODE = "its characters are Unicode's, those of ONNX's text operators ASCII's or one by one"
_WORDS = "what ONNX calls words is a tensor as wide as the longest document"
_SETTLES = "it goes on until it settles, row by row"
_PYTHON = "it is a Python function"
_RECORD = "ONNX has no records; pick the columns"

#: Operator -> why it has no form.
WITHOUT = {
    "Barycentre": "it solves a system of equations a row",
    "Bundle": _RECORD,
    "CharNgrams": "white space counts once, which no ONNX operator does",
    "CouplePairs": _SETTLES,
    "CutWords": _WORDS,
    "DropWords": "ONNX drops whole rows, not words",
    "HashedValues": "its input is names with numbers, which are no tensor",
    "Hashing": "what fills short documents up would be hashed too",
    "ImputeInTurn": "it computes with only those columns that a row lacks, in turn",
    "ImputeNearest": "a row's distances are over only those columns it has",
    "JoinTexts": "ONNX joins strings only from operator set 20 on",
    "Lower": _UNICODE,
    "MatchesWhole": "ONNX has patterns only from operator set 20 on, and only those of RE2",
    "MatchingPursuit": _SETTLES,
    "NamedValues": "its input is names with numbers, which are no tensor",
    "Narrow": _RECORD,
    "Opaque": "it is a part of an ONNX model already; serve that model",
    "ParseCsv": "no ONNX operator reads CSV",
    "Phrases": _WORDS,
    "PythonColumns": _PYTHON,
    "PythonText": _PYTHON,
    "PythonWords": _PYTHON,
    "Runs": _WORDS,
    "Splines": "its polynomials change from knot to knot, and what is beyond has rules of its own",
    "Split": "empty words are lost in ONNX",
    "StripAccents": _UNICODE,
    "TopicWeights": _SETTLES,
}


def reason(name: str) -> str:
    """Why an operator has no form, as far as it was looked into."""
    return WITHOUT.get(name, "not exportable: no form is written for it")
