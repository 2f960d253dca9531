"""MLflow: a flavour for plans, and its other flavours' models as programs.

    pretzel.mlflow.log_model(plan, name="fraud")        in a run; save_model writes a folder
    pretzel.mlflow.load_model("runs:/.../fraud")        the plan
    mlflow.pyfunc.load_model("runs:/.../fraud")         as any model: frames in, frames out
    pretzel.mlflow.import_model("models/fraud")         a program, of a folder that MLflow wrote

`mlflow models predict` and `mlflow models serve` run the folder, and so does `pretzel serve`, in
whose folder of models it may be.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import oven
from flour.core.errors import FlourError
from flour.core.types import Record, Text, Type, Vector
from flour.language.flow import Flow
from oven import Plan
from runtime.bulk.plans import Source, empty_answers, open_plan, typed_columns
from runtime.errors import AlreadyTaken
from runtime.repository import formats
from runtime.repository.files import Folder, shown
from runtime.repository.mlflow_folder import ABOUT, model_file

FLAVOR_NAME = "pretzel"
_FILE = "plan.pretzel"
_ENVIRONMENT = """\
python: {python}
build_dependencies:
- pip
dependencies:
- -r requirements.txt
"""


def save_model(
    plan: Source,
    path: str | Path,
    mlflow_model: Any = None,
    signature: Any = None,
    input_example: Any = None,
) -> None:
    """Write a plan as a folder of MLflow's, with rows as an example where some are given."""
    from mlflow import pyfunc
    from mlflow.models import Model
    from mlflow.models.utils import _save_example

    folder = Path(path)
    if folder.exists() and any(folder.iterdir()):
        raise AlreadyTaken("this folder is not empty", where=shown(folder))
    folder.mkdir(parents=True, exist_ok=True)
    opened = open_plan(plan)
    opened.save(folder / _FILE)
    release = _release()
    needed = f"pretzel-runtime[mlflow]=={release}" if release else "pretzel-runtime[mlflow]"
    (folder / "requirements.txt").write_text(f"{needed}\n", "utf-8")
    environment = _ENVIRONMENT.format(python=platform.python_version())
    (folder / "python_env.yaml").write_text(environment, "utf-8")
    model = mlflow_model or Model()
    model.signature = signature or model.signature or _signature(opened)
    model.add_flavor(FLAVOR_NAME, data=_FILE, pretzel_version=release)
    environments = {"virtualenv": "python_env.yaml"}
    if input_example is not None:
        _save_example(model, input_example, str(folder))
    pyfunc.add_to_model(model, loader_module=__name__, data=_FILE, python_env=environments)
    model.save(str(folder / ABOUT))


def log_model(plan: Source, name: str, **options: Any) -> Any:
    """Log a plan as an artifact of the current run.

    Options are those of `save_model` and MLflow's `Model.log`.
    """
    import sys

    from mlflow.models import Model

    return Model.log(
        artifact_path=None, name=name, flavor=sys.modules[__name__], plan=plan, **options
    )


def load_model(model_uri: str | Path) -> Plan:
    """The plan of a model, by any of MLflow's addresses."""
    from mlflow.tracking.artifact_utils import _download_artifact_from_uri

    return oven.load(Path(_download_artifact_from_uri(str(model_uri))) / _FILE).wait()


def import_model(folder: str | Path, *, trust_pickle: bool = False) -> Flow:
    """The program of a model that MLflow's sklearn, lightgbm, xgboost or onnx flavour saved.

    It reads the folder as it is, as data, and does not need MLflow. With `trust_pickle`, a pickle
    that is refused so is unpickled, which runs code of its author.
    """
    path = model_file(Path(folder))
    form = formats.of(Folder(path.parent), path)
    if form == formats.PLAN:
        return oven.load(path).flow
    return formats.program(form, path.read_bytes(), shown(path), trust_pickle=trust_pickle)


def _release() -> str | None:
    """The installed version; None in a checkout that is not installed."""
    try:
        return version("pretzel-runtime")
    except PackageNotFoundError:
        return None


def _signature(plan: Plan) -> Any:
    """The columns of a plan, where each has one value a row, and those of its answers.

    What a plan reads alone has no name of its own: rows of numbers are a tensor, as for any model
    that was fitted on an array, and documents may be a list.
    """
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec

    alone = _alone(plan)
    try:
        made: list[tuple[str, str]] = []
        for field in empty_answers(plan, tuple(plan.outputs)).schema:
            size = getattr(field.type, "list_size", None)
            kind = _type(
                _OF_ARROW.get(name := str(getattr(field.type, "value_type", field.type)), name)
            )
            names = [field.name] if size is None else [f"{field.name}_{at}" for at in range(size)]
            made += [(each, kind) for each in names]
        answers = Schema([ColSpec(kind, name) for name, kind in made])
    except FlourError:
        answers = None  # of an output that belongs to all rows together
    if isinstance(alone, Vector):
        inputs = Schema([TensorSpec(np.dtype(alone.dtype), (-1, alone.width))])
    elif isinstance(alone, Text):
        inputs = Schema([ColSpec("string")])
    else:
        try:
            columns = typed_columns(plan)
        except FlourError:
            return None
        inputs = Schema([ColSpec(_type(dtype), name) for name, dtype in columns])
    return ModelSignature(inputs, answers)


_OF_ARROW = {"double": "float64", "float": "float32"}


def _alone(plan: Plan) -> Type | None:
    """The input of a plan that has only one, which is no record of columns."""
    kind, *more = plan.inputs.values()
    return None if more or isinstance(kind, Record) else kind


def _type(dtype: str) -> str:
    """MLflow's name of a dtype."""
    if dtype == "bool":
        return "boolean"
    if "int" in dtype:
        return "long" if dtype in {"int64", "uint64", "uint32"} else "integer"
    return {"float32": "float", "float64": "double"}.get(dtype, dtype)


def _load_pyfunc(path: str) -> Any:
    """Load the model for MLflow's own interface; MLflow calls it."""
    return _FrameModel(oven.load(path).wait())


class _FrameModel:
    """A plan as MLflow's models are called: a frame in, a frame out."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def predict(self, rows: Any, params: Any = None) -> Any:
        """The outputs as columns; those of a vector are numbered."""
        import pandas as pd

        from runtime.bulk.pandas import predict

        frame = rows if isinstance(rows, pd.DataFrame | pd.Series) else pd.DataFrame(rows)
        return predict(self._plan, frame)
