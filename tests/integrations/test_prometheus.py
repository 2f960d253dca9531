"""Prometheus itself scrapes a server, evaluates every expression, and fires the alerts."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from runtime.http.watch.dashboard import ALERTS, PANELS, alert_rules
from tests.runtime.http.client import Client
from tests.runtime.http.monitored import ask, monitored

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="no Prometheus here"),
]
#: Series that make each alert fire, as promtool writes them: values of each minute.
FIRING = {
    "PretzelDown": {},
    "PretzelErrors": {
        'pretzel_http_requests_total{model="m",status="200"}': "0+90x20",
        'pretzel_http_requests_total{model="m",status="500"}': "0+10x20",
    },
    "PretzelRefuses": {
        'pretzel_http_requests_total{model="m",status="200"}': "0+90x20",
        'pretzel_http_requests_total{model="m",status="503"}': "0+10x20",
    },
    "PretzelSlow": {
        'pretzel_http_request_duration_seconds_bucket{model="m",le="0.1"}': "0+50x20",
        'pretzel_http_request_duration_seconds_bucket{model="m",le="1"}': "0+100x20",
        'pretzel_http_request_duration_seconds_bucket{model="m",le="+Inf"}': "0+100x20",
    },
    "PretzelLoopBehind": {"pretzel_http_loop_lag_seconds": "0.5x20"},
    "PretzelInterprets": {'pretzel_version_tier{model="m",version="1"}': "0x20"},
    "PretzelDrifts": {
        'pretzel_drift_psi{model="m",column="age"}': "0.3x20",
        'pretzel_drift_psi_error{model="m",column="age"}': "0.01x20",
        'pretzel_drift_rows{model="m",column="age"}': "500x20",
    },
    "PretzelUnseen": {
        'pretzel_drift_unseen{model="m",column="city"}': "0.3x20",
        'pretzel_drift_rows{model="m",column="city"}': "500x20",
    },
    "PretzelBeyond": {
        'pretzel_drift_beyond{model="m",column="age"}': "0.3x20",
        'pretzel_drift_rows{model="m",column="age"}': "500x20",
    },
    "PretzelWatchDrops": {'pretzel_watch_dropped_rows_total{model="m"}': "0+10x20"},
    "PretzelScoresChange": {'pretzel_watch_alarms_total{model="m"}': "0x10 1x10"},
    "PretzelRolloutAborted": {'pretzel_rollout_state{model="m",state="aborted"}': "1x20"},
}


def promtool(*arguments: str, given: str = "") -> str:
    command = ["promtool", *arguments]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "pretzel-alerts.yml"
    file.write_text(alert_rules())
    return file


def test_the_rules_are_rules(rules: Path) -> None:
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", str(rules))


@pytest.mark.parametrize("fires", [True, False])
def test_each_alert_fires_and_only_then(rules: Path, tmp_path: Path, *, fires: bool) -> None:
    assert set(FIRING) == {each.name for each in ALERTS}
    tests = []
    for each in ALERTS:
        series = FIRING[each.name] if fires else {"pretzel_build_info": "1x20"}
        names = [{"series": name, "values": values} for name, values in series.items()]
        query = f'ALERTS{{alertname="{each.name}",alertstate="firing"}}'
        asked = {"expr": f"count({query}) or vector(0)", "eval_time": "17m"}
        asked["exp_samples"] = [{"labels": "{}", "value": int(fires)}]  # type: ignore[assignment]  # as JSON
        tests.append({"interval": "1m", "input_series": names, "promql_expr_test": [asked]})
    # YAML takes JSON.
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(rules)], "tests": tests}))
    promtool("test", "rules", str(file))


def test_the_metrics_are_prometheus_metrics() -> None:
    with monitored() as client:
        promtool("check", "metrics", given=client.get("/metrics").body.decode())


@pytest.fixture
def prometheus(tmp_path: Path, rules: Path) -> Iterator[tuple[str, Client]]:
    """A Prometheus that scrapes a server every second, and the server's client."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with monitored() as client:
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {
                    "job_name": "pretzel",
                    "static_configs": [{"targets": [f"127.0.0.1:{client.port}"]}],
                }
            ],
        }
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))
        process = subprocess.Popen(
            [
                *("prometheus", f"--config.file={tmp_path}/prometheus.yml"),
                *(f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield f"http://127.0.0.1:{port}", client
        finally:
            process.terminate()
            process.wait(20)


def answered(url: str, path: str) -> Any:
    with urlopen(url + path, timeout=10) as answer:
        return json.load(answer)["data"]


def found(url: str, expression: str) -> list[Any]:
    result: list[Any] = answered(url, f"/api/v1/query?query={quote(expression)}")["result"]
    return result


def test_every_expression_has_data(prometheus: tuple[str, Client]) -> None:
    url, client = prometheus
    end = time.monotonic() + 60
    while time.monotonic() < end:
        ask(client, 5)
        time.sleep(0.5)
        try:
            if found(url, "count_over_time(pretzel_build_info[1m]) > 5"):
                break
        except OSError:
            continue
    empty = [
        (panel.title, expression)
        for panel in PANELS
        for expression, _ in panel.lines
        if not found(url, expression.replace("$model", ".*"))
    ]
    assert empty == []
    (group,) = answered(url, "/api/v1/rules")["groups"]
    assert {each["health"] for each in group["rules"]} == {"ok"}
    firing = {each["name"] for each in group["rules"] if each["state"] == "firing"}
    assert "PretzelRolloutAborted" in firing
    assert "PretzelDown" not in firing
