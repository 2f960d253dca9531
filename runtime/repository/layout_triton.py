"""Triton's layout: a folder with a config.pbtxt and a folder for each version.

    DIR/name/config.pbtxt
    DIR/name/3/xgboost.json

Models of the FIL backend and of onnxruntime are served. Folders of versions that are not numbers,
or begin with 0, are ignored, and `version_policy` picks among the others: the latest one by
default.
"""

from __future__ import annotations

import re
from pathlib import Path

from flour.core.errors import FlourError
from runtime.repository import formats, pbtxt
from runtime.repository.errors import BadConfig, UnsupportedModel
from runtime.repository.files import Folder, shown
from runtime.repository.io_contract import INPUT, OUTPUT, Fil, IoContract, Plain
from runtime.repository.layout_own import ROWS
from runtime.repository.listing import CACHE_BYTES, FIRST_VERSION, Findings, FolderModel
from runtime.repository.pbtxt import Message

LAYOUT = "triton"
CONFIG = "config.pbtxt"

#: By model_type of the FIL backend: the format and the file's name.
_FIL = {
    "xgboost": (formats.XGBOOST, "xgboost.model"),
    "xgboost_json": (formats.XGBOOST, "xgboost.json"),
    "xgboost_ubj": (formats.XGBOOST, "xgboost.ubj"),
    "lightgbm": (formats.LIGHTGBM, "model.txt"),
}
#: Longest time that requests may wait to form a batch, in microseconds: ten minutes.
_LONGEST_WAIT = 600_000_000
_ONNX = ("onnxruntime", "onnxruntime_onnx")


class Configured:
    """One model's configuration: its format, its file and its inputs and outputs."""

    def __init__(self, config: Message, where: str) -> None:
        self._config, self._where = config, where
        self.form, self.file, self.promise = self._kind()
        named = config.text("default_model_filename")
        if named:
            if named != Path(named).name:
                raise BadConfig(
                    "the name of a file must not contain folders", where=where, found=named[:60]
                )
            self.file = named

    def _kind(self) -> tuple[str, str, IoContract]:
        backend = self._config.text("backend") or self._config.text("platform")
        if backend in _ONNX:
            return formats.ONNX, "model.onnx", Plain()
        if backend != "fil":
            raise UnsupportedModel(
                f"the backend {backend!r} is not supported",
                where=self._where,
                hint="supported are fil and onnxruntime",
            )
        kind = self._parameter("model_type") or "xgboost"
        if kind not in _FIL:
            raise UnsupportedModel(
                f"model_type {kind!r} is not supported",
                where=self._where,
                hint="supported are " + ", ".join(_FIL),
            )
        classifies = self._flag("is_classifier") or self._flag("output_class")
        return *_FIL[kind], Fil(
            width=self._width("input", INPUT),
            columns=self._width("output", OUTPUT),
            classifies=classifies,
            shares=self._flag("predict_proba"),
            threshold=self._threshold(),
        )

    def _parameter(self, key: str) -> str:
        for entry in self._config.messages("parameters"):
            value = entry.one("value")
            if entry.text("key") == key and isinstance(value, Message):
                return value.text("string_value")
        return ""

    def _flag(self, key: str) -> bool:
        value = self._parameter(key)
        if value not in ("", "true", "false"):
            raise BadConfig(f"{key} is true or false", where=self._where, found=value[:60])
        return value == "true"

    def _threshold(self) -> float:
        value = self._parameter("threshold")
        try:
            return float(value) if value else 0.5
        except ValueError:
            raise BadConfig("threshold is a number", where=self._where, found=value[:60]) from None

    def _width(self, kind: str, name: str) -> int:
        """The number of columns in the configuration of a tensor; -1 if it has none."""
        for tensor in self._config.messages(kind):
            if tensor.text("name") not in ("", name):
                raise BadConfig(
                    f"the FIL backend's {kind} is called {name!r}",
                    where=self._where,
                    found=tensor.text("name")[:60],
                )
            sizes = [size for size in tensor.get("dims", []) if isinstance(size, int)]
            return int(sizes[-1]) if sizes else -1
        return -1

    def notes(self) -> dict[str, object]:
        """Settings of batching and of the result cache."""
        settings: dict[str, object] = {}
        batching, cache = self._config.one("dynamic_batching"), self._config.one("response_cache")
        if isinstance(batching, Message):
            wait = batching.one("max_queue_delay_microseconds")
            sizes = [*batching.get("preferred_batch_size", ()), self._config.one("max_batch_size")]
            rows = max((each for each in sizes if type(each) is int), default=0)
            if rows > 1 and type(wait) is int and 0 < wait < _LONGEST_WAIT:
                settings = {"batch_wait": wait / 1e6, "batch_rows": rows}
        if isinstance(cache, Message) and cache.one("enable") is True:
            settings["cache_bytes"] = CACHE_BYTES
        return settings

    def chosen(self, versions: list[str]) -> list[str]:
        """The versions that the policy picks, in their order."""
        policy = self._config.one("version_policy")
        rule = policy if isinstance(policy, Message) else Message()
        if "all" in rule:
            return versions
        specific = rule.one("specific")
        if isinstance(specific, Message):
            numbers = {str(number) for number in specific.get("versions", [])}
            return [version for version in versions if version in numbers]
        latest = rule.one("latest")
        count = latest.one("num_versions") if isinstance(latest, Message) else 1
        if not isinstance(count, int | None):
            raise BadConfig("num_versions is an integer", where=self._where, found=str(count)[:60])
        return versions[-max(count or 1, 1) :]


def model(folder: Folder, directory: Path, into: Findings) -> None:
    """The versions of a folder with a configuration."""
    path = directory / CONFIG
    name, stamp = directory.name, folder.stamp(path)
    try:
        config = pbtxt.parse(folder.read_text(path), shown(path))
        named = config.text("name")
        if named not in ("", name):
            raise BadConfig(
                "the model's name must be that of its folder", where=shown(path), found=named[:60]
            )
        configured = Configured(config, shown(path))
        there = [each.name for each in folder.entries(directory) if _is_version(each.name)]
        versions = configured.chosen(sorted(there, key=int))
    except FlourError as problem:
        into.trouble(name, "", path, problem, stamp)
        return
    if not there:
        into.trouble(name, FIRST_VERSION, directory, "there is no folder for a version", stamp)
    for version in versions:
        _add(folder, directory / version, (name, version), configured, into)


def _add(
    folder: Folder, directory: Path, address: tuple[str, str], config: Configured, into: Findings
) -> None:
    file, rows = directory / config.file, directory / ROWS
    stamp = folder.stamp(directory.parent / CONFIG, file, rows)
    if not folder.is_file(file):
        into.trouble(*address, file, "there is no such model file", stamp)
        return
    try:
        if not folder.holds(file):
            folder.guard(file)
    except FlourError as problem:
        into.trouble(*address, file, problem, stamp)
        return
    sample_rows = rows if folder.is_file(rows) else None
    into.add(
        FolderModel(
            *address, LAYOUT, file, config.form, config.promise, sample_rows, stamp, config.notes()
        )
    )


def _is_version(name: str) -> bool:
    return re.fullmatch(r"[1-9][0-9]{0,17}", name) is not None
