"""Every feature that a folder of models has, by every way to serve the folder.

In a server made in Python, by the command in one process, with workers, and as a cluster: the same
requests, on connections of their own, so that any process may have each of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import flour
import oven
from runtime import Runtime
from runtime.cli import main
from runtime.cluster.serving import Scale
from runtime.http import Server, ServerSettings
from runtime.repository.repository import Repository
from runtime.watch import training_of
from tests.house import until
from tests.runtime.cluster.clusters import cluster
from tests.runtime.http.client import Client, Reply
from tests.runtime.workers.house import serving

WAYS = ("python", "command", "workers", "cluster")
ROW = {"age": 4.0, "ssn": 77.0}
#: Requests that any of the processes may have: each of two is missed once in 2^30 runs.
MANY = 30
MODELS = {
    "plain": "",
    "routed": "",
    "rolled": "",
    "shadowed": "",
    "unloaded": "",
    "watched": '[watch]\nsegments = ["age // 10"]\ndrift = true\n',
    "kept": "[keep]\n",
    "learning": "[feedback]\nsample = 1.0\nperiod = 0.1\n",
    "private": 'private = ["ssn"]\n',
    "cached": "cache_bytes = 1_000_000\n",
    "batched": "batch_wait = 0.02\n",
}
GRAPH = """
[inputs]
age = "number"
ssn = "number"

[nodes.first]
model = "plain@1"
reads = ["age", "ssn"]

[outputs]
twice = "first.score * 2"
"""

MODULE = "tests.runtime.graph.waiting"
WAITING = f"""
[inputs]
age = "number"

[nodes.fetched]
fetch = "{MODULE}:twice"
reads = ["age"]
gives = "number"

