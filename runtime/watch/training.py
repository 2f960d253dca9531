"""Facts about a model's training: sketches of its rows, and the libraries that trained it.

    plan.save("fraud.pretzel", training=training_of(plan, rows))

It goes with the plan, or with a registration as `notes={"training": ...}`. A watch has its
reference from it, and `runtime.why` tells it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from flour.core.errors import ParameterError
from oven import Plan
from runtime.watch.rows import Sample, Table, read_table
from runtime.watch.sketch import NumbersSketch, Reference, Sketch

#: Rows that sketches are made of; of more, so many are drawn.
MOST = 100_000
#: Words with more characters are documents, of which no sketch is kept.
_LONG = 64


def training_of(
    plan: Plan,
    rows: object,
    *,
    private: Collection[str] = (),
    libraries: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Facts about the training as data: sketches of its rows, by column.

    Nothing of private columns is in it, and of columns of documents and of names, which say
    who was there, nothing but the share that is missing.
    """
    return training_of_tables(
        [read_table(plan.reader.read(rows), plan.inputs)], private=private, libraries=libraries
    )


def training_of_tables(
    tables: Iterable[Table],
    *,
    private: Collection[str] = (),
    libraries: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Facts about a training whose rows come in blocks."""
    sample, rows = Sample(MOST, private), 0
    for table in tables:
        sample.add(table)
        rows += len(next(iter(table.values()), ()))
    if not rows:
        raise ParameterError(
            "there are no rows with columns to make sketches of",
            hint="pass rows as the model takes them; documents have no columns",
        )
    found = Reference.of(sample.table)
    columns = {name: _facts(each) for name, each in found.columns.items()}
    for name in columns.keys() & sample.table.keys():
        values = sample.table[name]
        if values.dtype.kind in "fiu" and not np.any(values[np.isfinite(values)] % 1):
            columns[name]["whole"] = True
    told = Reference({n: each for n, each in found.columns.items() if not _names_rows(each)})
    return {
        "rows": rows,
        "columns": columns,
        "reference": told.to_data(),
        **({"libraries": dict(libraries)} if libraries else {}),
    }


def reference_of(training: Mapping[str, Any]) -> Reference | None:
    """The sketches in it, if there are any."""
    data = training.get("reference")
    return Reference.from_data(data) if data else None


def _facts(sketch: Sketch) -> dict[str, Any]:
    """The range, or how many words there are, and how much is missing."""
    rows = int(sketch.counts.sum()) + sketch.missing
    missing = sketch.missing / rows if rows else 0.0
    if isinstance(sketch, NumbersSketch):
        return {"least": sketch.least, "most": sketch.most, "missing": missing}
    return {"words": len(sketch.known), "missing": missing}


def _names_rows(sketch: Sketch) -> bool:
    """True if a column has long texts, or mostly texts that no other row has."""
    if isinstance(sketch, NumbersSketch):
        return False
    known = sketch.known
    return 2 * len(known) > sketch.counts.sum() > 1 or any(len(each) > _LONG for each in known)
