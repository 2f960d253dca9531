"""Checks of what is fed into a session, as strict as onnxruntime's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.data.coerce import WHOLE_DTYPES
from flour.onnx.signature import ValueInfo
from runtime.onnx.errors import InvalidArgument, error


def check_of(item: ValueInfo) -> Callable[[Any], Any]:
    """A check of one input's values, as strict as onnxruntime's: lists become arrays."""
    dtype = "float16" if item.type == "tensor(float16)" else WHOLE_DTYPES.get(item.type)
    if dtype is None:
        # Sequences, maps, types that numpy lacks and the like are looked at by who runs them.
        return lambda value: plain_map(_array_of(value))

    def check(value: object) -> object:
        value = _array_of(value)
        if isinstance(value, list | tuple | np.generic):
            value = _as_array(value, dtype, item.name)
        dtype_found = str(getattr(value, "dtype", type(value).__name__))
        own = (
            "string" if getattr(getattr(value, "dtype", None), "kind", "") in "OUS" else dtype_found
        )
        if not isinstance(value, np.ndarray) or own != dtype:
            raise error(
                InvalidArgument,
                f"the input {item.name!r} is not of the model's dtype",
                where=item.name,
                found=f"{dtype_found}, expected {dtype}",
                hint=f"pass a numpy array of {dtype}",
            )
        _check_shape(item, value.shape)
        return as_texts(value) if value.dtype == object else value

    return check


def as_texts(values: NDArray[Any]) -> NDArray[Any]:
    """Anything as a string, as onnxruntime reads it: None is a text, and so is a list."""
    texts = np.empty(values.size, object)
    texts[:] = [str(value) for value in values.reshape(-1).tolist()]
    return texts.reshape(values.shape)


def _as_array(value: object, dtype: str, name: str) -> NDArray[Any]:
    try:
        return np.asarray(value, object if dtype == "string" else dtype)
    except (TypeError, ValueError, OverflowError) as problem:
        raise error(
            InvalidArgument,
            f"the input {name!r} is no array",
            where=name,
            found=str(problem)[:120],
            hint=f"pass a numpy array of {dtype}",
        ) from problem


def _check_shape(item: ValueInfo, shape: tuple[int, ...]) -> None:
    if item.shape is None:
        return
    want = item.shape
    same = len(shape) == len(want) and all(
        size == there for size, there in zip(want, shape, strict=True) if isinstance(size, int)
    )
    if not same:
        raise error(
            InvalidArgument,
            f"the input {item.name!r} has another shape than the model declares",
            where=item.name,
            found=f"{list(shape)}, expected {list(want)}",
        )


def _array_of(value: Any) -> Any:
    """The array in an OrtValue of onnxruntime's; anything else as it is."""
    kind = type(value)
    if kind.__name__ != "OrtValue" or not kind.__module__.startswith("onnxruntime"):
        return value
    return value.numpy() if value.is_tensor() else value


def plain_map(value: object) -> Any:
    """A map of arrays without dimensions as one of numbers; anything else as it is."""
    if type(value) is not dict or not any(isinstance(each, np.ndarray) for each in value.values()):
        return value
    return {
        name: (each[()] if isinstance(each, np.ndarray) and each.ndim == 0 else each)
        for name, each in value.items()
    }
