"""Grafana's own schema, as classes that are generated from it, knows all of the board."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from runtime.http.watch.dashboard import PANELS, SECTIONS, dashboard

pytestmark = pytest.mark.integrations


@pytest.fixture
def board() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(dashboard())
    return made


def read_and_written(board: dict[str, Any]) -> Any:
    """The board after Grafana's classes have read it: what they do not know is gone."""
    pytest.importorskip("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder").JSONEncoder(sort_keys=True)
    read = pytest.importorskip("grafana_foundation_sdk.models.dashboard").Dashboard.from_json(board)
    return json.loads(encoder.encode(read))


def lost(given: Any, kept: Any, where: str = "board") -> Iterator[str]:
    """The places of values that are not as they were given."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            yield from lost(value, kept.get(key), f"{where}.{key}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for place, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(one, other, f"{where}[{place}]")
    elif given != kept:
        yield where


def test_the_board_is_in_grafanas_schema(board: dict[str, Any]) -> None:
    kept = read_and_written(board)
    assert not [*lost(board, kept)]
    assert len(kept["panels"]) == len(PANELS) + len(SECTIONS)
    plots = [panel for panel in kept["panels"] if panel["type"] != "row"]
    assert len(plots) == len(PANELS)
    assert all(target["expr"] for panel in plots for target in panel["targets"])


def test_what_is_not_in_the_schema_is_found(board: dict[str, Any]) -> None:
    board["panels"][0]["gridPosition"] = board["panels"][0].pop("gridPos")
    board["panels"][1]["targets"][0]["expression"] = "up"
    found = [*lost(board, read_and_written(board))]
    assert found == ["board.panels[0].gridPosition", "board.panels[1].targets[0].expression"]
