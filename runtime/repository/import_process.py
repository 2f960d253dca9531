"""The process that imports models: its start, which needs nothing but an interpreter.

Its own imports take longer than all else that a server with compiled plans does at its start. So a
server may start it before it imports what it needs itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress

#: The program of the process: an interpreter with the same module path as this one.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from runtime.repository.isolated_import_process import main; main()"
)
_started_early: list[subprocess.Popen[bytes]] = []


def start_early(*, heard: bool) -> None:
    """Start it for whoever needs it first; its lines are `heard` by this process, or shown."""
    _started_early.append(_new(heard=heard))


def start(*, heard: bool) -> subprocess.Popen[bytes]:
    """The process; its orders come in the first line of its input."""
    while _started_early:
        process = _started_early.pop()
        if process.poll() is None and (process.stderr is not None) == heard:
            return process
        _end(process)
    return _new(heard=heard)


def drop() -> None:
    """End what was started early and is not needed."""
    while _started_early:
        _end(_started_early.pop())


def _new(*, heard: bool) -> subprocess.Popen[bytes]:
    module_path = json.dumps([each or os.getcwd() for each in sys.path])  # noqa: PTH109 (a string)
    return subprocess.Popen(  # noqa: S603 (our own program)
        [sys.executable, "-c", _PROGRAM, module_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if heard else None,
        bufsize=0,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(subprocess.TimeoutExpired):  # a child of its own may hold the pipes
        process.communicate(timeout=5.0)