[outputs]
fetched = "fetched"
"""


def written(folder: Path) -> Path:
    """Write every model with two versions of it, its notes, and the graph."""
    rows = {"age": np.arange(100.0), "ssn": np.arange(100.0)}
    for factor in (1.0, 2.0):
        # Return a program of which each answer shows the factor: 4.0 * factor for ROW.
        row = flour.record(age=float, ssn=float)
        scores = row.columns(["age", "ssn"]).linear([[factor, 0.0]], [0.0])
        plan, single = (oven.bake(flour.outputs(score=each)) for each in (scores, scores.max()))
        for name, notes in MODELS.items():
            own = folder / name / str(int(factor))
            own.mkdir(parents=True)
            saved = single if name == "learning" else plan
            saved.save(own / "model.pretzel", training=training_of(plan, rows), durable=False)
            (folder / name / "notes.toml").write_text(notes)
    for name in ("routed", "rolled", "shadowed"):
        (folder / name / "endpoint.toml").write_text(f'champion = "{name}@1"\n')
    for name, graph in (("graph", GRAPH), ("waiting", WAITING)):
        (folder / name).mkdir()
        (folder / name / "graph.toml").write_text(graph)
    return folder


@dataclass
class Way:
    """A folder that is served in one of the ways."""

    name: str
    client: Client
    answers: Path

    def score(self, model: str, **headers: str) -> Any:
        """Ask for the one row."""
        reply = self.client.post(f"/predict/{model}", ROW, headers)
        assert reply.status == 200, reply.body
        return np.ravel(reply.json["score"])[0]

    def scores(self, model: str) -> set[float]:
        """Ask so often that every process has answered."""
        return {float(self.score(model)) for _ in range(MANY)}

    def figure(self, name: str, **labels: str) -> float:
        """Sum the samples of a metric that have these labels."""
        found = 0.0
        for line in self.client.get("/metrics").body.decode().splitlines():
            sample, _, value = line.rpartition(" ")
            if sample.split("{")[0] == name:
                found += float(value) * all(f'{k}="{v}"' in sample for k, v in labels.items())
        return found


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """Serve the folder."""
    place = tmp_path_factory.mktemp(request.param)
    folder, answers = written(place / "models"), place / "answers"
    with ExitStack() as stack:
        if request.param == "python":
            runtime = stack.enter_context(Runtime(executors=1, allow_python=[MODULE]))
            staging = place / "staging"
            repository = Repository(folder, runtime, staging=staging, allow_python=[MODULE])
            repository.load_all()
            stack.callback(repository.close)
            settings = ServerSettings(port=0, answers=answers)
            server = stack.enter_context(Server(runtime, settings, repository=repository))
            port = server.port
        elif request.param == "cluster":
            http = ServerSettings(drain_delay=0.2, drain_seconds=5.0, answers=answers)
            scale = Scale(2, 2)
            made = stack.enter_context(
                cluster(place, folder, http=http, scale=scale, poll=0.0, allow_python=(MODULE,))
            )
            made.wait_ready()
            port = urlsplit(made.front.url).port or 0
        else:
            count = 2 if request.param == "workers" else 1
            options = ("--set", f"answers={answers}", "--poll", "0", "--allow-python", MODULE)
            port = stack.enter_context(serving(folder, count, *options)).port
        way = Way(request.param, Client(port), answers)
        until(lambda: way.client.get("/v2/health/ready").status == 200)
        yield way


def test_rows_and_blocks_in_every_protocol(way: Way) -> None:
    """Each form of a request has the answer of version 2, the newest."""
    columns = [
        {"name": name, "datatype": "FP64", "shape": [3, 1], "data": [value] * 3}
        for name, value in ROW.items()
    ]
    for path in ("/v2/models/plain/infer", "/v2/models/plain/versions/2/infer"):
        reply = way.client.post(path, {"inputs": columns})
        assert [each["data"] for each in reply.json["outputs"]] == [[8.0] * 3], reply.body
    assert way.client.post("/predict/plain", [ROW] * 3).json == [{"score": [8.0]}] * 3
    instances = way.client.post("/v1/models/plain:predict", {"instances": [ROW]})
    assert np.ravel(instances.json["predictions"]) == [8.0]


def test_versions_have_addresses(way: Way) -> None:
    """A version that is not the newest answers where it is named."""
    found = [way.client.post(f"/v2/models/plain/versions/{each}/infer", INFER) for each in (1, 2)]
    assert [each.json["outputs"][0]["data"] for each in found] == [[4.0], [8.0]]
    assert way.client.post("/v2/models/plain/versions/3/infer", INFER).status == 404


def test_a_deadline_that_has_passed(way: Way) -> None:
    """It is an error that says so, and nothing of the next request."""
    late = {"x-request-timeout-ms": "0"}
    assert way.client.post("/predict/plain", ROW, late).status == 504
    assert way.score("plain") == 8.0


def test_a_route_and_its_history(way: Way) -> None:
    """A change is every process's when it is acknowledged, and can be undone."""
    assert way.scores("routed") == {4.0}
    assert way.client.post("/v2/models/routed/promote", {"version": "routed@2"}).status == 200
    assert way.scores("routed") == {8.0}
    assert way.client.post("/v2/models/routed/rollback", {}).status == 200
    assert way.scores("routed") == {4.0}
    put = json.dumps({"champion": "routed@2"}).encode()
    assert way.client.ask("PUT", "/v2/models/routed/route", put).status == 200
    assert way.scores("routed") == {8.0}
    assert len(way.client.get("/v2/models/routed/history").json["changes"]) >= 3


def test_a_shadow_is_compared(way: Way) -> None:
    """The pairs of all processes are added up."""
    put = json.dumps({"champion": "shadowed@1", "shadow": "shadowed@2"}).encode()
    assert way.client.ask("PUT", "/v2/models/shadowed/route", put).status == 200

    def compared() -> Any:
        return way.client.get("/v2/models/shadowed/compare").json

    assert way.client.get("/v2/models/nobody/compare").status == 404
    before = compared()["pairs"]
    assert way.scores("shadowed") == {4.0}
    until(lambda: compared()["pairs"] == before + MANY, "pairs are missing")
    for _ in range(4):  # whichever process is asked
        found = compared()
        assert (found["pairs"], found["disagreements"]) == (before + MANY, before + MANY)
        assert found["outputs"]["score"]["mean_difference"] == pytest.approx(4.0)
        assert found["first_difference"]


