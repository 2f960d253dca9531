"""MLServer's layout: any folder with a model-settings.json is one model.

These settings are read: name, implementation, parameters.uri, parameters.version, max_batch_size,
max_batch_time and cache_enabled. The others configure MLServer and do not change answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flour.core.errors import FlourError, is_number
from runtime.repository import formats
from runtime.repository.errors import BadConfig, UnsafePath, UnsupportedModel
from runtime.repository.files import Folder, shown
from runtime.repository.io_contract import MLServer
from runtime.repository.listing import CACHE_BYTES, FIRST_VERSION, Findings, FolderModel

LAYOUT = "mlserver"
_MOST = 1e6
SETTINGS = "model-settings.json"

#: By the last part of `implementation`: the formats it reads, and the files it looks for.
_RUNTIMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "SKLearnModel": ((formats.SKLEARN,), ("model.joblib", "model.pickle", "model.pkl")),
    "XGBoostModel": ((formats.XGBOOST,), ("model.bst", "model.json", "model.ubj")),
    "LightGBMModel": ((formats.LIGHTGBM,), ("model.bst", "model.txt")),
    "OnnxModel": ((formats.ONNX,), ("model.onnx",)),
}


def model(folder: Folder, directory: Path, into: Findings) -> None:
    """The model of a folder with settings."""
    path = directory / SETTINGS
    name, version, stamp = directory.name, "", folder.stamp(path)
    try:
        settings = _settings(folder, path)
        name = _text(settings, "name", path) or name
        parameters = settings.get("parameters") or {}
        version = _text(parameters, "version", path) or FIRST_VERSION
        implementation = _text(settings, "implementation", path)
        known_runtime = _RUNTIMES.get(implementation.rpartition(".")[2])
        if known_runtime is None:
            raise UnsupportedModel(
                f"the implementation {implementation!r} is not supported",
                where=shown(path),
                hint="supported are " + ", ".join(_RUNTIMES),
            )
        forms, usual = known_runtime
        file = _file(folder, directory, _text(parameters, "uri", path), usual)
        stamp = folder.stamp(path, file)
        form = formats.of(folder, file) if set(formats.by_name(file)) & set(forms) else forms[0]
        # Settings of batching and of the result cache.
        rows, wait = (settings.get(key) or 0 for key in ("max_batch_size", "max_batch_time"))
        fine = is_number(rows) and is_number(wait) and max(rows, wait) < _MOST
        if not fine or not float(rows).is_integer():
            raise BadConfig(
                "max_batch_size and max_batch_time are an integer and seconds, from 0 to a million",
                where=shown(path),
                found=f"{rows!r} and {wait!r}"[:60],
            )
        notes: dict[str, object] = {}
        if rows > 1 and wait > 0:
            notes = {"batch_rows": int(rows), "batch_wait": float(wait)}
        if settings.get("cache_enabled") is True:
            notes["cache_bytes"] = CACHE_BYTES
        into.add(FolderModel(name, version, LAYOUT, file, form, MLServer(), None, stamp, notes))
    except FlourError as problem:
        into.trouble(name, version, path, problem, stamp)


def _settings(folder: Folder, path: Path) -> Mapping[str, Any]:
    try:
        settings = json.loads(folder.read_text(path))
    except (ValueError, RecursionError) as problem:
        raise BadConfig("this is not JSON", where=shown(path), found=str(problem)[:120]) from None
    if not isinstance(settings, dict) or not isinstance(settings.get("parameters") or {}, dict):
        raise BadConfig(
            "the settings must be a JSON object", where=shown(path), found=type(settings).__name__
        )
    return settings


def _text(settings: Mapping[str, Any], key: str, path: Path) -> str:
    value = settings.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadConfig(f"{key} is a string", where=shown(path), found=repr(value)[:60])
    return value


def _file(folder: Folder, directory: Path, uri: str, usual: tuple[str, ...]) -> Path:
    """The model's file: named by the settings, or one of the usual names."""
    if "://" in uri and not uri.startswith("file://"):
        raise UnsupportedModel(
            "models outside the folder are not read",
            where=shown(directory / SETTINGS),
            found=uri[:80],
            hint="copy the file next to its model-settings.json",
        )
    target = directory / uri.removeprefix("file://")
    folder.guard(target)
    if folder.is_file(target):
        return target
    for name in usual:
        if folder.is_file(target / name):
            return target / name
    raise UnsafePath(
        "the model file is missing",
        where=shown(target),
        hint=f"name it in parameters.uri, or call it {usual[0]}",
    )
