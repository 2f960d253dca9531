"""Parts of models tried out in a process of their own, before this one runs them.

`onnxruntime` can end the process that it is in, and no list of what does that is complete. Under
`proving()` every part is first loaded and run on made-up data by a child; if the child dies, or
does not come back, the part is refused. It takes a fraction of a second for each part, so it is for
models of strangers.
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
#: A part that computes for so long on two rows is no use for serving.
SECONDS = 30
#: What a child may take, so that a part cannot fill the memory of the machine either.
CHILD_BYTES = 8 << 30

#: The child: it reads a model, runs it on zeros and on ones, and says nothing.
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


def prove(data: bytes, place: str) -> None:
    """Raise OpaqueFailed if a process would not survive this model; nothing unless it is asked."""
    if _ON.get() and (said := _death(data)):
        raise OpaqueFailed(
            "onnxruntime does not survive a part of the model",
            where=place or None,
            found=said,
            hint="the model is damaged, or meant to do this; it is not run",
        )


@lru_cache(maxsize=256)
def _death(data: bytes) -> str:
    """How a child ends that runs the model; nothing if it lives."""
    child = [sys.executable, "-c", _CHILD, str(CHILD_BYTES)]
    try:
        done = subprocess.run(  # noqa: S603 (our own text, and the model on its standard input)
            child, input=data, capture_output=True, timeout=SECONDS, check=False, cwd=Path("/")
        )
    except subprocess.TimeoutExpired:
        return f"it did not come back within {SECONDS} s"
    return f"a process that ran it ended with {done.returncode}" if done.returncode else ""
