"""Taps: the values of a step inside a plan, for a share of the rows that it answers.

The step is a further output of a plan of the same program, which is baked beside the one that
answers. Sampled rows run through it in the background, so answers are made by the same code as
without a tap, and a tap that was closed leaves nothing behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Self

import numpy as np

import oven
from flour.core.errors import ParameterError, nearest
from flour.core.node import Node
from flour.data.batch import Batch
from flour.language.flow import Flow
from runtime.service.private import read_columns
from runtime.service.runtime import Runtime
from runtime.watch.observers import Observer, attach, detach
from runtime.watch.rows import taken

_MOST, _RING = 1 << 16, 1 << 10
OUTPUT = "tap"


def step_node(flow: Flow, step: str) -> Node:
    """The last node of a step, by its path inside the imported model or the path's end."""
    wanted = step.removesuffix(".output")
    if not wanted:
        raise ParameterError("a tap names a step", found=repr(step))
    found: Node | None = None
    names: dict[str, None] = {}
    origins = flow.origins()
    for item in flow.nodes():
        for origin in origins.get(item, ()):
            names[origin.step] = None
            if origin.step == wanted or origin.step.endswith("." + wanted):
                found = item
    if found is None:
        steps = [name for name in names if name]
        raise ParameterError(
            f"this program has no step {wanted!r}",
            found="steps: " + ", ".join(steps)[:300],
            hint=nearest(wanted, steps),
        )
    return found


def is_number(value: object) -> bool:
    """Whether this is a number."""
    return isinstance(value, int | float)


class Tap:
    """Collects a step's values; a context manager that detaches it at the end."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        step: str,
        sample: float,
        to: Callable[[Any], object] | None,
    ) -> None:
        if not (is_number(sample) and 0 < sample <= 1):
            raise ParameterError("a sample is a share of the rows", found=repr(sample), hint="0.01")
        self._version = version = runtime.find(name)
        plan = version.plan
        if plan is None:
            raise ParameterError("this plan was dropped for memory", where=version.owner)
        node = step_node(plan.flow, step)
        if version.private & read_columns(node):
            raise ParameterError(
                "this step reads private columns, so its values are not to be seen",
                where=step,
                found=", ".join(sorted(version.private & read_columns(node))),
                hint="tap a step that does not depend on them",
            )
        self._plan = oven.bake(Flow({OUTPUT: node}), exact=True, background=True)
        #: The rows' values that came last, a block for each sampled batch.
        self.ring: deque[Any] = deque(maxlen=_RING)
        self._to = self.ring.append if to is None else to
        self._sample, self._owed = sample, 0.0
        self._observer = Observer(self._copied, self._put, _MOST)
        attach(version, self._observer)

    def _copied(self, batch: Batch) -> tuple[Any, int]:
        """Every n-th row, counted over batches."""
        owed = self._owed + batch.rows * self._sample
        count, self._owed = int(owed), owed % 1.0
        if not count:
            return None, 0
        places = np.linspace(0, batch.rows - 1, count).astype(np.int64)
        return taken(batch, self._version.inputs, places), count

    def _put(self, block: object, weight: int) -> None:
        del weight  # each sampled row is given once
        self._to(self._plan.run(block)[OUTPUT])

    def flush(self) -> None:
        """Give what has been sampled so far."""
        self._observer.fold()

    def close(self) -> None:
        """Sample no more, and give what is left."""
        detach(self._version, self._observer)
        self._observer.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tap(
    runtime: Runtime,
    name: str,
    step: str,
    *,
    sample: float = 0.01,
    to: Callable[[Any], object] | None = None,
) -> Tap:
    """Collect the values of a step for a share of the rows, in a ring or by a function.

    Calls of single rows by the shortest way are looked at once in 64; `sample` is a share of these.
    """
    return Tap(runtime, name, step, sample, to)
