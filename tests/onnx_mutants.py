"""Valid models changed at random in ways a stranger might: run alone, as a process that may die.

    python -m tests.onnx_mutants FIRST COUNT

Prints how many were refused and how many ran; whatever is no error of ours ends it.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto
from onnx.backend.test.loader import load_model_tests

from flour.core.errors import FlourError
from flour.onnx import import_model
from flour.onnx.program import OnnxProgram

#: A stranger's numbers, texts, and places of files.
WHOLES = (0, 1, -1, 2, 7, 255, 2**16, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, float("nan"), float("inf"), -float("inf"), 1e38, 1e-45)
TEXTS = (b"", b"\xff\xfe", b"NOTSET", b"a" * 300, b"LEAF", b"SOFTMAX", b"[a-", b"(", b"ij,jk->ik")
FILES = ("../secret", "/etc/passwd", "w", "", "/dev/zero", "a/../../secret", "\0")
OPERATORS = (
    *("Add", "Cast", "Concat", "Gather", "If", "Loop", "MatMul"),
    *("Reshape", "Slice", "Split", "TopK", "Where", "ZipMap"),
)
#: What a process may have; a model of a few kilobytes needs no more.
ROOM = 6 << 30


def _names(model: ModelProto) -> list[str]:
    """Everything that has a name, and what has none."""
    graph = model.graph
    made = [name for node in graph.node for name in node.output]
    return [*(item.name for item in (*graph.input, *graph.initializer)), *made, ""]


def _attribute(rng: random.Random, item: AttributeProto) -> None:
    """Another value, a list of another length, or another kind."""
    lists: dict[int, tuple[Any, tuple[Any, ...]]] = {
        AttributeProto.FLOATS: (item.floats, FLOATS),
        AttributeProto.INTS: (item.ints, WHOLES),
        AttributeProto.STRINGS: (item.strings, TEXTS),
    }
    if rng.random() < 0.1:
        item.type = rng.choice((0, 1, 2, 3, 4, 6, 7, 8, 11, 13))  # type: ignore[assignment]  # no such kind
    elif item.type in lists:
        values, others = lists[item.type]
        if len(values) and rng.random() < 0.6:
            values[rng.randrange(len(values))] = rng.choice(others)
        elif len(values) and rng.random() < 0.5:
            del values[rng.randrange(len(values)) :]
        else:
            values.extend([rng.choice(others)] * rng.choice((1, 1000)))
    elif item.type == AttributeProto.TENSOR:
        _tensor(rng, item.t)
    else:
        item.i, item.f, item.s = rng.choice(WHOLES), rng.choice(FLOATS), rng.choice(TEXTS)


def _tensor(rng: random.Random, item: TensorProto) -> None:
    """Other lengths, another type, other bytes, or a file."""
    kind = rng.randrange(4)
    if kind == 0:
        item.dims.append(rng.choice(WHOLES))
    elif kind == 1:
        item.data_type = rng.choice((*range(27), 99))
    elif kind == 2:
        item.raw_data = item.raw_data[: rng.randrange(len(item.raw_data) + 1)] or b"\0\0\0\0"
    else:
        item.data_location = TensorProto.EXTERNAL
        item.external_data.add(key="location", value=rng.choice(FILES))
        item.external_data.add(key="length", value=str(rng.choice(WHOLES)))


def _node(rng: random.Random, model: ModelProto) -> None:
    """Attributes, wires, or the operator."""
    item: NodeProto = rng.choice(model.graph.node)
    kind, names = rng.random(), _names(model)
    if kind < 0.5 and len(item.attribute):
        _attribute(rng, rng.choice(item.attribute))
    elif kind < 0.7 and len(item.input):
        item.input[rng.randrange(len(item.input))] = rng.choice(names)
    elif kind < 0.8:
        item.input.append(rng.choice(names))
    elif kind < 0.9:
        item.output.append(rng.choice(names))
    else:
        item.op_type = rng.choice(OPERATORS)


def _port(rng: random.Random, model: ModelProto) -> None:
    """What is declared of an input or an output."""
    item = rng.choice([*model.graph.input, *model.graph.output])
    if item.type.HasField("tensor_type"):
        dim = item.type.tensor_type.shape.dim.add()
        dim.dim_value = rng.choice(WHOLES)
        item.type.tensor_type.elem_type = rng.choice((*range(27), 99))
    else:
        item.type.Clear()


def _version(rng: random.Random, model: ModelProto) -> None:
    model.opset_import[0].version = rng.choice((0, -1, 1, 7, 9, 13, 18, 99, 2**40))


def _constant(rng: random.Random, model: ModelProto) -> None:
    if len(model.graph.initializer):
        _tensor(rng, rng.choice(model.graph.initializer))


CHANGES: tuple[Callable[[random.Random, ModelProto], None], ...] = (
    *(_node, _node, _node, _node),
    *(_port, _version, _constant),
)


def mutant(number: int, models: list[bytes]) -> bytes:
    """The model of this number: the same in every run."""
    rng = random.Random(number)
    model = ModelProto.FromString(rng.choice(models))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(CHANGES)(rng, model)
    return bytes(model.SerializeToString())


def _run(program: OnnxProgram) -> None:
    """Ones for every input of the program."""
    kinds = program.flow.inputs().items()
    if all(getattr(kind, "dtype", "string") != "string" for _, kind in kinds):
        rows = {name: np.ones((2, getattr(kind, "width", 1)), kind.dtype) for name, kind in kinds}  # type: ignore[union-attr]  # looked at above
        program.flow.reference(rows)


def main(first: int, count: int) -> None:
    """Import and run so many of them."""
    warnings.simplefilter("ignore")
    found = [case.model for kind in ("node", "simple") for case in load_model_tests(kind=kind)]
    models = [item.SerializeToString() for item in found if item is not None and item.graph.node]
    models = [data for data in models if len(data) < 100_000]
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    counts = {"refused": 0, "ran": 0}
    for number in range(first, first + count):
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            _run(import_model(mutant(number, models), native_only=True))
            counts["ran"] += 1
        except FlourError as problem:
            if not problem.where and not isinstance(problem, ValueError):
                raise
            counts["refused"] += 1
        except BaseException:
            sys.stderr.write(f"mutant {number}\n")
            raise
    sys.stdout.write(f"{counts['refused']} {counts['ran']}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
