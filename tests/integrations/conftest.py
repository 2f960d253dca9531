"""Plans and rows for libraries that have an environment of their own: scripts/test-integrations."""

from __future__ import annotations

from importlib.util import find_spec

import pyarrow as pa
import pytest

from tests.runtime.bulk.conftest import Known
from tests.runtime.bulk.conftest import known as known_fixture
from tests.runtime.bulk.models import mixed

known = known_fixture
#: Without their packages, which are in that environment only.
collect_ignore = [] if find_spec("grpc_reflection") else ["test_grpc_clients.py"]


@pytest.fixture(scope="session")
def one() -> Known:
    """Return the plan over columns of every type."""
    plan, table = mixed()
    numbered = table.append_column("row", pa.array(range(table.num_rows)))
    return Known(plan, numbered, plan.run(table))


class Stranger:
    """A step of a pipeline whose type skops has not heard of."""

    def fit(self, x: object, y: object = None) -> Stranger:
        """Learn nothing."""
        return self

    def transform(self, x: object) -> object:
        """Return the rows as they are."""
        return x
