"""A runtime with two versions of a model, of which the first one answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import flour
from runtime import Runtime


def register(runtime: Runtime, name: str = "m", *, same: bool = True) -> None:
    for version in (1, 2):
        row = flour.record(user=float, amount=float)
        flow = flour.outputs(label=row["amount"] * (1.0 if same else float(version)))
        runtime.register(name, flow, version, activate=version == 1, background=False)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        register(made)
        yield made
