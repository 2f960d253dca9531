"""Which libraries wrote a model's file, as far as the file says."""

from __future__ import annotations

import re
from collections.abc import Callable

from flour.sklearn.versions import version_in

_XGBOOST = re.compile(rb'"version":\s*\[\s*(\d+),\s*(\d+),\s*(\d+)')
_LIGHTGBM = re.compile(rb"^version=(\S{1,40})", re.MULTILINE)


def written_by(form: str, raw: bytes) -> dict[str, str]:
    """Libraries and their versions; of a pickle, whose reading says more, `pickled_by` knows."""
    read = _READ.get(form)
    return {} if read is None else read(raw)


def _lightgbm(raw: bytes) -> dict[str, str]:
    found = _LIGHTGBM.search(raw, 0, 1 << 10)
    return {} if found is None else {"lightgbm": f"file format {found[1].decode(errors='replace')}"}


def _xgboost(raw: bytes) -> dict[str, str]:
    if raw[:2] in (b"{L", b"{i", b"{U"):  # Universal Binary JSON
        from flour.boosters import ubjson

        numbers = ubjson.loads(raw).get("version", ())
        return {"xgboost": ".".join(str(int(each)) for each in numbers)} if len(numbers) else {}
    found = _XGBOOST.search(raw)
    return {} if found is None else {"xgboost": b".".join(found.groups()).decode()}


def _skops(raw: bytes) -> dict[str, str]:
    version = version_in(raw)
    return {"sklearn": version} if version else {}


def _onnx(raw: bytes) -> dict[str, str]:
    from flour.onnx.reading import read_model

    model = read_model(raw)
    opsets = {
        f"operators of {name or 'onnx'}": str(number) for name, number in model.opsets.items()
    }
    return opsets | ({"written by": model.producer} if model.producer else {})


_READ: dict[str, Callable[[bytes], dict[str, str]]] = {
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "onnx": _onnx,
    "skops": _skops,
}
