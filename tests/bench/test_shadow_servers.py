"""A champion with a shadow under the bench's client: ours answers as the champion does by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import environments
from bench.crew import Absent
from bench.experiments import graph_servers, shadow_servers
from bench.servers import SHADOWS
from bench.servers.shadow_parts import write

pytestmark = pytest.mark.apart


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rounds, with no environments but ours."""
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    monkeypatch.setattr(graph_servers, "SECONDS", 0.1)
    monkeypatch.setattr(graph_servers, "ROUNDS", 1)


def test_servers_that_are_not_installed_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(shadow_servers.measured()) == []
    said = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert said == [kind.title for kind in SHADOWS.values()]


def test_a_server_that_answers_otherwise_is_not_measured(tmp_path: Path) -> None:
    file = tmp_path / "parts.pickle"
    parts = write(file)
    found = shadow_servers._shadowed(shadow_servers.OURS, file, parts)
    assert 0 < found.p50 <= found.p99
    with pytest.raises(Absent, match="where scikit-learn says"):
        shadow_servers._shadowed(shadow_servers.OURS, file, parts._replace(champion=parts.shadow))
