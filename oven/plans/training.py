"""Facts about a model at its import: plain data in the file of its plan.

No answer depends on it and the plan's digest does not cover it. It is read only when asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from flour.core.errors import ParameterError
from objectstore import Archive, Blob, StoreError
from objectstore.layout import Container
from oven.errors import DamagedPlan

#: Most bytes of it.
MOST = 4 << 20


def as_blob(training: Mapping[str, Any]) -> Blob:
    """The bytes of it as a part of a plan's file."""
    try:
        data = json.dumps(training, sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as problem:
        raise ParameterError(
            "what is known of the training is plain data, as JSON has it", found=str(problem)[:200]
        ) from None
    if len(data) > MOST:
        raise ParameterError(
            "this is too much to be kept with a plan",
            found=f"{len(data):,} bytes, at most {MOST:,}",
        )
    return Blob.of(np.frombuffer(data, np.uint8))


def read(buffer: Container, where: str) -> dict[str, Any]:
    """The facts in the file of a plan; {} if there are none."""
    with Archive(buffer, where) as archive:
        digest = archive.manifest.get("training")
        if digest is None:
            return {}
        try:
            blob = archive.load(str(digest))
            found = json.loads(blob.array[: MOST + 1].tobytes()) if isinstance(blob, Blob) else None
        except (StoreError, ValueError, RecursionError) as problem:
            raise _damaged(where, str(problem)) from problem
        if not isinstance(found, dict):
            raise _damaged(where, type(found).__name__)
        return found


def _damaged(where: str, found: str) -> DamagedPlan:
    return DamagedPlan("what it says of the training is damaged", where=where, found=found[:200])