def test_a_rollout_counts_the_answers_of_all(way: Way) -> None:
    """It can be reported to and ended by way of any process."""
    terms = {"to": "rolled@2", "steps": [50, 100], "dwell": 600, "header": "x-user", "least": 5}
    assert way.client.post("/v2/models/rolled/rollout", terms).status == 200
    for user in range(MANY):
        way.score("rolled", **{"x-user": str(user), "x-request-id": f"r{user}"})

    def counted() -> int:
        counts = way.client.get("/v2/models/rolled/rollout").json["counts"]
        return sum(each["answers"]["number"] for each in counts.values())

    until(lambda: counted() == MANY, "answers are missing")
    report = {"request": "r1", "values": {"bought": 1.0}}
    assert way.client.post("/v2/models/rolled/report", report).json == {"known": True}
    state = {"action": "abort", "why": "enough"}
    assert way.client.post("/v2/models/rolled/rollout/state", state).json["state"] == "aborted"
    assert way.scores("rolled") == {4.0}


def test_a_graph_of_the_folder(way: Way) -> None:
    """It asks the version that it names."""
    assert {way.client.post("/predict/graph", ROW).json["twice"][0] for _ in range(MANY)} == {8.0}


def test_a_graph_that_waits(way: Way) -> None:
    """Its coroutine is one that the operator has allowed."""
    found = {way.client.post("/predict/waiting", ROW).json["fetched"] for _ in range(MANY)}
    assert found == {8.0}


def test_a_model_goes_and_comes_by_name(way: Way) -> None:
    """No process answers what is unloaded, and every one what is loaded again."""
    path = "/v2/repository/models/unloaded"
    for _ in range(2):
        assert way.client.post(f"{path}/unload", {}).status == 200
        replies = [way.client.post("/predict/unloaded", ROW).status for _ in range(MANY)]
        assert set(replies) == {404}
        assert way.client.post(f"{path}/load", {}).status == 200
        assert way.scores("unloaded") == {8.0}
    nothing = way.client.post("/v2/repository/models/nothing/load", {})
    assert (nothing.status, "no model 'nothing'" in nothing.error) == (404, True)
    index = way.client.post("/v2/repository/index", {}).json
    assert {each["name"] for each in index} == {*MODELS, "graph", "waiting"}


def test_what_each_column_added(way: Way) -> None:
    """The shares of a request that asks for them add up to its score."""
    asked = {**INFER, "parameters": {"explain": True}}
    reply = way.client.post("/v2/models/plain/infer", asked)
    assert reply.status == 200, reply.body
    (row,) = reply.json["parameters"]["attribution"]["rows"]
    assert row["base"] + sum(row["shares"].values()) == row["score"] == 8.0


def test_the_smallest_change(way: Way) -> None:
    """A row changes as far as its answer asks for it."""
    asked = {"row": ROW, "want": [10.0, None], "within": {"age": [0.0, 9.0]}}
    reply = way.client.post("/v2/models/learning/counterfactual", asked)
    assert reply.status == 200, reply.body
    (change,) = reply.json["changes"]
    assert change == {"column": "age", "old": 4.0, "new": pytest.approx(5.0)}
    assert way.client.post("/predict/learning", reply.json["row"]).json["score"] >= 10.0


@pytest.mark.parametrize("path", ["/", "/explain/plain", "/openapi.json", "/v2/models/stats"])
def test_pages(way: Way, path: str) -> None:
    """Any process shows them."""
    assert {way.client.get(path).status for _ in range(4)} == {200}


