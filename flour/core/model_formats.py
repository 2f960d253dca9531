"""Formats of model files: how to tell one, and where its importer is; a row for each.

    register(ModelFormat("toy", (".toy",)), "flour.boosters.toy")

The module has `from_toy(model)`, the program of a model, and may have `original(raw)`, which
answers rows as the model's own library does. Nothing is imported before it is needed. The row makes
`flour.from_toy`, `pretzel import`, `pretzel serve` and `pretzel verify` know the format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import ModuleType

from flour.core.errors import ImportRefused
from flour.core.modules import imported


@dataclass(frozen=True)
class ModelFormat:
    """A kind of files that models are kept in."""

    name: str
    endings: tuple[str, ...]
    """Endings of such files' names."""
    begins: bytes | tuple[bytes, ...] = b""
    """The first bytes of such files, if another format shares an ending with this one."""


#: Every format by its name.
FORMATS: dict[str, ModelFormat] = {}
#: The modules of their importers.
_MODULES: dict[str, str] = {}


def register(known: ModelFormat, module: str) -> None:
    """Add a format whose importer is in a module."""
    FORMATS[known.name], _MODULES[known.name] = known, module


def importing(form: str) -> ModuleType:
    """The module that imports models of a format."""
    return imported(_MODULES[form])


def with_ending(ending: str) -> list[ModelFormat]:
    """The formats that a file whose name ends so may have."""
    return [known for known in FORMATS.values() if ending.lower() in known.endings]


def that_begins(possible: list[ModelFormat], head: bytes) -> ModelFormat:
    """The one of these formats whose files begin with these bytes."""
    telling = (known for known in possible if known.begins and head.startswith(known.begins))
    return next(telling, next((known for known in possible if not known.begins), possible[0]))


#: Files that people take for models, by what they begin with: what they are, and what to do.
_NO_MODELS: tuple[tuple[bytes, str, str], ...] = (
    (rb"\Z", "the file is empty", "copy it again, or write it where the model was trained"),
    (rb"version https://git-lfs", "this is Git LFS's pointer to a model", "git lfs pull"),
    (rb"\s*<(?i:!doctype html|html)\b", "this is a web page, not a model", "download it again"),
    (
        rb"PK\x03\x04.{26}[^/\0]{1,200}/(data\.pkl|\.format_version)",
        "this is a model of PyTorch",
        "write ONNX where it was trained: torch.onnx.export",
    ),
)


def refuse_other(raw: bytes, where: str | None = None) -> None:
    """Raise for a file that is no model of any format here, if its beginning says what it is."""
    for begins, what, hint in _NO_MODELS:
        if re.match(begins, raw[:400], re.DOTALL):
            raise ImportRefused(what, where=where, hint=hint)
