"""Where a compiled model comes from: an estimator, a booster, an ONNX model, a program, a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flour
import oven
from flour.language.flow import Flow
from flour.ops.require import OnMissing
from flour.sklearn.originals import original
from oven import Plan
from runtime.repository import formats
from runtime.repository.errors import UnsupportedModel, Untrusted
from runtime.repository.files import Folder
from runtime.verify import verify, verify_answers


@dataclass(frozen=True)
class Original:
    """A source of a program, which can be asked what it answers itself."""

    read: Callable[..., Flow]
    """The program: takes `on_missing` and `log_probabilities`."""
    verify: Callable[[Plan, object], None]
    """Refuses a plan that answers some rows otherwise."""
    estimator: object = None
    """The fitted estimator, if it is one: its methods and attributes are kept."""
    plan: Plan | None = None
    """The plan, if the source is one."""


def opened(source: object, sample: object, *, allow_python: bool, trust_pickle: bool) -> Original:
    """The original that the caller means."""
    if isinstance(source, str | Path):
        return _of_file(Path(source), sample, allow_python=allow_python, trust_pickle=trust_pickle)
    if isinstance(source, Flow):
        return Original(lambda **_: source, _nothing_to_ask)
    if isinstance(source, Plan):
        return _of_plan(source)
    form = _form(source)
    if form:
        return _of_data(form, source if isinstance(source, bytes) else _raw(form, source))
    return _of_estimator(source, sample, allow_python=allow_python)


def _form(source: object) -> str:
    """The format of models that are no estimators."""
    kind = f"{type(source).__module__}.{type(source).__name__}"
    return {
        "lightgbm.basic.Booster": "lightgbm",
        "xgboost.core.Booster": "xgboost",
        "onnx.onnx_ml_pb2.ModelProto": "onnx",
        "builtins.bytes": "onnx",
    }.get(kind, "")


def _raw(form: str, source: Any) -> bytes:
    if form == "onnx":
        return bytes(source.SerializeToString())
    if form == "lightgbm":
        return bytes(source.model_to_string().encode())
    return bytes(source.save_raw("ubj"))


def _of_data(form: str, raw: bytes, where: str = "") -> Original:
    def check(plan: Plan, rows: object) -> None:
        verify_answers(plan, original(form, raw)(rows), rows, f"the {form} model")

    program = formats.program(form, raw, where or f"the {form} model")
    return Original(lambda **_: program, check)


def _of_estimator(source: object, sample: object, *, allow_python: bool) -> Original:
    def read(*, on_missing: OnMissing, log_probabilities: bool = False) -> Flow:
        return flour.from_sklearn(
            *(source, sample),
            allow_python=allow_python,
            on_missing=on_missing,
            log_probabilities=log_probabilities,
        )

    return Original(read, lambda plan, rows: verify(plan, source, rows), source)


def _of_file(path: Path, sample: object, *, allow_python: bool, trust_pickle: bool) -> Original:
    folder = Folder(path.parent)
    form = formats.of(folder, path)
    if form == formats.PLAN:
        return _of_plan(oven.load(path))
    try:
        formats.check_trust(form, str(path), trust_pickle=trust_pickle)
    except Untrusted as problem:
        problem.hint = "if you trust its author: trust_pickle=True"
        raise
    raw = folder.read(path)
    if form == formats.SKLEARN:
        return _of_estimator(formats.estimator(raw, str(path)), sample, allow_python=allow_python)
    return _of_data(form, raw, str(path))


def _of_plan(plan: Plan) -> Original:
    return Original(lambda **_: plan.flow, _nothing_to_ask, plan=plan)


def _nothing_to_ask(_plan: Plan, _rows: object) -> None:
    raise UnsupportedModel(
        "a program has no original to verify it by",
        hint="pretzel.compile(estimator, verify=rows)",
    )
