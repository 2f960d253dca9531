"""Plans of every kind, with rows, for all integrations: all must answer what `predict` does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from oven import Plan
from runtime import Runtime
from tests.runtime.bulk.models import MODELS, Case


class Known(NamedTuple):
    """A plan, rows for it, and the answers of `Runtime.predict`."""

    plan: Plan
    table: pa.Table
    answers: dict[str, Any]

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as pandas has them."""
        return self.table.to_pandas()

    def check(self, made: pa.Table) -> None:
        """Compare answers, which are in the order of the rows, with those of `predict`."""
        assert made.column_names == list(self.answers)
        for name, wanted in self.answers.items():
            found = made[name].to_pylist()
            assert len(found) == len(wanted)
            for one, other in zip(found, np.asarray(wanted).tolist(), strict=True):
                assert one == other, name


@pytest.fixture(params=MODELS, ids=lambda case: str(case.name), scope="module")
def known(request: pytest.FixtureRequest) -> Known:
    """Return each of the plans."""
    case: Case = request.param
    plan, table = case.make()
    with Runtime() as runtime:
        runtime.register("m", plan)
        return Known(plan, table, dict(runtime.predict("m", table)))
