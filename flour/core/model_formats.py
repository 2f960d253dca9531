"""Formats of model files: how to tell one, and where its importer is; a row for each.

    register(ModelFormat("toy", (".toy",)), "flour.boosters.toy")

The module has `from_toy(model)`, the program of a model, and may have `original(raw)`, which
answers rows as the model's own library does. Nothing is imported before it is needed. The row makes
`flour.from_toy`, `pretzel import`, `pretzel serve` and `pretzel verify` know the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from flour.core.modules import imported


@dataclass(frozen=True)
class ModelFormat:
    """A kind of files that models are kept in."""

    name: str
    endings: tuple[str, ...]
    """How names of such files end."""
    begins: bytes = b""
    """How such files begin, where another format has an ending in common with this one."""
    runs_code: bool = False
    """True if reading a file runs code that it names, as pickles do."""


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
    """Which of these formats a file has that begins like this."""
    telling = (known for known in possible if known.begins and head.startswith(known.begins))
    return next(telling, next((known for known in possible if not known.begins), possible[0]))
