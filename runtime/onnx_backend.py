"""ONNX's standard backend interface, so that its own and other suites can be pointed at us.

    from onnx.backend.test import BackendTest
    import runtime.onnx_backend

    suite = BackendTest(runtime.onnx_backend, __name__)

The module is the backend, as in onnxruntime: these functions are what
`onnx.backend.base.Backend` asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flour.errors import FlourError
from flour.onnx import import_model
from flour.onnx.single import model_of
from runtime.onnx_session import InferenceSession


class Prepared:
    """A model ready to run any number of times."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._inputs = [item.name for item in session.get_inputs()]

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """All outputs; inputs by name, or in the model's order."""
        if isinstance(inputs, Mapping):
            feed = dict(inputs)
        else:
            many = inputs if isinstance(inputs, list | tuple) else (inputs,)
            feed = dict(zip(self._inputs, many, strict=False))
        return tuple(self.session.run(None, feed))


def prepare(
    model: Any,
    device: str = "CPU",
    *,
    native_only: bool = False,
    compiled: bool = True,
    **_: Any,
) -> Prepared:
    """A model ready to run.

    With `native_only` a model that needs onnxruntime for a part is refused; without `compiled` it
    runs by the operators' definitions, in numpy.
    """
    if not supports_device(device):
        raise ValueError(f"plans run on processors, not on {device}")
    return Prepared(InferenceSession(model, native_only=native_only, compiled=compiled))


def run_model(model: Any, inputs: Any, device: str = "CPU", **how: Any) -> tuple[Any, ...]:
    """The outputs of a model, once."""
    return prepare(model, device, **how).run(inputs)


def run_node(
    node: Any, inputs: Any, device: str = "CPU", outputs_info: object = None, **how: Any
) -> tuple[Any, ...]:
    """The outputs of one operator, once; `opset_version` says which version of it."""
    del outputs_info  # what is made is what the operator makes
    version = how.pop("opset_version", None)
    return run_model(model_of(node, inputs, version), inputs, device, **how)


def is_compatible(model: Any, device: str = "CPU", **how: Any) -> bool:
    """Whether the model can run here; with `native_only=True`, without onnxruntime."""
    try:
        import_model(model, native_only=bool(how.get("native_only")))
    except FlourError:
        return False
    return supports_device(device)


def supports_device(device: str) -> bool:
    """Plans run on processors."""
    return device.partition(":")[0] == "CPU"
