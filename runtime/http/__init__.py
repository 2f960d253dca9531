"""Plans over HTTP: the Open Inference Protocol, and plain JSON for people.

Server(runtime)      listens, answers, ends in good order
ServerSettings       every limit and every time
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from flour.core.errors import FlourError

if TYPE_CHECKING:
    from runtime.http.server import Server
    from runtime.http.wire.settings import ServerSettings

__all__ = ["Server", "ServerSettings"]

_LATER = {"Server": "runtime.http.server", "ServerSettings": "runtime.http.wire.settings"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(import_module(_LATER[name]), name)
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] not in {"httptools", "msgspec", "uvloop"}:
            raise
        raise FlourError(
            "serving over HTTP needs some distributions more",
            where="runtime.http",
            found=f"no {problem.name}",
            hint="pip install 'pretzel-runtime[serve]'",
        ) from problem
    globals()[name] = value
    return value
