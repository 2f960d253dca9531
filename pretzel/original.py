"""Sources of compiled models: estimators, boosters, ONNX models, programs, files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flour
import oven
from flour.core.errors import ImportRefused
from flour.language.flow import Flow
from flour.ops.require import OnMissing
from flour.pickles import parted
from flour.sklearn.file import read_as_data
from flour.sklearn.originals import original, raw_booster
from oven import Plan
from runtime.repository import formats
from runtime.repository.errors import UnsupportedModel
from runtime.repository.files import Folder
from runtime.verify import verify, verify_answers


@dataclass
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
    library: str = ""
    """The library that answers the estimator's methods."""


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
    return raw_booster(source)


def _of_data(form: str, raw: bytes, where: str = "", sample: object = None) -> Original:
    def check(plan: Plan, rows: object) -> None:
        verify_answers(plan, original(form, raw)(rows), rows, f"the {form} model")

    program = formats.program(form, raw, where or f"the {form} model", sample=sample)
    return Original(lambda **_: program, check, library=form)


def _of_estimator(source: object, sample: object, *, allow_python: bool) -> Original:
    def read(*, on_missing: OnMissing, log_probabilities: bool = False) -> Flow:
        return flour.from_sklearn(
            *(source, sample),
            allow_python=allow_python,
            on_missing=on_missing,
            log_probabilities=log_probabilities,
        )

    last: Any = source
    while hasattr(last, "steps"):
        last = last.steps[-1][1]
    library = type(last).__module__.partition(".")[0]
    if library != "catboost":  # which has labels of its own shape, also behind other steps
        library = type(source).__module__.partition(".")[0]
    return Original(read, lambda plan, rows: verify(plan, source, rows), source, library=library)


def _of_file(path: Path, sample: object, *, allow_python: bool, trust_pickle: bool) -> Original:
    folder, (path, part) = Folder(path.parent), parted(path)
    form = formats.of(folder, path)
    if form == formats.PLAN:
        return _of_plan(oven.load(path, mapped=False))
    raw = folder.read(path)
    if form != formats.SKLEARN:
        return _of_data(form, raw, str(path), sample)
    where = str(path)
    source = read_as_data(raw, where, part)
    data = _of_estimator(source, sample, allow_python=allow_python)

    def check(plan: Plan, rows: object) -> None:
        asked = formats.original(form, raw, where, part, trust_pickle=trust_pickle)
        if own := _form(asked):
            verify_answers(plan, original(own, _raw(own, asked))(rows), rows, f"the {own} model")
        else:
            verify(plan, asked, rows)

    def read(**how: object) -> Flow:
        try:
            return data.read(**how)
        except ImportRefused as problem:
            found.estimator = formats.trusted(raw, where, problem, part, trust_pickle=trust_pickle)
        found.read = _of_estimator(found.estimator, sample, allow_python=allow_python).read
        return found.read(**how)

    found = Original(read, check, source, library=data.library)
    return found


def _of_plan(plan: Plan) -> Original:
    return Original(lambda **_: plan.flow, _nothing_to_ask, plan=plan)


def _nothing_to_ask(_plan: Plan, _rows: object) -> None:
    raise UnsupportedModel(
        "a program has no original to verify it by", hint="pretzel.compile(estimator, verify=rows)"
    )
