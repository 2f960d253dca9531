"""Homes of models: the replicas that are asked first, so that what models share is on few nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import flour
import oven
from runtime import Runtime
from runtime.cluster.serving import ClusterClient, Controller, Scale
from runtime.cluster.serving import homes as homes_module
from runtime.cluster.serving.bodies import Homes, MemberState, ReplicaAnswer, Roster
from runtime.cluster.serving.client import Target
from runtime.cluster.serving.homes import CODE_BYTES, Placing, sizes_in
from runtime.http import Server, ServerSettings
from runtime.workers.desired import Name, Version
from tests.house import until
from tests.runtime.cluster.clusters import cluster
from tests.runtime.plans import shift
from tests.runtime.repository.folders import age

GROUPS, MODELS, NODES = 3, 12, 3
PATH = "/predict/m{}"


def save(path: Path, number: int) -> None:
    """Model `number`; every third one has the same large parameter."""
    path.parent.mkdir(exist_ok=True)
    shared = np.random.default_rng(number % GROUPS).normal(size=(1 << 14, 4))
    features = flour.vector("x", 4).linear(shared, np.zeros(1 << 14)).relu()
    oven.bake(flour.outputs(top=features.max().add(number))).save(path, durable=False)
    age(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    for number in range(MODELS):
        save(made / f"m{number}.pretzel", number)
    return made


def by_name(folder: Path) -> dict[str, Name]:
    return {
        path.stem: Name({"1": Version(number, str(path))}, "1")
        for number, path in enumerate(sorted(folder.glob("*.pretzel")))
    }


class Now(ThreadPoolExecutor):
    """Does what it is given at once."""

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*given, **named))
        return done


def placing(names: Mapping[str, Name]) -> tuple[Placing, list[Homes]]:
    told: list[Homes] = []
    return Placing(lambda: names, told.append), told


NODES_OF = {"a": [0, 3], "b": [1], "c": [2]}


def test_models_that_share_a_parameter_have_one_home_and_loads_a_bound(folder: Path) -> None:
    made, told = placing(by_name(folder))
    made.look(1, NODES_OF, Now())
    (homes,) = told
    groups = [{tuple(homes.models[f"m{n}"]) for n in range(g, MODELS, GROUPS)} for g in range(3)]
    assert [len(each) for each in groups] == [1, 1, 1]
    assert set().union(*groups) == {(0, 3), (1,), (2,)}


def test_what_a_plan_has_is_read_from_its_file(folder: Path, tmp_path: Path) -> None:
    one, two, other = (sizes_in(str(folder / f"m{number}.pretzel")) for number in (0, 3, 1))
    assert max(one.values()) == (1 << 14) * 4 * 8
    assert max(one, key=one.__getitem__) in two.keys() - other.keys()
    (structure,) = [key for key in one if key.startswith("structure")]
    assert structure in other
    assert one[structure] == CODE_BYTES
    assert sizes_in(str(tmp_path / "gone.pretzel")) == {}
    (tmp_path / "torn.pretzel").write_bytes(b"\0" * 100)
    assert sizes_in(str(tmp_path / "torn.pretzel")) == {}


def test_a_hot_model_has_several_nodes_and_nothing_moves_without_a_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes_module, "EVERY", 0.0)
    monkeypatch.setattr(homes_module, "_SHARE", float("inf"))
    made, told = placing(by_name(folder))
    made.look(1, NODES_OF, Now())
    made.count({"m1": 1, "gone": 5})
    made.look(1, NODES_OF, Now())
    assert len(told) == 1
    made.count({"m0": 500})
    made.look(1, NODES_OF, Now())
    assert len(told) == 2
    assert "m0" not in told[1].models  # everybody is asked
    assert told[1].number > told[0].number
    moved = [name for name in told[1].models if told[1].models[name] != told[0].models[name]]
    assert len(moved) <= MODELS // 2


def test_one_node_is_everybodys_home_and_a_node_that_goes_nobodys(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes_module, "_SHARE", float("inf"))
    made, told = placing(by_name(folder))
    made.look(1, {"a": [0, 1]}, Now())
    assert told == []
    made.look(1, NODES_OF, Now())
    made.look(1, {"a": [0], "b": [1]}, Now())
    assert {number for each in told[-1].models.values() for number in each} == {0, 1}
    made.look(1, {"a": [0]}, Now())
    assert told[-1].models == {}


def shares(controller: Controller) -> dict[str, Counter[str]]:
    """Who answers for each model, of ten requests."""
    with ClusterClient(controller.front.url) as client:
        client.replicas()
        return {
            f"m{number}": Counter(
                client.request("POST", PATH.format(number), b"[1, 2, 3, 4]").url for _ in range(10)
            )
            for number in range(MODELS)
        }


def placed(controller: Controller) -> set[int]:
    """The replicas that are a home."""
    return {number for each in controller.placing.homes.models.values() for number in each}


def test_requests_go_home_and_elsewhere_when_it_is_gone(tmp_path: Path, folder: Path) -> None:
    with cluster(tmp_path, folder, nodes=NODES, scale=Scale(NODES, NODES)) as controller:
        controller.wait_ready()
        urls = {each.number: each.url for each in controller.members().ready()}
        until(lambda: placed(controller) == urls.keys())  # first on those that came first
        homes = controller.placing.homes.models
        assert shares(controller) == {
            name: Counter({urls[numbers[0]]: 10}) for name, numbers in homes.items()
        }
        with ClusterClient(controller.front.url) as client:
            assert client.homes_of("m0") == [urls[homes["m0"][0]]]
            controller.scale_to(NODES - 1)  # the newest one goes
            until(lambda: len(controller.members().ready()) == NODES - 1)
            answers = {client.predict(f"m{n}", [1, 2, 3, 4])["top"] for n in range(MODELS)}
            assert len(answers) == MODELS
        left = {each.number for each in controller.members().ready()}
        until(lambda: placed(controller) == left)
        assert set().union(*shares(controller).values()) == {urls[number] for number in left}


@pytest.mark.parametrize("shard", [None, lambda rows: np.arange(len(rows)) % 3])
def test_the_parts_of_a_block_go_to_all_and_a_small_one_home(
    monkeypatch: pytest.MonkeyPatch, shard: Any
) -> None:
    asked, together, ask = Counter[str](), Barrier(NODES, timeout=30.0), Target.ask

    def noted(target: Target, method: str, path: str, body: Any, headers: Any) -> ReplicaAnswer:
        if path.endswith("/infer"):
            asked[target.url] += 1
            if len(body) > 10_000:
                together.wait()  # a part is not answered before all are asked for
        return ask(target, method, path, body, headers)

    monkeypatch.setattr(Target, "ask", noted)
    with ExitStack() as stack:
        runtime = stack.enter_context(Runtime(executors=1))
        runtime.register("m", shift(1.0), background=False)
        urls = [
            stack.enter_context(Server(runtime, ServerSettings(port=0, max_unread=0.0))).url
            for _ in range(NODES)
        ]
        states = [MemberState(number, url, "ready") for number, url in enumerate(urls)]
        members, homes = Roster(1, states, homes=1), Homes(1, {"m": [1]})
        client = stack.enter_context(ClusterClient(look=lambda: members, homes=lambda: homes))
        rows = np.random.default_rng(0).normal(size=(4000, 4))
        for blocks in range(1, 9):
            found = client.predict_block("m", rows, shard=shard)["moved"]
            np.testing.assert_array_equal(found, rows + 1.0)
            assert asked == dict.fromkeys(urls, blocks)
        asked.clear()
        client.predict_block("m", rows[:300])
        client.predict_block("m@1", rows[:300])
        assert asked == {urls[1]: 2}
        assert [each.outstanding for each in client._targets.values()] == [0] * NODES


@pytest.mark.parametrize(
    ("parts", "asked"), [(1, [{0}, {2}]), (2, [{0, 2}]), (3, [{0, 1, 2}]), (5, [{0, 1, 2}])]
)
def test_the_homes_of_a_hot_model_are_the_first_to_have_a_part(
    monkeypatch: pytest.MonkeyPatch, parts: int, asked: list[set[int]]
) -> None:
    urls = [f"http://127.0.0.1:{port}" for port in (1, 2, 3)]
    members = Roster(1, [MemberState(n, url, "ready") for n, url in enumerate(urls)], homes=1)
    homes, together = Homes(1, {"m": [0, 2]}), Barrier(parts, timeout=30.0)

    def noted(target: Target, *_: object) -> ReplicaAnswer:
        together.wait()
        return ReplicaAnswer(200, {}, b"", target.url)

    monkeypatch.setattr(Target, "ask", noted)
    with (
        ClusterClient(look=lambda: members, homes=lambda: homes) as client,
        ThreadPoolExecutor(parts) as pool,
    ):
        for _ in range(3):
            ask = partial(client.request, "POST", "/v2/models/m/infer", b"", spread=parts > 1)
            each = [pool.submit(ask) for _ in range(parts)]
            found = {urls.index(one.result(30.0).url) for one in each}
            assert found in asked
