"""Encoders of ai.onnx.ml: from one set of values to another, and to columns of zeros and ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.ml_common import ML
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import NAN_TEXT, NONE_TEXT, Tensor
from flour.ops.source import Fill

#: The most entries of the tables of a row: every value has one of its own.
MOST_ENTRIES = 1 << 22
_KINDS = ("strings", "int64s", "floats")


def key_index(
    call: NodeUse, item: Tensor, keys: Sequence[Any], *, strict: bool = False, nan: bool = False
) -> Flow:
    """The index of each value among the keys, the number of keys for any other; first of equals.

    NaN is a key like any other only with `nan`. Among strings NaN and None are the texts that
    onnxruntime reads them as.
    """
    count, width = len(keys), item.size
    if count * width > MOST_ENTRIES:
        raise NotNative(f"{count:,} keys for each of {width:,} values")
    flow = call.flow(item)
    codes, starts = np.arange(count), np.arange(width + 1) * count
    unknown = np.full(width, count)
    if item.dtype == "string":
        texts = [*map(str, keys)]
        # The index of a text, or the number of texts, for each of a row's values.
        none, missing = (
            np.full(width, texts.index(text) if text in texts else len(texts))
            for text in (NONE_TEXT, NAN_TEXT)
        )
        texts, all_codes = texts * width, np.tile(codes, width)
        return flow.categorise_text(texts, all_codes, starts, none, missing, unknown, strict=strict)
    values = np.asarray(keys)
    none = np.flatnonzero(values != values) if nan else codes[:0]  # noqa: PLR0124 (NaN)
    valid = values == values  # noqa: PLR0124 (the definition of NaN)
    distinct, first = np.unique(values[valid], return_index=True)
    positions, size = codes[valid][first], len(distinct)
    return flow.categorise(
        np.tile(distinct, width),
        np.tile(positions, width),
        np.arange(width + 1) * size,
        np.full(width, none[0] if none.size else count),
        unknown,
        strict=strict,
    )


def _mapped(call: NodeUse, keys: Any, values: Any, default: Any, *, nan: bool = False) -> Tensor:
    """The value that goes with each key, or the default."""
    item = call[0]
    strings = isinstance(default, str)
    table = np.array([*values, default], object if strings else None)
    return Tensor.of(key_index(call, item, keys, nan=nan).take(table), item.shape, item.axis)


@onnx_op("LabelEncoder", domain=ML)
def _label_encoder_1(call: NodeUse) -> Tensor:
    names = list(map(str, call.attribute("classes_strings", ())))
    if call[0].dtype == "string":
        # Of equal names the last one counts.
        last = {name: index for index, name in enumerate(names)}
        default = np.int64(call.attribute("default_int64", -1))
        return _mapped(call, list(last), np.array(list(last.values()), np.int64), default)
    return _mapped(call, range(len(names)), names, str(call.attribute("default_string", "_Unused")))


onnx_op("LabelEncoder", since=2, domain=ML)(lambda call: _encoded(call, nan=False))
onnx_op("LabelEncoder", since=4, domain=ML)(lambda call: _encoded(call, nan=True))


def _encoded(call: NodeUse, *, nan: bool) -> Tensor:
    """Values for keys; NaN can be a key since version 4."""
    keys, _ = _listed(call, "keys")
    values, kind = _listed(call, "values")
    if len(keys) != len(values) or not len(keys):
        raise NotNative(f"{len(keys)} keys for {len(values)} values")
    return _mapped(call, keys, values, _default(call, kind, values), nan=nan)


def _listed(call: NodeUse, what: str) -> tuple[Any, str]:
    """Keys or values: a tensor, or the list of one kind."""
    tensor = call.attribute(f"{what}_tensor")
    if tensor is not None:
        flat = np.asarray(tensor).reshape(-1)
        return flat, "strings" if flat.dtype.kind in "OUS" else "tensor"
    for kind in _KINDS:
        values = call.attribute(f"{what}_{kind}")
        if values:
            return np.asarray(values, _DTYPES[kind]), kind
    raise NotNative(f"a label encoder without {what}")


_DTYPES: dict[str, Any] = {"strings": object, "int64s": np.int64, "floats": np.float32}


def _default(call: NodeUse, kind: str, values: Any) -> Any:
    """The result for a value that is no key."""
    tensor = call.attribute("default_tensor")
    if tensor is not None and np.size(tensor):
        first = np.asarray(tensor).reshape(-1)[0]
        return str(first) if kind == "strings" else first
    if kind == "strings":
        return str(call.attribute("default_string", "_Unused"))
    if values.dtype.kind == "f":
        return values.dtype.type(call.attribute("default_float", -0.0))
    return values.dtype.type(call.attribute("default_int64", -1))


@onnx_op("OneHotEncoder", domain=ML)
def _one_hot(call: NodeUse) -> Tensor:
    item, strict = call[0], not int(call.attribute("zeros", 1))
    text = item.dtype == "string"
    cats = list(call.attribute("cats_strings" if text else "cats_int64s", ()))
    if not cats:
        # Zeros: categories of the other kind are none of the input's.
        others = [call.attribute(f"cats_{kind}", ()) for kind in ("strings", "int64s")]
        count = max(map(len, others))
        if strict or not count:
            raise NotNative("a one-hot encoder without categories for its input")
        zeros = Fill(np.zeros(item.size * count, np.float32))(call.anchor)
        return Tensor.of(zeros, (*item.shape, count), item.axis)
    last = {value: index for index, value in enumerate(cats)}
    if len(last) != len(cats):
        raise NotNative("a category is listed twice")
    if not text and item.dtype != "int64":
        item = Tensor.of(call.flow(item).cast("int64"), item.shape, item.axis)
    codes = key_index(call, item, cats, strict=strict)
    starts = np.arange(item.size + 1) * len(cats)
    columns = codes.one_hot_codes(starts, dtype="float32").to_dense()
    return Tensor.of(columns, (*item.shape, len(cats)), item.axis)


@onnx_op("CategoryMapper", domain=ML)
def _category_mapper(call: NodeUse) -> Tensor:
    names = [str(name) for name in call.attribute("cats_strings", ())]
    numbers = np.array(call.attribute("cats_int64s", ()), np.int64)
    if len(names) != len(numbers) or not names:
        raise NotNative(f"{len(names)} names for {len(numbers)} numbers")
    if call[0].dtype == "string":
        last = dict(zip(names, numbers, strict=True))
        default = np.int64(call.attribute("default_int64", -1))
        return _mapped(call, list(last), np.array(list(last.values()), np.int64), default)
    back = dict(zip(numbers.tolist(), names, strict=True))
    default_text = str(call.attribute("default_string", "_Unused"))
    return _mapped(call, np.array(list(back)), list(back.values()), default_text)
