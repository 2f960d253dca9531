"""The id of the request that is being answered, which logs and calls to other servers carry."""

from __future__ import annotations

import os
import re
from contextvars import ContextVar
from itertools import count

#: The id in this context; empty where nobody has named the request.
CURRENT: ContextVar[str] = ContextVar("pretzel-request", default="")
HEADER = "x-request-id"
_RUN, _numbers = os.urandom(5).hex(), count(1)
_own = re.compile(rb"(?![0-9a-f]{2}-[0-9a-f]{32}-)[\w.:/+=@-]{1,128}").fullmatch
#: The second field is the trace, which is not all zeros.
_trace = re.compile(rb"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}").fullmatch


def id_of(told: bytes | None) -> str:
    """The id in a header `X-Request-Id` or `traceparent`; a new one if that is none."""
    trace = None if told is None else _trace(told)
    if trace is not None:
        return trace[1].decode()
    if told is not None and _own(told) is not None:
        return told.decode()
    return f"{_RUN}-{os.getpid():x}-{next(_numbers):x}"
