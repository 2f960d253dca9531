"""Folders that MLflow saved a model in: which of their files is the model.

    fraud/MLmodel           YAML: the model's flavours, each with its file
    fraud/model.lgb

Only the flavours' own lines are read, which MLflow writes in one way, so no YAML library is needed.
"""

from __future__ import annotations

import re
from pathlib import Path

from runtime.repository.errors import UnsupportedModel
from runtime.repository.files import shown

ABOUT = "MLmodel"
#: The flavours whose files we read, and what they call them, best first.
_FLAVOURS = {
    "pretzel": "data",
    "onnx": "data",
    "xgboost": "data",
    "lightgbm": "data",
    "sklearn": "pickled_model",
}
_FLAVOUR = re.compile(r"  (\w+):\s*$")
_FACT = re.compile(r"    (\w+): *['\"]?([^'\"#]+?)['\"]?\s*$")


def is_mlflow(path: Path) -> bool:
    """True if MLflow saved a model in this folder."""
    return (path / ABOUT).is_file()


def model_file(folder: Path) -> Path:
    """The file of the model."""
    found = flavours((folder / ABOUT).read_text(encoding="utf-8"))
    for name, key in _FLAVOURS.items():
        place = found.get(name, {}).get(key)
        path = (folder / place).resolve() if place else folder
        if path.is_file() and path.is_relative_to(folder.resolve()):
            return path
    raise UnsupportedModel(
        "this MLflow model has no flavour that can be imported",
        where=shown(folder),
        found=", ".join(found) or "no flavours",
        hint="supported are " + ", ".join(_FLAVOURS),
    )


def flavours(text: str) -> dict[str, dict[str, str]]:
    """The flavours in an MLmodel file, with their facts that are single values."""
    found: dict[str, dict[str, str]] = {}
    facts: dict[str, str] | None = None
    inside = False
    for line in text.splitlines():
        if not line.startswith(" "):
            inside = line.rstrip() == "flavors:"
        elif inside and (name := _FLAVOUR.match(line)):
            facts = found.setdefault(name[1], {})
        elif inside and facts is not None and (fact := _FACT.match(line)):
            facts[fact[1]] = fact[2]
    return found
