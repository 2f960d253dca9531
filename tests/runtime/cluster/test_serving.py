"""Replicas of a cluster, as processes of this machine without Ray: in step, replaced, withdrawn."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from objectstore import Blob, FileStore
from runtime import Runtime
from runtime.cluster.serving import ClusterClient, Controller, Scale
from runtime.cluster.serving.autoscaling import Autoscaler, ReplicaLoad
from runtime.cluster.serving.bodies import Homes, MemberState, Roster
from runtime.cluster.serving.front import Front
from runtime.cluster.serving.haproxy import configuration
from runtime.errors import ClusterError, NotInStep
from runtime.http import Server, ServerSettings
from runtime.http.server import ServerError
from tests.house import until
from tests.runtime.cluster.clusters import (
    ROW,
    Asking,
    Processes,
    asked_cluster,
    cluster,
    lost,
    only,
)
from tests.runtime.plans import shift
from tests.runtime.repository.folders import age, save_plan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "models"
    for name, offset in (("a", 1.0), ("b", 2.0)):
        changed(made / f"{name}.pretzel", offset)
    return made


def changed(path: Path, offset: float) -> None:
    save_plan(path, offset)
    age(path)


def tops(controller: Controller, name: str = "a") -> list[Any]:
    """What each replica itself answers."""
    found = []
    for each in controller.members().ready():
        with ClusterClient(each.url, attempts=1, look=partial(only, each)) as one:
            found.append(one.request("POST", f"/predict/{name}", b"[0, 0, 0, 0]"))
    return [each.value()["top"] if each.status == 200 else each.status for each in found]


def by_sign(block: Any) -> Any:
    return np.sign(block[:, 0])


def test_a_front_says_that_its_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port, none = busy.getsockname()[1], Roster(0, [])
        with pytest.raises(ServerError, match=f"127.0.0.1:{port}") as refused:
            Front("127.0.0.1", port, (lambda: none, Homes), lambda: none)
    assert "another port" in str(refused.value.hint)


def test_every_replica_has_followed_when_a_change_is_acknowledged(
    tmp_path: Path, folder: Path
) -> None:
    with cluster(tmp_path, folder, scale=Scale(2, 2), poll=0.0) as controller:
        controller.wait_ready()
        assert tops(controller) == [1.0, 1.0]
        for offset in (3.0, 4.0, 5.0):
            changed(folder / "a.pretzel", offset)
            assert controller.sync() == ["replaced a@1"]
            assert tops(controller) == [offset, offset]
        with ClusterClient(controller.front.url) as client:  # by way of any replica
            assert client.request("POST", "/v2/repository/models/a/unload", b"{}").status == 200
            assert tops(controller) == [404, 404]
            assert client.request("POST", "/v2/repository/models/a/load", b"{}").status == 200
            assert tops(controller) == [5.0, 5.0]


def test_a_route_is_every_replicas(tmp_path: Path, folder: Path) -> None:
    for version in (1, 2):
        changed(folder / "c" / str(version) / "c.pretzel", 10.0 * version)
    with asked_cluster(tmp_path, folder, scale=Scale(2, 2), poll=0.0) as (controller, client):
        route = b'{"champion": "c@1"}'
        assert client.request("PUT", "/v2/models/c/route", route).status == 200
        assert tops(controller, "c") == [10.0, 10.0]
        with Asking(client, "c").on() as asking:
            until(lambda: len(asking.answers) > 20)
            route = b'{"champion": "c@2"}'
            assert client.request("PUT", "/v2/models/c/route", route).status == 200
            changed_at = time.monotonic()
            until(lambda: len(asking.after(changed_at)) > 0)
            undone_at = time.monotonic()
            assert client.request("POST", "/v2/models/c/rollback", b"{}").status == 200
            back_at = time.monotonic()
            until(lambda: len(asking.after(back_at)) > 0)
        assert {
            top for asked, told, _, top in asking.answers if changed_at < asked and told < undone_at
        } == {20.0}
        assert asking.after(back_at) == {(200, 10.0)}
        assert tops(controller, "c") == [10.0, 10.0]


def test_metrics_are_those_of_all(tmp_path: Path, folder: Path) -> None:
    with asked_cluster(tmp_path, folder, scale=Scale(2, 2)) as (controller, client):
        assert tops(controller) == [1.0, 1.0]
        for _ in range(2):  # at either replica
            text = client.request("GET", "/metrics").body.decode()
            (line,) = (
                line
                for line in text.splitlines()
                if line.startswith("pretzel_calls_total") and 'model="a"' in line
            )
            assert float(line.rsplit(" ", 1)[1]) == 2.0


def test_a_killed_replica_comes_back_with_what_was_changed_meanwhile(
    tmp_path: Path, folder: Path
) -> None:
    with asked_cluster(tmp_path, folder, scale=Scale(2, 2), poll=0.0) as (controller, client):
        killed = controller.members().ready()[0]
        with Asking(client).on() as asking:
            until(lambda: len(asking.answers) > 50)
            os.kill(killed.process, signal.SIGKILL)
            changed(folder / "a.pretzel", 7.0)
            controller.sync()
            acknowledged = time.monotonic()
            until(lambda: len(controller.members().ready()) == 2)
            until(lambda: all(m.process != killed.process for m in controller.members().replicas))
            time.sleep(0.2)
        assert asking.failed == []
        assert {status for _, _, status, _ in asking.answers} == {200}
        assert asking.after(acknowledged) == {(200, 7.0)}
        assert tops(controller) == [7.0, 7.0]


def test_a_new_process_frees_what_killed_ones_have_left(tmp_path: Path, folder: Path) -> None:
    store = FileStore(tmp_path / "store")
    held, left = Blob.of([1.0]), Blob.of([2.0])
    store.hold("another", [held])
    store.put(left)
    for path in store.directory.rglob("*.blob"):
        os.utime(path, (0, 0))  # longer ago than anybody takes to hold it
    with cluster(tmp_path, folder, scale=Scale(1, 1)) as controller:
        controller.wait_ready()
        assert store.digests() == [held.digest]


def test_one_that_does_not_hear_stops_answering_before_a_change_is_acknowledged(
    tmp_path: Path, folder: Path
) -> None:
    with cluster(tmp_path, folder, scale=Scale(2, 2), poll=0.0, lease=1.0) as controller:
        controller.wait_ready()
        stopped = controller.members().ready()[0]
        os.kill(stopped.process, signal.SIGSTOP)
        try:
            controller.repository.unload("a")
            with pytest.raises(NotInStep, match=str(stopped.number)):
                controller.fleet.settle(0.3)
        finally:
            time.sleep(1.2)  # its lease ends
            os.kill(stopped.process, signal.SIGCONT)
        controller.fleet.settle(20.0)
        with ClusterClient(stopped.url, attempts=1, look=lambda: only(stopped)) as one:
            # It refuses until it has followed, and then it has no such model.
            assert one.request("POST", "/predict/a", b"[0, 0, 0, 0]").status in {404, 503}
            until(lambda: one.request("GET", "/v2/models/b").status == 200)
            assert one.request("POST", "/predict/a", b"[0, 0, 0, 0]").status == 404


def test_replicas_outlive_their_controller(tmp_path: Path, folder: Path) -> None:
    launcher = Processes(tmp_path / "address.json", 1.0)
    settings: dict[str, Any] = {"scale": Scale(2, 2), "lease": 1.0}
    try:
        with (
            cluster(tmp_path, folder, launcher, **settings) as first,
            ClusterClient(look=first.members) as client,
        ):
            first.wait_ready()
            first.unload("b")
            before = {each.process for each in first.members().ready()}
            asking = Asking(client)
            with lost(first), ExitStack() as asked:
                asked.enter_context(asking.on())
                time.sleep(1.5)  # longer than leases
                with cluster(tmp_path, folder, launcher, **settings) as second:
                    second.wait_ready()
                    assert {each.process for each in second.members().ready()} == before
                    changed(folder / "a.pretzel", 8.0)
                    second.sync()
                    acknowledged = time.monotonic()
                    until(lambda: asking.after(acknowledged))
                    assert tops(second) == [8.0, 8.0]
                    assert tops(second, "b") == [404, 404]
                    asked.close()
            assert asking.failed == []
            assert {status for _, _, status, _ in asking.answers} == {200}
            assert asking.after(acknowledged) == {(200, 8.0)}
    finally:
        launcher.close()


def test_processes_are_replaced_without_a_failed_request(tmp_path: Path, folder: Path) -> None:
    with asked_cluster(tmp_path, folder, scale=Scale(2, 2)) as (controller, client):
        before = {each.process for each in controller.members().ready()}
        with Asking(client).on() as asking:
            until(lambda: len(asking.answers) > 20)
            assert controller.roll() == 2
            ready = {each.process for each in controller.members().ready()}
        assert len(ready) == 2
        assert not ready & before
        assert asking.failed == []
        assert {(status, top) for _, _, status, top in asking.answers} == {(200, 1.0)}


def test_a_block_is_cut_merged_in_order_and_survives_a_killed_replica(
    tmp_path: Path, folder: Path
) -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, 4))
    with asked_cluster(tmp_path, folder, scale=Scale(2, 2), poll=0.0) as (controller, client):
        found = client.predict_block("a", rows)
        np.testing.assert_array_equal(found["moved"], rows + 1.0)
        assert all(answered > 0 for answered in rows_answered(controller))
        cut = client.predict_block("a", rows, shard=by_sign)
        np.testing.assert_array_equal(cut["moved"], rows + 1.0)
        both = client.predict_members(["a", "b"], rows)
        np.testing.assert_allclose(both["moved"], rows + 1.5)
        last = client.predict_members(["a", "b"], rows, combine=lambda members: members[-1])
        np.testing.assert_array_equal(last["moved"], rows + 2.0)
        with pytest.raises(ClusterError, match="something of each row"):
            client.predict_block("a", rows, shard=lambda _block: [1, 2])
        with pytest.raises(ClusterError, match="members"):
            client.predict_members("a", rows)
        os.kill(controller.members().ready()[0].process, signal.SIGKILL)
        np.testing.assert_array_equal(client.predict_block("a@1", rows)["moved"], rows + 1.0)
        # While versions are switched, all rows of a block are answered by one of them.
        ended = threading.Event()
        seen: list[set[float]] = []

        def ask() -> None:
            while not ended.is_set():
                moved = client.predict_block("c", rows)["moved"] - rows
                seen.append(set(np.round(moved.ravel(), 6).tolist()))

        changed(folder / "c" / "1" / "c.pretzel", 0.0)
        controller.sync()
        asking = threading.Thread(target=ask)
        asking.start()
        for version in range(2, 8):
            changed(folder / "c" / str(version) / "c.pretzel", 10.0 * version)
            controller.sync()
        ended.set()
        asking.join(60)
        assert seen
        assert {len(each) for each in seen} == {1}


def rows_answered(controller: Controller) -> list[int]:
    """The rows that each replica has answered of one model."""
    counts = []
    for each in controller.members().ready():
        with ClusterClient(each.url, look=partial(only, each)) as one:
            (stats,) = one.request("GET", "/v2/models/a/stats").value()["model_stats"]
            counts.append(stats["inference_count"])
    return counts


@pytest.mark.apart  # real seconds of processes
def test_to_zero_and_back_within_a_second(tmp_path: Path, folder: Path) -> None:
    scale = Scale(0, 2, zero_seconds=0.6, down_seconds=0.3)
    with (
        cluster(tmp_path, folder, scale=scale, standby=1) as controller,
        ClusterClient(controller.front.url) as client,
    ):
        controller.wait_ready(1)
        assert client.predict("a", ROW)["top"] == 1.0
        until(lambda: not controller.members().ready())
        until(lambda: [each.state for each in controller.members().replicas] == ["spare"])
        started = time.monotonic()
        assert client.predict("a", ROW)["top"] == 1.0
        assert time.monotonic() - started < 1.0
        assert client.predict("a", ROW)["top"] == 1.0


# --- parts ---------------------------------------------------------------------------------------


def test_more_replicas_for_queues_processors_and_missed_deadlines() -> None:
    scale = Scale(1, 4, up_seconds=1.0, down_seconds=5.0)
    for load in (ReplicaLoad(waiting=9), ReplicaLoad(busy=1.5)):
        scaler, now = Autoscaler(scale), 0.0
        assert scaler.wanted(now, 1, [load]) == 1  # not at once
        assert scaler.wanted(now + 1.1, 1, [load]) == 3
        assert scaler.wanted(now + 1.2, 3, [ReplicaLoad()] * 3) == 3
        assert scaler.wanted(now + 7.0, 3, [ReplicaLoad()] * 3) == 1
    scaler = Autoscaler(scale)
    scaler.wanted(0.0, 2, [ReplicaLoad(requests=100, missed=0)] * 2)
    wanted = [
        scaler.wanted(n / 2, 2, [ReplicaLoad(requests=200 * n, missed=9 * n)] * 2)
        for n in (1, 2, 3, 4)
    ]
    assert wanted[-1] == 3
    assert Autoscaler(scale).wanted(0.0, 9, [ReplicaLoad(waiting=99)]) == 4


def test_none_without_requests_and_one_when_woken() -> None:
    scaler = Autoscaler(Scale(0, 2, zero_seconds=10.0, down_seconds=1.0))
    assert scaler.wanted(0.0, 1, []) == 1  # it starts
    assert scaler.wanted(9.0, 1, [ReplicaLoad()]) == 1
    assert scaler.wanted(10.0, 1, [ReplicaLoad()]) == 0
    assert scaler.wanted(11.0, 0, []) == 0
    scaler.woken(50.0)
    assert scaler.wanted(50.1, 1, []) == 1
    assert scaler.wanted(59.0, 1, [ReplicaLoad()]) == 1
    with pytest.raises(ClusterError, match="few to many"):
        Scale(3, 2)


def test_only_what_may_be_repeated_is_asked_again() -> None:
    taken = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                taken.append(connection.recv(1 << 16))
                connection.close()

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        states = [MemberState(number, url, "ready") for number in range(1)]
        client = ClusterClient(url, attempts=3, look=lambda: Roster(1, states))
        with pytest.raises(ClusterError, match="only predictions"):
            client.request("POST", "/v2/repository/models/a/unload", b"{}")
        assert len(taken) == 1
        with pytest.raises(ClusterError, match="no replica answers"):
            client.predict("a", ROW)
        assert len(taken) == 4
        listener.shutdown(socket.SHUT_RDWR)


def test_threads_that_come_first_wait_for_the_first_look() -> None:
    with Runtime() as runtime, Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        runtime.register("a", shift(1.0))

        def looked() -> Roster:
            time.sleep(0.2)
            return Roster(1, [MemberState(0, server.url, "ready")])

        with ClusterClient(look=looked) as client, ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: client.predict("a", ROW)["top"], range(4)))
    assert answers == [1.0] * 4


def test_where_none_was_ready_it_looks_again_soon() -> None:
    found = iter([Roster(0, []), *[only(MemberState(0, "http://127.0.0.1:9", "ready"))] * 50])
    with ClusterClient(look=lambda: next(found), refresh=60.0) as client:
        assert client.replicas() == []
        until(client.replicas, "one is ready now", seconds=5.0)


def test_haproxy_knows_the_front_and_its_places(tmp_path: Path) -> None:
    text = configuration("127.0.0.1:80", "http://127.0.0.1:99", tmp_path, 2)
    assert "server front 127.0.0.1:99 backup" in text
    assert text.count("server r") == 2


def test_who_does_not_know_the_secret_is_sent_away(tmp_path: Path, folder: Path) -> None:
    with cluster(tmp_path, folder, scale=Scale(1, 1)) as controller:
        address = controller.address()
        with socket.create_connection((address.host, address.port)) as stranger:
            stranger.sendall(b"x" * 32)
            stranger.settimeout(5.0)
            assert stranger.recv(1) == b""
        assert len(controller.wait_ready().replicas) == 1
