"""Plans and rows for libraries that have an environment of their own: scripts/test-integrations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pytest

from tests.house import ROOT
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start Ray with two workers."""
    ray = pytest.importorskip("ray")
    variables = {"PYTHONPATH": str(ROOT), "PRETZEL_CACHE": os.environ.get("PRETZEL_CACHE", "")}
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        logging_level="ERROR",
        object_store_memory=200 << 20,
        runtime_env={"env_vars": variables},
    )
    yield ray
    ray.shutdown()


class Stranger:
    """A step of a pipeline whose type skops has not heard of."""

    def fit(self, x: object, y: object = None) -> Stranger:
        """Learn nothing."""
        return self

    def transform(self, x: object) -> object:
        """Return the rows as they are."""
        return x
