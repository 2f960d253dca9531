"""Where the sources are and what they contain: shared by the tests about the house itself."""

from __future__ import annotations

import ast
import functools
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGES = ("flour", "objectstore", "oven", "pretzel", "runtime", "scheduler")
PRODUCT = (*PACKAGES, "bench", "scripts")
# Directories made by tools, never part of the project's text.
MADE = {"__pycache__", "build", "dist", "node_modules"}


def files(*places: str, suffix: str = ".py") -> list[Path]:
    """Return the files below `places` that end in `suffix`, in a stable order."""
    return sorted(path for place in places for path in _below(ROOT / place, suffix))


def _below(place: Path, suffix: str) -> Iterator[Path]:
    for folder, folders, names in os.walk(place):
        folders[:] = [each for each in folders if each not in MADE and not _hidden(each)]
        yield from (Path(folder) / name for name in names if name.endswith(suffix))


def _hidden(folder: str) -> bool:
    return folder.startswith(".") and folder != ".ci"


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file, read once per process."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def shown(path: Path, node: ast.AST | int = 1) -> str:
    """Return `file:line` relative to the checkout, as every complaint starts."""
    line = node if isinstance(node, int) else getattr(node, "lineno", 1)
    return f"{path.relative_to(ROOT).as_posix()}:{line}"


def ended(
    *command: str | Path, cwd: Path = ROOT, timeout: float = 120, **options: Any
) -> subprocess.CompletedProcess[str]:
    """A command that was run from the checkout: its code, and what it printed."""
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False, **options
    )


def started(*command: str | Path, **options: Any) -> subprocess.Popen[str]:
    """A command that runs from the checkout; its caller reads what it prints."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, **options)


def run_python(
    code: str, *arguments: str, timeout: float = 120, environment: Mapping[str, str] | None = None
) -> str:
    """Run `code` in a new interpreter from the checkout and return what it printed."""
    env = {**os.environ, **(environment or {})}
    done = ended(sys.executable, "-c", code, *arguments, timeout=timeout, env=env)
    assert done.returncode == 0, f"{code}\n\n{done.stdout}{done.stderr}"
    return done.stdout


def entered(call: Callable[[], object]) -> list[str]:
    """The functions of Python's that a call enters."""
    names: list[str] = []
    sys.setprofile(
        lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None
    )
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def until(true: Callable[[], object], otherwise: str = "", seconds: float = 60.0) -> None:
    """Wait for what others do; it takes as long as their machine is busy, and no longer."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, otherwise or "this did not happen"
        time.sleep(0.002)


def environment_names() -> dict[str, str]:
    """Return every PRETZEL_ variable named in the shipped packages, with a place it is named."""
    return {
        node.value: shown(path, node)
        for path in files(*PACKAGES)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant)
        if isinstance(node.value, str)
        if re.fullmatch(r"PRETZEL_[A-Z_]+", node.value)
    }


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Let no file become longer, which is how a full disk looks to a process."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
