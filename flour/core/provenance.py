"""Origins of nodes in the user's world: a line of their file, a step, an ONNX node."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_OURS: list[str] = []
_step: ContextVar[tuple[str, ...]] = ContextVar("pretzel_step", default=())
_place: ContextVar[Origin | None] = ContextVar("pretzel_place", default=None)


class Origin(NamedTuple):
    """A place in the user's world; `step` is a path inside an imported model."""

    file: str
    line: int
    step: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}, step '{self.step}'" if self.step else place


@lru_cache(1024)
def _is_ours(path: str) -> bool:
    return path.startswith(tuple(_OURS))


def belongs_to_us(file: str) -> None:
    """Frames of this file's package are never the user's line; its __init__ passes its own file."""
    _OURS.append(str(Path(file).parent) + os.sep)
    _is_ours.cache_clear()


belongs_to_us(str(Path(__file__).parent))


def here() -> Origin:
    """The innermost line of the caller's program that is not ours."""
    known = _place.get()
    if known is not None:
        return known._replace(step=".".join(_step.get()))
    frame = sys._getframe(1)  # noqa: SLF001 (inspect.stack() reads source files: 1000x slower)
    while (outer := frame.f_back) is not None and _is_ours(frame.f_code.co_filename):
        frame = outer
    name = _file_name(frame.f_code.co_filename)
    return Origin(name, frame.f_lineno, ".".join(_step.get()))


@lru_cache(1024)
def _file_name(path: str) -> str:
    """The last part of a path; importers ask for the same few hundreds of times."""
    return Path(path).name


@contextmanager
def step(name: str) -> Iterator[None]:
    """Everything made inside belongs to this step of the model being imported."""
    token = _step.set((*_step.get(), name))
    try:
        yield
    finally:
        _step.reset(token)


@contextmanager
def at(place: Origin) -> Iterator[None]:
    """Everything made inside is of this place: it was asked for there, and is made only now."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def current_step() -> str:
    """The path of the step being imported, or the empty string."""
    return ".".join(_step.get())