def test_requests_are_counted(way: Way) -> None:
    """Whichever process is asked for the figures, they are those of all."""
    before = way.figure("pretzel_rows_total", model="plain", version="2")
    way.scores("plain")
    until(lambda: way.figure("pretzel_rows_total", model="plain", version="2") == before + MANY)


def test_rows_are_watched(way: Way) -> None:
    """The segments of all processes are one table."""

    def seen() -> float:
        return way.figure("pretzel_segment_rows_total", model="watched")

    def is_counted() -> bool:  # each process watches soon after it serves, and folds now and then
        before = seen()
        way.client.post("/predict/watched", [ROW] * 10)
        with suppress(AssertionError):
            until(lambda: seen() == before + 10, seconds=1.0)
            return True
        return False

    until(lambda: all(is_counted() for _ in range(6)), "not every process watches", 30)


def test_answers_are_kept_and_computed_again(way: Way, capsys: pytest.CaptureFixture[str]) -> None:
    """An answer has an identifier, by which the command finds where it comes from."""

    def asked() -> Reply:
        return way.client.post("/predict/kept", ROW)

    until(lambda: all("x-answer-id" in asked().headers for _ in range(6)), "not all keep answers")
    identifier = asked().headers["x-answer-id"]

    def found() -> bool:
        return main(["why", identifier, "--answers", str(way.answers), "--json"]) == 0

    until(found, "the answer is not found")
    assert '"computed_again": true' in capsys.readouterr().out


def test_a_label_comes_late(way: Way, capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever process has it, and whichever has answered."""

    def asked() -> Reply:
        return way.client.post("/predict/learning", ROW)

    until(lambda: all("x-answer-id" in asked().headers for _ in range(6)), "not all have feedback")
    names = {asked().headers["x-answer-id"] for _ in range(MANY)}
    for name in names:
        body = {"labels": {name: 9.0}}
        assert way.client.post("/v2/models/learning/labels", body).json == {"labels": 1}
    (folder,) = way.answers.rglob("learning-feedback")

    def is_told() -> bool:
        code, said = main(["feedback", str(folder), "--json"]), capsys.readouterr()
        if code:
            assert "no rows were chosen into this folder yet" in said.err
            return False
        told = json.loads(said.out)
        rows, error = (told["segments"] or [{"rows": 0}])[0]["rows"], told["segments"][:1]
        return bool(told["unknown"] == 0 and rows == MANY and error[0]["mae"]["value"] == 1.0)

    until(is_told, "the rows are not written")


def test_private_values_are_not_told(way: Way) -> None:
    """A refusal names the column, and quotes the value of a public one only."""
    wrong = {"age": 4.0, "ssn": "planted-7731"}
    assert b"planted-7731" not in way.client.post("/predict/private", wrong).body
    assert b"planted-7731" in way.client.post("/predict/plain", wrong).body


def test_an_answer_is_cached(way: Way) -> None:
    """A repeated question is answered from memory, by each process for itself."""
    before = way.figure("pretzel_cache_lookups_total", result="hit")
    assert way.scores("cached") == {8.0}
    until(lambda: way.figure("pretzel_cache_lookups_total", result="hit") >= before + MANY - 2)


def test_requests_go_together(way: Way) -> None:
    """Each of many at once has its own row's answer."""
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(_of_age, way, float(age)) for age in range(40)]
        assert [each.result(60) for each in asked] == [2.0 * age for age in range(40)]


def _of_age(way: Way, age: float) -> float:
    reply = way.client.post("/predict/batched", {**ROW, "age": age})
    while reply.status == 503:  # a busy machine is late, and says so
        reply = way.client.post("/predict/batched", {**ROW, "age": age})
    assert reply.status == 200, reply.body
    return float(np.ravel(reply.json["score"])[0])


INFER = {
    "inputs": [
        {"name": name, "datatype": "FP64", "shape": [1, 1], "data": [value]}
        for name, value in ROW.items()
    ]
}
