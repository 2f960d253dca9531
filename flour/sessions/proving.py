"""Parts of models tried out in a process of their own, before this one runs them.

`onnxruntime` can end the process that it is in, and no list of the causes is complete. Under
`proving()` a child process first loads every part and runs it on made-up data; if the child dies or
does not return, the part is refused. That takes a fraction of a second for each part, so it is
meant for models from untrusted sources.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

from flour.core.errors import OpaqueFailed

_ON: ContextVar[bool] = ContextVar("proving", default=False)
#: A part that computes longer than this on two rows is of no use for serving.
SECONDS = 30
#: The memory limit of a child, so that a part cannot fill the machine's memory either.
CHILD_BYTES = 8 << 30

#: The child: it reads a model and runs it on zeros and on ones, without output.
_CHILD = """
import sys
import numpy as np
import onnxruntime as ort
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
except ImportError:
    pass  # no such limits here
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.log_severity_level = 4
KINDS = {"float": "float32", "double": "float64", "string": "object"}
def made(item, number):
    shape = [size if isinstance(size, int) else 2 for size in item.shape]
    kind = item.type[len('tensor('):-1]
    kind = KINDS.get(kind, kind)
    return np.full(shape, "a b" if kind == "object" else number, kind)
try:
    session = ort.InferenceSession(sys.stdin.buffer.read(), options)
    for number in (0, 1):
        session.run(None, {item.name: made(item, number) for item in session.get_inputs()})
except Exception:
    pass  # what can be caught, can be caught there as well
"""


@contextmanager
def proving(*, on: bool = True) -> Iterator[None]:
    """Try out in a child process every part that is loaded inside."""
    token = _ON.set(on)
    try:
        yield
    finally:
        _ON.reset(token)


def prove(data: bytes, where: str) -> None:
    """Raise OpaqueFailed if a process would not survive this model; only under `proving`."""
    if _ON.get() and (ending := _death(data)):
        raise OpaqueFailed(
            "onnxruntime does not survive a part of the model",
            where=where or None,
            found=ending,
            hint="the model is damaged, or meant to do this; it is not run",
        )


@lru_cache(maxsize=256)
def _death(data: bytes) -> str:
    """The abnormal end of a child that runs the model, as text; empty if it survives."""
    child = [sys.executable, "-c", _CHILD, str(CHILD_BYTES)]
    try:
        done = subprocess.run(  # noqa: S603 (our own text, and the model on its standard input)
            child, input=data, capture_output=True, timeout=SECONDS, check=False, cwd=Path("/")
        )
    except subprocess.TimeoutExpired:
        return f"it did not come back within {SECONDS} s"
    return f"a process that ran it ended with {done.returncode}" if done.returncode else ""
