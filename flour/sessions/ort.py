"""The one place where onnxruntime is imported: sessions for the parts of models it runs.

A session has one thread, shares the process's arena, and gets a part's large constants as inputs,
which it reads in place in the object store. Measured: initialisers passed to `SessionOptions` are
copied into every session, inputs are not (docs/decisions/0010).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import OpaqueFailed
from flour.data.coerce import WHOLE_DTYPES
from flour.sessions.guards import guard
from flour.sessions.proving import prove

#: The log level of onnxruntime: nothing below fatal, as its errors are raised anyway.
_FATAL = 4


class LateSession:
    """A session of a part of a model that is opened at its first run, once for all threads.

    `reads` and `leaves` are its inputs and outputs by name, with the names of their types.
    """

    def __init__(
        self,
        model: NDArray[Any],
        place: str,
        reads: Mapping[str, str],
        leaves: Mapping[str, str],
        constants: Mapping[str, NDArray[Any]],
    ) -> None:
        self._lock = threading.Lock()
        self._model, self._place = model, place
        self._session: Any = None
        self._short: Any = None
        self._constants = constants
        self._reads, self._leaves = tuple(reads), list(leaves)
        self._foreign = any(map(is_foreign, (*reads.values(), *leaves.values())))

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for these inputs, or OpaqueFailed."""
        return self.answers(self._leaves, dict(zip(self._reads, values, strict=True)))

    def answers(self, names: Sequence[str], feed: Mapping[str, Any]) -> list[Any]:
        """These outputs for inputs by name, or OpaqueFailed."""
        session = self._session or self._open()
        if self._constants:
            feed = {**feed, **self._constants}
        try:
            results: list[Any] = self._short(names, feed, None)
        except Exception:  # noqa: BLE001 (it is raised again)
            # The session's own method has better error messages.
            run = partial(_run_values, session) if self._foreign else session.run
            try:
                results = run(names, feed)
            except Exception as problem:
                raise failure("onnxruntime cannot run", problem, self._place) from problem
        return results

    def _open(self) -> Any:
        with self._lock:
            if self._session is None:
                data, known = self._model.tobytes(), {*self._reads, *self._constants}
                check(data, known, set(self._leaves), self._place)
                session_ = session(data, self._place)
                # The C++ session's method: the Python one only checks names before, as this does
                # itself.
                short = getattr(session_, "_sess", session_).run
                self._short = partial(_run_values, session_) if self._foreign else short
                self._session = session_
            return self._session


# --- types that numpy does not have ---------------------------------------------------------------


def is_foreign(kind: str) -> bool:
    """Return whether onnxruntime hands over tensors of this type as bytes: bfloat16, int4."""
    named = kind.startswith("tensor(") and kind != "tensor(float16)"
    return named and kind not in WHOLE_DTYPES


def _run_values(
    session: Any, names: Sequence[str], feed: Mapping[str, Any], _: object = None
) -> Any:
    """The outputs by way of onnxruntime's own values; arrays are of the package ml_dtypes."""
    values = {name: _value_of(np.asarray(value)) for name, value in feed.items()}
    return [_array_of(value) for value in session.run_with_ort_values(names, values)]


def _value_of(array: Any) -> Any:
    from onnx import numpy_helper

    made = runtime().OrtValue
    if array.dtype.kind in "OUS":
        return made.ortvalue_from_numpy(array)
    tensor = numpy_helper.from_array(array)
    value = made.ortvalue_from_shape_and_type(list(array.shape), tensor.data_type)
    ctypes.memmove(value.data_ptr(), tensor.raw_data, len(tensor.raw_data))
    return value


def _array_of(value: Any) -> Any:
    if not value.is_tensor() or not is_foreign(value.data_type()):
        return value.numpy()
    from onnx import TensorProto, numpy_helper

    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    kind = value.element_type()
    return numpy_helper.to_array(TensorProto(dims=value.shape(), data_type=kind, raw_data=data))


def session(data: bytes, where: str) -> Any:
    """An onnxruntime session over a model, or OpaqueFailed."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    ort = runtime()
    with suppress(DecodeError):  # onnxruntime's own message is better
        guard(ModelProto.FromString(data), where)
    prove(data, where)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _FATAL
    options.add_session_config_entry("session.use_env_allocators", "1")
    how = {"providers": ["CPUExecutionProvider"], "enable_fallback": 0}  # it would print
    try:
        return ort.InferenceSession(data, options, **how)
    except Exception as problem:
        raise failure("onnxruntime cannot load", problem, where) from problem


@cache
def runtime() -> Any:
    """onnxruntime, with an arena that all sessions share."""
    try:
        import onnxruntime
    except ImportError as problem:
        raise OpaqueFailed(
            "a part of this model has no native code, and onnxruntime is not installed",
            found=str(problem),
            hint="pip install 'pretzel-runtime[onnx]'",
        ) from problem
    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, None)
    return onnxruntime


def failure(what: str, problem: Exception, where: str) -> OpaqueFailed:
    """An exception of onnxruntime as an error of ours."""
    error = OpaqueFailed(
        f"{what} a part of the model that has no native code",
        where=where or None,
        found=f"{type(problem).__name__}: {_message(problem)}",
        hint="onnxruntime itself refuses it; run the part alone to look closer",
    )
    error.code = type(problem).__name__
    return error


def _message(problem: Exception) -> str:
    """The message of an exception, without onnxruntime's preamble."""
    text = " ".join(str(problem).split())
    return text.rpartition(" : ")[2][:300] if text.startswith("[ONNXRuntimeError]") else text[:300]


# --- models are data ----------------------------------------------------------------------------


def check(data: bytes, reads: set[str], leaves: set[str], where: str) -> None:
    """Raise OpaqueFailed unless the model needs only its own content and these inputs."""
    import onnx

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as problem:
        raise failure("protobuf cannot read", problem, where) from problem
    graph = model.graph
    names = [{item.name for item in each} for each in (graph.input, graph.output)]
    if names[0] - {item.name for item in graph.initializer} != reads or not leaves <= names[1]:
        raise OpaqueFailed(
            "a part of the model is not what the program says it is",
            where=where or None,
            found=f"inputs {', '.join(sorted(names[0]))[:120]}",
            hint="the file is damaged; import the model again",
        )
    graphs = [model.graph, *model.functions]
    for tensor in _tensors(graphs):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            raise OpaqueFailed(
                "a part of the model refers to another file",
                where=where or None,
                found=f"tensor {tensor.name!r}",
                hint="nothing outside the plan is read",
            )


def _tensors(graphs: Sequence[Any]) -> Iterator[Any]:
    """Every tensor of graphs, those of attributes and of graphs in attributes included."""
    stack = list(graphs)
    while stack:
        graph = stack.pop()
        yield from getattr(graph, "initializer", ())
        for sparse in getattr(graph, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for item in node.attribute:
                yield from (item.t, *item.tensors)
                for sparse in (item.sparse_tensor, *item.sparse_tensors):
                    yield from (sparse.values, sparse.indices)
                stack.extend((item.g, *item.graphs))


def as_array(data: bytes) -> Any:
    """Bytes as an array for the object store."""
    return np.frombuffer(data, np.uint8)
