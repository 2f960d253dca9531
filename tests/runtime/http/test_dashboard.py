"""The board and the alerts name metrics and labels that there are, and fit Grafana's grid."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from runtime.cli import main
from runtime.http.watch.dashboard import ALERTS, PANELS, SECTIONS, alert_rules, dashboard
from tests.runtime.http.exposition import read
from tests.runtime.http.monitored import monitored

_METRIC = re.compile(r"\bpretzel_\w+")
_LEGEND = re.compile(r"\{\{(\w+)\}\}")


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """The labels of each metric of a server, as Prometheus names it."""
    with monitored() as client:
        families = read(client.get("/metrics").body.decode())
    labels: dict[str, set[str]] = {}
    for name, family in families.items():
        for end, pairs in family.samples:
            labels.setdefault(name + end, set()).update(label for label, _ in pairs)
    return labels


def expressions() -> list[str]:
    return [line for panel in PANELS for line, _ in panel.lines] + [a.expression for a in ALERTS]


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_is_there(expression: str, known: dict[str, set[str]]) -> None:
    names = _METRIC.findall(expression)
    assert names
    assert set(names) <= set(known)


def test_legends_have_labels_of_their_metrics(known: dict[str, set[str]]) -> None:
    for panel in PANELS:
        for line, legend in panel.lines:
            (name, *_) = _METRIC.findall(line)
            assert set(_LEGEND.findall(legend)) <= known[name], panel.title


def board() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(dashboard())
    return made


def graphs() -> list[dict[str, Any]]:
    return [each for each in board()["panels"] if each["type"] != "row"]


def test_panels_stand_beside_one_another() -> None:
    panels = board()["panels"]
    assert len({each["id"] for each in panels}) == len(panels) == len(PANELS) + len(SECTIONS)
    assert len({each["title"] for each in panels}) == len(panels)
    for each in panels:
        place = each["gridPos"]
        assert 0 <= place["x"] <= 24 - place["w"]
        marks = [target["refId"] for target in each.get("targets", [])]
        assert len(set(marks)) == len(marks)
    for one, other in combinations([each["gridPos"] for each in panels], 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart or below


def test_panels_are_in_sections_say_what_they_mean_and_mark_their_bounds() -> None:
    panels = board()["panels"]
    rows = [each["gridPos"]["y"] for each in panels if each["type"] == "row"]
    assert rows == sorted(rows)
    assert len(rows) >= 4
    assert all(len(each["description"]) > 20 for each in graphs())
    marked = {e["title"] for e in graphs() if "thresholds" in e["fieldConfig"]["defaults"]}
    assert {"Alarms", "Drift of columns (PSI)", "Time of a request", "Rows not looked at"} <= marked
    told = json.dumps(board())
    for name in ("drift_alarms", "watch_alarms", "watch_dropped_rows", "segment_errors"):
        assert f"pretzel_{name}" in told


def test_every_query_goes_to_the_chosen_prometheus() -> None:
    made = board()
    variables = {each["name"] for each in made["templating"]["list"]}
    assert variables == {"datasource", "model"}
    for panel in graphs():
        for query in (panel, *panel["targets"]):
            assert query["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_alerts_have_names_of_their_own() -> None:
    names = [each.name for each in ALERTS]
    assert len(set(names)) == len(names)
    assert alert_rules().count("- alert: ") == len(names)


def test_the_command_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "--into", str(tmp_path / "new")]) == 0
    assert "pretzel-alerts.yml" in capsys.readouterr().out
    assert json.loads((tmp_path / "new" / "pretzel.json").read_text())["uid"] == "pretzel"
    assert (tmp_path / "new" / "pretzel-alerts.yml").read_text() == alert_rules()
