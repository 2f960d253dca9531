"""ONNX's standard backend interface, so that its own and other suites can be pointed at us.

    from onnx.backend.test import BackendTest
    import runtime.onnx.backend

    suite = BackendTest(runtime.onnx.backend, __name__)

The module is the backend, as in onnxruntime: these functions are what
`onnx.backend.base.Backend` asks for. Suites pass no settings of their own; `Backend` has the same
functions with some already given:

    suite = BackendTest(runtime.onnx.backend.Backend(native_only=True), __name__)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flour.core.errors import FlourError
from flour.onnx import import_model
from flour.onnx.single import model_of
from runtime.onnx.errors import InvalidArgument
from runtime.onnx.session import InferenceSession


class Prepared:
    """A model ready to run any number of times."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._inputs = [item.name for item in session.get_inputs()]

    def run(self, inputs: object, **_: object) -> tuple[Any, ...]:
        """All outputs; inputs by name, or in the model's order."""
        feed = dict(inputs) if isinstance(inputs, Mapping) else _named(self._inputs, inputs)
        return tuple(self.session.run(None, feed))


def _named(names: Sequence[str], inputs: object) -> dict[str, Any]:
    """Inputs in order by their names; those at the end may be left out."""
    many = inputs if isinstance(inputs, list | tuple) else (inputs,)
    if len(many) > len(names):
        raise InvalidArgument(
            "there are more inputs than are read",
            where=", ".join(names) or "no inputs",
            found=f"{len(many)} inputs",
            hint="initialisers and empty names are not fed",
        )
    return dict(zip(names, many, strict=False))


def prepare(
    model: object,
    device: str = "CPU",
    *,
    native_only: bool = False,
    compiled: bool = True,
    prove: bool = False,
    **_: object,
) -> Prepared:
    """A model ready to run.

    With `native_only` a model that needs onnxruntime for a part is refused; without `compiled` it
    runs by the operators' definitions, in numpy. With `prove`, parts are first run in a process of
    their own.
    """
    if not supports_device(device):
        raise ValueError(f"plans run on processors, not on {device}")
    return Prepared(
        InferenceSession(model, native_only=native_only, compiled=compiled, prove=prove)
    )


def run_model(model: Any, inputs: Any, device: str = "CPU", **how: Any) -> tuple[Any, ...]:
    """The outputs of a model, once."""
    return prepare(model, device, **how).run(inputs)


def run_node(
    node: Any, inputs: Any, device: str = "CPU", outputs_info: object = None, **how: Any
) -> tuple[Any, ...]:
    """The outputs of one operator, once; `opset_version` says which version of it."""
    del outputs_info  # what is made is what the operator makes
    version = how.pop("opset_version", None)
    names = list(dict.fromkeys(filter(None, node.input)))
    feed = dict(inputs) if isinstance(inputs, Mapping) else _named(names, inputs)
    if lost := [name for name in names if name not in feed]:
        raise InvalidArgument(
            f"the node reads '{lost[0]}', which was not given",
            where=f"{node.op_type} '{node.name}'",
            found=f"{len(feed)} inputs",
        )
    values = [feed[name] for name in names]
    return run_model(model_of(node, names, values, version), values, device, **how)


def is_compatible(model: object, device: str = "CPU", **how: object) -> bool:
    """True if the model can run here; with `native_only=True`, without onnxruntime."""
    try:
        import_model(model, native_only=bool(how.get("native_only")))
    except FlourError:
        return False
    return supports_device(device)


def supports_device(device: str) -> bool:
    """Plans run on processors."""
    return device.partition(":")[0] == "CPU"


class Backend:
    """The module's functions with settings that hold for all of them."""

    def __init__(self, *, native_only: bool = False, compiled: bool = True) -> None:
        self._how = {"native_only": native_only, "compiled": compiled}

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value}" for key, value in self._how.items())
        return f"Backend({given})"

    def prepare(self, model: Any, device: str = "CPU", **how: Any) -> Prepared:
        """A model ready to run."""
        return prepare(model, device, **{**self._how, **how})

    def run_model(self, model: object, inputs: object, device: str = "CPU", **how: object) -> Any:
        """The outputs of a model, once."""
        return run_model(model, inputs, device, **{**self._how, **how})

    def run_node(self, node: object, inputs: object, device: str = "CPU", **how: object) -> Any:
        """The outputs of one operator, once."""
        return run_node(node, inputs, device, **{**self._how, **how})

    def is_compatible(self, model: object, device: str = "CPU", **how: object) -> bool:
        """True if the model can run here with these settings."""
        return is_compatible(model, device, **{**self._how, **how})

    def supports_device(self, device: str) -> bool:
        """Plans run on processors."""
        return supports_device(device)
