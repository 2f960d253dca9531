"""ONNX models for tests: made of nodes, run by onnxruntime and by this project, held together."""

from __future__ import annotations

import contextlib
import functools
import locale
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import oven
from flour.onnx import OnnxProgram, import_model
from tests.house import ROOT
from tests.onnx_parts import session

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

Arrays = dict[str, NDArray[Any]]
OPSETS = {"": 17, "ai.onnx.ml": 3, "com.microsoft": 1}
_KINDS = {"float32": 1, "int32": 6, "int64": 7, "string": 8, "object": 8, "bool": 9, "float64": 11}
_KINDS |= {"uint32": 12, "uint64": 13}


LOCALE = "en_US.UTF-8"


@functools.cache
def has_locale() -> bool:
    """Whether onnxruntime finds the locale without which it runs no text operators.

    Where nobody generated it, the C library's own UTF-8 locale stands in under its name: letters
    change case in the same way in both, and nothing outside of the checkout is touched.
    """
    if _is_there():
        return True
    own = next(iter(sorted(Path("/usr/lib/locale").glob("C.[uU]*8"))), None)
    if own is None:
        return False
    link = ROOT / ".cache" / "locale" / LOCALE
    link.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(own)
    os.environ["LOCPATH"] = str(link.parent)
    return _is_there()


def _is_there() -> bool:
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, LOCALE)
    except locale.Error:
        return False
    locale.setlocale(locale.LC_CTYPE, before)
    return True


needs_locale = pytest.mark.skipif(
    not has_locale(), reason="onnxruntime needs the locale en_US.UTF-8 for text (apt: locales)"
)


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **how: Any
) -> Any:
    """One node of a model."""
    return onnx.helper.make_node(op, inputs, outputs, domain=domain, **how)


def ml(op: str, inputs: Sequence[str], outputs: Sequence[str], **how: Any) -> Any:
    """One node of ai.onnx.ml."""
    return node(op, inputs, outputs, "ai.onnx.ml", **how)


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, Sequence[int | None]]],
    outputs: Mapping[str, str],
    *,
    constants: Mapping[str, Any] | None = None,
    opsets: Mapping[str, int] | None = None,
) -> Any:
    """A model: inputs as (dtype, shape), outputs as dtypes; a length of None is open."""
    value = onnx.helper.make_tensor_value_info
    given = [value(name, _KINDS[kind], list(shape)) for name, (kind, shape) in inputs.items()]
    made = [value(name, _KINDS[kind], None) for name, kind in outputs.items()]
    known = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = onnx.helper.make_graph(list(nodes), "g", given, made, known)
    versions = {**OPSETS, **(opsets or {})}
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=9)


def wanted(proto: Any, feed: Arrays) -> Arrays:
    """What onnxruntime answers; the maps of a ZipMap as rows."""
    names = [item.name for item in proto.graph.output]
    found = _session(proto.SerializeToString()).run(names, feed)
    return {name: _plain(value) for name, value in zip(names, found, strict=True)}


_session = functools.lru_cache(maxsize=4)(session)


def _plain(value: Any) -> NDArray[Any]:
    if isinstance(value, list):
        return np.array([list(row.values()) for row in value], np.float32)
    return np.asarray(value)


def answered(program: OnnxProgram, feed: Arrays, *, native: bool) -> Arrays:
    """What the program answers for ONNX's arrays, by machine code or by the definitions."""
    columns: Any = program.feed(feed)
    data = columns if len(program.flow.inputs()) > 1 else next(iter(columns.values()))
    if len(program.inputs) > 1 and len(program.flow.inputs()) == 1:
        data = columns  # the columns of one record
    run = oven.bake(program.flow).run if native else program.flow.reference
    return program.answer(run(data))


def same(
    proto: Any,
    feed: Arrays,
    *,
    native: bool = False,
    rtol: float = 1e-6,
    atol: float = 1e-6,
    share: float = 0.0,
) -> OnnxProgram:
    """Raise unless the model is native whole, and answers what onnxruntime answers.

    With `share`, numbers may be that part of their output's largest apart, and no more.
    """
    program = import_model(proto, native_only=True)
    want, got = wanted(proto, feed), answered(program, feed, native=native)
    assert list(got) == list(want)
    for name, value in want.items():
        if share:
            rtol, atol = 0.0, share * largest(value)
        agree(got[name], value, name, rtol, atol)
    return program


def largest(values: Any) -> float:
    """The size of the largest finite number, at least that of what float32 has none below."""
    if values.dtype.kind != "f":
        return 0.0
    sizes = np.abs(values[np.isfinite(values)])
    return float(sizes.max(initial=np.finfo(np.float32).tiny))


def agree(got: Any, want: Any, name: str, rtol: float, atol: float) -> None:
    """Raise unless shapes, dtypes and values agree."""
    assert got.shape == want.shape, name
    if want.dtype.kind in "OUS":
        assert got.astype(object).tolist() == want.astype(object).tolist(), name
        return
    assert got.dtype == want.dtype, name
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=name)
    else:
        np.testing.assert_array_equal(got, want, err_msg=name)
