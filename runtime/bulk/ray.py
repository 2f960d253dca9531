"""Ray Data: a plan as a function for `map_batches`.

    answers = dataset.map_batches(pretzel.ray.batch(plan), batch_format="pyarrow", batch_size=65536)

A table of the columns that the plan reads, and perhaps others, becomes a table of the outputs,
behind the columns named by `keep`. The plan is put into Ray's object store once; each machine takes
it from there once (`shipping`), so tasks are small and need no actors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from flour.data.arrow_reader import Arrow, library
from runtime.bulk.plans import Source, chosen, open_plan, predict_arrow
from runtime.bulk.shipping import arrived, packed

#: Blocks of Ray are answered in parts of so many rows, which stay in the processor's cache.
_ROWS = 1 << 14


def batch(plan: Source, outputs: Sequence[str] | None = None, keep: Sequence[str] = ()) -> Batch:
    """A function from a table of rows to one of answers; Ray has to be running."""
    opened = open_plan(plan)
    name, raw = packed(opened)
    return Batch(name, ray.put(raw), chosen(opened, outputs), tuple(keep))


class Batch:
    """What `map_batches` calls."""

    def __init__(
        self, name: str, reference: Any, outputs: tuple[str, ...], keep: tuple[str, ...]
    ) -> None:
        self._name, self._reference = name, reference
        self._outputs, self._keep = outputs, keep

    def __call__(self, rows: Arrow) -> Arrow:
        """The answers for a table."""
        plan = arrived(self._name, lambda: ray.get(self._reference))
        most = None if plan.mixes_rows else _ROWS
        batches = rows.to_batches(max_chunksize=most)
        made = [predict_arrow(plan, part, self._outputs) for part in batches]
        if not made:
            return rows.select(list(self._keep))
        answers = library().Table.from_batches(made)
        for place, name in enumerate(self._keep):
            answers = answers.add_column(place, name, rows[name])
        return answers
